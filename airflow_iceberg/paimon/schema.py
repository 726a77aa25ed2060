"""Schema files: the columns of a table, its keys and its options, one file for each version of them.

Here: `schema/schema-N` as a value. Not here: types (`types`), and which schema belongs to what (`table`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import FormatError, UnsupportedError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.paimon.types import PaimonField, parse_field, parse_type

NEWEST_VERSION = 3
DEFAULT_PARTITION_NAME = "__DEFAULT_PARTITION__"

# Columns that Paimon adds to data files itself: they may stand in `_WRITE_COLS` and `_VALUE_STATS_COLS`.
_SYSTEM_TYPES = {"_SEQUENCE_NUMBER": "BIGINT NOT NULL", "_VALUE_KIND": "TINYINT NOT NULL", "_ROW_ID": "BIGINT"}
SYSTEM_FIELDS: Mapping[str, PaimonField] = {
    name: PaimonField(id=2147483647 - index, name=name, type=parse_type(text))
    for index, (name, text) in enumerate(_SYSTEM_TYPES.items(), start=1)
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PaimonSchema:
    """One version of a table's columns, keys and options.

    Attributes:
        version: version of the file's format, 1 to 3.
        id: number of the schema; after a rollback of schemas a number can be used again, with other fields.
        options: settings of the table, as text, without defaults.
        time_ms: when the schema was made, milliseconds since the epoch; None in old files.
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

        Raises:
            FormatError: no JSON, or something in it is missing or of another type; keys that are not known are kept
                quiet about, since every version of Paimon adds some.
            UnsupportedError: the format is newer than this package.
        """
        item = Fields(load_json(data, path), "", path)
        version = item.opt_int("version") or 1
        if version > NEWEST_VERSION:
            raise UnsupportedError(f"version {version} of a schema (known: 1 to {NEWEST_VERSION}) of {path}")
        try:
            return cls._from_fields(item, version)
        except FormatError as error:
            if error.path is not None or path is None:
                raise
            raise FormatError(str(error), path=path) from error

    @classmethod
    def _from_fields(cls, item: Fields, version: int) -> PaimonSchema:
        options = item.str_map("options") if "options" in item else {}
        return cls(
            version=version,
            id=item.int("id"),
            fields=tuple(parse_field(field) for field in item.items("fields")),
            highest_field_id=item.int("highestFieldId"),
            partition_keys=_names(item, "partitionKeys"),
            primary_keys=_names(item, "primaryKeys"),
            options=options,
            comment=item.opt_str("comment"),
            time_ms=item.opt_int("timeMillis"),
        )

    @property
    def partition_fields(self) -> tuple[PaimonField, ...]:
        """The fields of the partition keys, in the order of the keys."""
        return tuple(self.field(key) for key in self.partition_keys)

    def field(self, name: str) -> PaimonField:
        """Return a field by its name.

        Raises:
            FormatError: there is none; names come from files, not from people.
        """
        found = self.find(name)
        if found is None:
            raise FormatError(f"schema {self.id} has no field '{name}'")
        return found

    def find(self, name: str) -> PaimonField | None:
        """Return a field by its name, or None."""
        return next((field for field in self.fields if field.name == name), None)

    def option(self, name: str, default: str = "") -> str:
        """Return a setting."""
        # What files of old versions leave out is not what the option's default is today.
        old = {"bucket": "1"} if self.version < 2 else {}
        old |= {"file.format": "orc"} if self.version < NEWEST_VERSION else {}
        return self.options.get(name, old.get(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a setting that is true or false."""
        text = self.options.get(name)
        return default if text is None else text.strip().lower() == "true"


def load_json(data: bytes, path: str | None) -> Any:
    """Return the JSON value of a file.

    Raises:
        FormatError: it is none: the file is torn, or foreign.
    """
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
