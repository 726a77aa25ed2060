"""`PartitionCondition`: a partition is there, has rows, or is marked as complete."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.format.transforms.spelled import is_typed, spelled_value
from airflow_iceberg.format.types import StringType
from airflow_iceberg.plan.conditions.decision import Decision, Facts, described, head_of

if TYPE_CHECKING:
    from airflow_iceberg.format.metadata.table_metadata import TableMetadata

_SHOWN = 5
_NULL = "null"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionCondition:
    """A partition is complete: all that is given holds.

    Attributes:
        partition: values of some or all partition fields, as in the partition's path or as values of the field's type,
            None for null; a field is given by its name (`ts_day`), or by the name of its column. Empty for the marks
            alone.
        min_rows: the least number of rows; None if one file is enough.
        properties: table properties that mark the partition, with their values; None for any value.
        tag: a tag that marks the partition.
    """

    branch: str = "main"
    partition: Mapping[str, str | None] = field(default_factory=dict)
    min_rows: int | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    tag: str | None = None
    _given: Mapping[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_given", {str(name): value for name, value in self.partition.items()})
        object.__setattr__(self, "partition", texts_of(self.partition))
        marks = {name: None if value is None else text_of(value) for name, value in self.properties.items()}
        object.__setattr__(self, "properties", marks)
        if not (self.partition or self.properties or self.tag):
            raise InvalidInputError("nothing to wait for: give partition, properties or tag")
        if self.min_rows is not None and not self.partition:
            raise InvalidInputError(
                f"min_rows={self.min_rows} is about the rows of a partition, and none is given; IcebergRowCountSensor "
                f"waits for those of a branch"
            )

    def waits_for(self) -> str:
        """Return the condition as the end of a sentence."""
        parts = []
        if self.partition:
            rows = "" if self.min_rows is None else f" with at least {self.min_rows} rows"
            parts.append(f"partition {_path(self.partition)}{rows} on branch {self.branch!r}")
        parts += [f"table property {name!r}" + _value(value) for name, value in self.properties.items()]
        parts += [f"tag {self.tag!r}"] if self.tag else []
        return " and ".join(parts)

    def decide(self, metadata: TableMetadata, facts: Facts, *, now_ms: int) -> Decision:
        """Decide by the marks, and only if they are there by the files of the partition."""
        wanted = by_field(metadata, self.partition, self._given)
        missing = self._missing_marks(metadata)
        if missing:
            return Decision(has=" and ".join(missing))
        head = metadata.ref_snapshot(self.branch)
        result: dict[str, Any] = {"partition": dict(self.partition), "rows": None, "data_files": None}
        if self.partition:
            found = () if head is None else facts.partitions(head.snapshot_id)
            mine = [count for count in found if is_in(count.texts, wanted)]
            rows, files = sum(count.live_records for count in mine), sum(count.data_files for count in mine)
            has = f"the partition has {files} data files with {rows} rows"
            if not files:
                some = ", ".join(nlargest(_SHOWN, (_path(count.texts) for count in found)))
                has = f"none of its {len(found)} partitions is this one" + (f"; the last ones: {some}" if some else "")
            if not files or (self.min_rows is not None and rows < self.min_rows):
                return Decision(has=f"{has}; {head_of(self.branch, head)}")
            result |= {"rows": rows, "data_files": files}
        snapshot = {"branch": self.branch, "snapshot_id": None} if head is None else described(self.branch, head)
        return Decision(result={**snapshot, **result, "tag": self.tag}, has=head_of(self.branch, head))

    def _missing_marks(self, metadata: TableMetadata) -> list[str]:
        missing = []
        for name, value in self.properties.items():
            found = metadata.properties.get(name)
            if found is None:
                missing.append(f"no property {name!r}")
            elif value is not None and found != value:
                missing.append(f"property {name!r} = {found[:100]!r}")
        if self.tag:
            ref = metadata.refs.get(self.tag)
            if ref is None or ref.is_branch:
                missing.append(f"no tag {self.tag!r}" if ref is None else f"a branch {self.tag!r}, which is no tag")
        return missing


Wanted = Mapping[str, frozenset[str | None]]
"""By the names of partition fields the texts that the wanted values have in paths; None is null."""


def by_field(
    metadata: TableMetadata, partition: Mapping[str, str | None], given: Mapping[str, Any] | None = None
) -> Wanted:
    """Return what is wanted as partitions have it: 1 of a double is `1.0` there.

    Args:
        given: the values as they were given, for the errors.

    Raises:
        InvalidInputError: a name is that of no partition field, or of several fields' column; or the field cannot have
            the value.
    """
    names = {name: field_name(metadata, name) for name in partition}
    shown = partition if given is None else given
    return {names[name]: _spellings(metadata, names[name], text, shown[name]) for name, text in partition.items()}


def is_in(texts: Mapping[str, str], wanted: Wanted) -> bool:
    """Tell whether a partition has the wanted values."""
    return all(not values.isdisjoint(_possible(texts, name)) for name, values in wanted.items())


def may_be_null(wanted: Wanted) -> bool:
    """Tell whether texts alone do not tell what is wanted: null and the text `null` are the same there."""
    return any(None in values or _NULL in values for values in wanted.values())


def _possible(texts: Mapping[str, str], name: str) -> tuple[str | None, ...]:
    text, nulls = texts.get(name), getattr(texts, "nulls", None)
    if text is None:
        return ()
    if nulls is None:
        return (text, None) if text == _NULL else (text,)
    return (None,) if name in nulls else (text,)


def _spellings(metadata: TableMetadata, name: str, text: str | None, given: object) -> frozenset[str | None]:
    if text is None:
        return frozenset((None,))
    found: set[str | None] = set()
    problem = None
    for spec in metadata.partition_specs:
        schema = metadata.schema_of_spec(spec.spec_id)
        for part in (part for part in spec.fields if part.name == name):
            source = schema.fields_by_id.get(part.source_id)
            if source is None or not is_typed(part.transform, source.type):
                found |= {text, None} if text == _NULL else {text}
            elif text == _NULL and not isinstance(part.transform.result_type(source.type), StringType):
                found.add(None)  # as in the path
            else:
                try:
                    value = spelled_value(part.transform, source.type, text)
                except InvalidInputError as error:
                    column = schema.find_name(source.id)
                    problem = f"partition field '{name}' ({part.transform} of column '{column}', {source.type}) cannot "
                    problem += f"have the value {came(given)}: {error}"
                else:
                    found.add(part.transform.to_human_string(value, source.type))
    if problem is not None and not found:
        raise InvalidInputError(problem)
    return frozenset(found)


def field_name(metadata: TableMetadata, name: str) -> str:
    """Return the partition field of a name, which may be that of its column.

    Raises:
        InvalidInputError: there is none, or several.
    """
    by_name: dict[str, set[str]] = {}
    for spec in metadata.partition_specs:
        schema = metadata.schema_of_spec(spec.spec_id)
        for part in spec.fields:
            by_name.setdefault(part.name, set()).add(part.name)
            if column := schema.find_name(part.source_id):
                by_name.setdefault(column, set()).add(part.name)
    found = by_name.get(name, set())
    if name in found:
        return name
    if len(found) == 1:
        return found.pop()
    known = ", ".join(sorted({each for names in by_name.values() for each in names})) or "none"
    what = "is one of several partition fields' column" if found else "is no partition field"
    raise InvalidInputError(f"{name!r} {what} of table {metadata.location}; its partition fields: {known}")


def text_of(value: object) -> str:
    """Return a value as a text of the kind that it has in a partition's path."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value).lower() if isinstance(value, bool) else str(value)


def texts_of(partition: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the wanted values as texts, None for null."""
    return {str(name): None if value is None else text_of(value) for name, value in partition.items()}


def _path(texts: Mapping[str, str | None]) -> str:
    return "/".join(f"{name}={_NULL if text is None else text[:100]}" for name, text in texts.items())


def _value(value: str | None) -> str:
    return "" if value is None else f" = {value!r}"
