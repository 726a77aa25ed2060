"""Schema files, `schema/schema-N`: the columns of a table, its keys and its options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.paimon.types import PaimonField, parse_field, parse_type

NEWEST_VERSION = 3
# Of a schema, a snapshot or statistics: each has some values for each column.
_MOST_BYTES, _MOST_VALUES = 16 << 20, 500_000
DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"

# Columns that Paimon adds to data files: `_WRITE_COLS` and `_VALUE_STATS_COLS` may name them.
_SYSTEM_TYPES = {"_SEQUENCE_NUMBER": "BIGINT NOT NULL", "_VALUE_KIND": "TINYINT NOT NULL", "_ROW_ID": "BIGINT"}
SYSTEM_FIELDS: Mapping[str, PaimonField] = {
    name: PaimonField(id=2147483647 - index, name=name, type=parse_type(text))
    for index, (name, text) in enumerate(_SYSTEM_TYPES.items(), start=1)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonSchema:
    """One version of a table's columns, keys and options.

    Attributes:
        version: the version of the file's format, 1 to 3.
        id: the number of the schema; after a rollback it can be used again, with other fields.
        options: the options of the table, as text, without defaults.
        time_ms: the time of the schema, in milliseconds since the epoch; None in old files.
    """

    version: int
    id: int
    fields: tuple[PaimonField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: Mapping[str, str]
    comment: str | None = None
    time_ms: int | None = None

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        for kind, keys in (("partition", self.partition_keys), ("primary", self.primary_keys)):
            missing = [key for key in keys if key not in names]
            if missing:
                raise FormatError(f"{kind} key '{missing[0]}' of schema {self.id} is none of its fields")
        if len(set(names)) < len(names):
            raise FormatError(f"schema {self.id} has two fields of one name")

    @classmethod
    def from_json(cls, data: bytes, *, path: str | None = None) -> PaimonSchema:
        """Read a schema file.

        Unknown keys are ignored, since every version of Paimon adds some.

        Raises:
            FormatError: the file is no JSON document, or an entry is missing or of another type.
            UnsupportedError: the version of the format is unknown.
        """
        item = Fields(load_json(data, path), "", path)
        version = item.opt_int("version") or 1
        if version > NEWEST_VERSION:
            raise UnsupportedError(f"version {version} of a schema (known: 1 to {NEWEST_VERSION}) of {path}")
        try:
            return cls(
                version=version,
                id=item.int("id"),
                fields=tuple(parse_field(field) for field in item.items("fields")),
                highest_field_id=item.int("highestFieldId"),
                partition_keys=_names(item, "partitionKeys"),
                primary_keys=_names(item, "primaryKeys"),
                options=item.str_map("options") if "options" in item else {},
                comment=item.opt_str("comment"),
                time_ms=item.opt_int("timeMillis"),
            )
        except FormatError as error:
            if error.path is not None or path is None:
                raise
            raise FormatError(str(error), path=path) from error

    @property
    def partition_fields(self) -> tuple[PaimonField, ...]:
        """The fields of the partition keys, in the order of the keys."""
        return tuple(self.field(key) for key in self.partition_keys)

    def field(self, name: str) -> PaimonField:
        """Return a field by a name from a file.

        Raises:
            FormatError: it does not exist.
        """
        found = self.find(name)
        if found is None:
            raise FormatError(f"schema {self.id} has no field '{name}'")
        return found

    def find(self, name: str) -> PaimonField | None:
        """Return a field by its name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    def check_partition_keys(self, names: Iterable[str]) -> None:
        """Check that names from the user are partition keys."""
        unknown = [name for name in names if name not in self.partition_keys]
        if unknown:
            keys = ", ".join(self.partition_keys) or "none"
            raise InvalidInputError(f"'{unknown[0]}' is no partition key; the table has {keys}")

    def option(self, name: str, default: str = "") -> str:
        """Return an option."""
        # Files of old versions have other defaults.
        old = {"bucket": "1"} if self.version < 2 else {}
        old |= {"file.format": "orc"} if self.version < NEWEST_VERSION else {}
        return self.options.get(name, old.get(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return an option that is true or false."""
        text = self.options.get(name)
        return default if text is None else text.strip().lower() == "true"


def load_json(data: bytes, path: str | None) -> Any:
    """Return the JSON value of a file."""
    if len(data) > _MOST_BYTES or sum(map(data.count, (b",", b"[", b"{"))) > _MOST_VALUES:
        most = f"{_MOST_BYTES} with {_MOST_VALUES} values"
        raise FormatError(f"a JSON document of {len(data)} bytes, expected at most {most}", path=path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        found = "an empty file" if not data else f"{bytes(data[:16])!r}… of {len(data)} bytes"
        raise FormatError(f"no JSON document ({error}), found {found}", path=path) from error


def _names(item: Fields, key: str) -> tuple[str, ...]:
    names = item.list(key) if key in item else ()
    for index, name in enumerate(names):
        if not isinstance(name, str):
            item.fail(f"{key}[{index}]", "unexpected value (expected str)")
    return tuple(names)
