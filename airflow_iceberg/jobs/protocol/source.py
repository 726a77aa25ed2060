"""Where a job's rows come from: files, a query or a function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.jobs.protocol import sql_params
from airflow_iceberg.jobs.protocol.document import Document
from airflow_iceberg.redaction import hide

SOURCE_KINDS = ("files", "sql", "callable")
DIALECTS = ("spark", "duckdb")
FILE_FORMATS = ("parquet", "csv", "jsonl", "orc", "avro")


@dataclass(frozen=True, kw_only=True, slots=True)
class Source(Document):
    """The source of rows: files, a Spark SQL query, or a Python callable; exactly one of them.

    Attributes:
        kind: one of SOURCE_KINDS.
        files: URLs or paths, with globs; read in the order given, matches of one glob sorted by name.
        file_format: one of FILE_FORMATS; None chooses it by each file's suffix.
        format_options: options of the reader, e.g. {"delimiter": ";", "header": "false"}; see `jobs.sources.readers`.
        dialect: the dialect of the query, one of DIALECTS.
        sql_params: the values of the query's placeholders, `:name`, in their JSON form; `sql_args` are the values.
        callable: "package.module:function"; called with the SparkSession and `kwargs`, returns a DataFrame.
        kwargs: JSON values for the callable.
        rows_name: what messages call the rows of files that were written for the job alone; None for their locations.
        withheld: the names of the fields whose values a plan document does not hold, because others can read it.
    """

    kind: str
    files: tuple[str, ...] = ()
    file_format: str | None = None
    format_options: Mapping[str, str] = field(default_factory=dict)
    sql: str | None = None
    dialect: str = "spark"
    sql_params: Mapping[str, Any] | None = None
    callable: str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)
    rows_name: str | None = None
    withheld: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in SOURCE_KINDS:
            raise InvalidInputError(f"unknown source kind {self.kind!r}; one of {', '.join(SOURCE_KINDS)}")
        named = {name: getattr(self, name) for name in SOURCE_KINDS}
        given = [name for name, value in named.items() if value]
        if given != [self.kind]:
            found = ", ".join(given) or "nothing"
            raise InvalidInputError(f"a source of kind {self.kind!r} needs {self.kind} and nothing else, got {found}")
        for name in self.files:
            _check_location(name)
        if self.file_format is not None and self.file_format not in FILE_FORMATS:
            known = ", ".join(FILE_FORMATS)
            raise InvalidInputError(f"unknown file format {self.file_format!r}; one of {known}")
        for name, value in self.format_options.items():
            if not isinstance(value, str):
                raise InvalidInputError(
                    f"format option {name!r} is {value!r}, expected text such as '{str(value).lower()}'"
                )
        try:
            json.dumps(dict(self.kwargs), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"op_kwargs are not JSON values: {error}") from error
        if self.dialect not in DIALECTS:
            raise InvalidInputError(f"unknown dialect {self.dialect!r}; one of {', '.join(DIALECTS)}")
        if self.sql_params and self.sql is None:
            raise InvalidInputError("sql_params are the values of placeholders in sql, and there is no sql")
        _ = self.sql_args
        if self.callable is not None and not _is_callable_path(self.callable):
            raise InvalidInputError(f"python callable {self.callable!r} is not of the form 'package.module:function'")

    @classmethod
    def from_files(
        cls,
        files: str | tuple[str, ...] | list[str],
        *,
        file_format: str | None = None,
        format_options: Mapping[str, str] | None = None,
    ) -> Self:
        """Return a source of one or more files or globs."""
        if not isinstance(files, str | tuple | list):
            raise InvalidInputError(f"files are {came(files)}, expected a location, a glob, or a list of these")
        names = (files,) if isinstance(files, str) else tuple(files)
        return cls(kind="files", files=names, file_format=file_format, format_options=dict(format_options or {}))

    @classmethod
    def from_sql(cls, sql: str, params: Mapping[str, Any] | None = None, *, dialect: str = "spark") -> Self:
        """Return a source that is one query.

        Args:
            params: the values of the query's placeholders by name; the engine binds them to the parsed query.
            dialect: "spark", whose placeholders are `:name`, or "duckdb", whose are `$name`.
        """
        if not isinstance(sql, str):
            raise InvalidInputError(f"sql is {came(sql)}, expected a query as text")
        checked = sql_params.checked(params, sql, mark="$" if dialect == "duckdb" else ":")
        values = {name: sql_params.to_json(name, value, dialect=dialect) for name, value in checked.items()}
        return cls(kind="sql", sql=sql.strip().rstrip(";").rstrip(), sql_params=values or None, dialect=dialect)

    @property
    def sql_args(self) -> dict[str, Any]:
        """The values of the query's placeholders, as `spark.sql` takes them."""
        return {name: sql_params.from_json(name, value) for name, value in (self.sql_params or {}).items()}

    @classmethod
    def from_callable(cls, path: str, kwargs: Mapping[str, Any] | None = None) -> Self:
        """Return a source that is a function "package.module:function" of the SparkSession."""
        return cls(kind="callable", callable=path, kwargs=dict(kwargs or {}))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, without the arguments of a callable and without secrets."""
        return Document.to_dict(self._public())

    def withheld_values(self) -> dict[str, Any]:
        """Return the values that the JSON form does not hold; the driver of a job gets them on another way."""
        public = self._public()
        return {name: getattr(self, name) for name in public.withheld}

    def completed(self, values: Mapping[str, Any]) -> Source:
        """Return a source that was read from its JSON form with the values that this does not hold.

        Raises:
            InvalidInputError: values are missing, or are not of this source.
        """
        if sorted(values) != sorted(self.withheld):
            expected, got = (", ".join(sorted(names)) or "none" for names in (self.withheld, values))
            raise InvalidInputError(
                f"the plan withholds {expected} of the job's source, and the job was given {got}: its plan is not the "
                f"one that it was started for, or the file with them was not sent to the driver"
            )
        found: dict[str, Any] = {name: tuple(value) if name == "files" else value for name, value in values.items()}
        return replace(self, **found, withheld=())

    def _public(self) -> Source:
        """Return the source as everybody may read it: without arguments, and with asterisks instead of secrets."""
        if self.withheld:
            return self
        hidden: dict[str, Any] = {name: hide(name, getattr(self, name)) for name in ("files", "sql")}
        public = {name: value for name, value in hidden.items() if value != getattr(self, name)}
        if self.kwargs:
            public["kwargs"] = {}
        return replace(self, **public, withheld=tuple(public))


def _check_location(name: str) -> None:
    """Reject an empty name, and a password, which would be stored in the plan document."""
    if not name.strip():
        raise InvalidInputError("one of the source files has an empty name; a template may have rendered to nothing")
    authority = name.partition("://")[2].partition("/")[0]
    user, at, _ = authority.rpartition("@")
    if at and ":" in user:
        raise InvalidInputError(
            f"source file {name.replace(user, '***')} has a password in its name, which would be stored in the job's "
            f"plan; give credentials by the catalog's connection or the environment"
        )


def _is_callable_path(text: str) -> bool:
    module, _, function = text.partition(":")
    return all(part.isidentifier() for part in [*module.split("."), *function.split(".")])
