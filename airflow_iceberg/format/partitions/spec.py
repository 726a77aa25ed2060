"""Partition specs: the transforms of columns that make the partition of a file, and partition paths.

Not here: the transforms (`transforms`), legal changes of a spec (`evolution`), pruning (`expressions.projection`), rows
by partition (`grouping`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote_plus

from airflow_iceberg.errors import FormatError, InvalidInputError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.schemas.shorthand import unquote
from airflow_iceberg.format.transforms.terms import parse_term
from airflow_iceberg.format.transforms.transform import (
    BucketTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    parse_transform,
)
from airflow_iceberg.format.types import IcebergType, NestedField, PrimitiveType, StructType, UnknownType, Value

FIRST_PARTITION_FIELD_ID = 1000
RECOVERED_SCHEMA_ID = -1
"""The id of a schema that the table does not have any more, of columns that manifests know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionField:
    """One column of the partition tuple.

    Attributes:
        source_id: field id of the source column; the first one of a multi-argument transform.
        field_id: id of the partition field, from 1000, never reused for another one.
        name: unique name in the spec.
        source_ids: field ids of all sources of a multi-argument transform (version 3), else None.
    """

    source_id: int
    field_id: int
    name: str
    transform: Transform
    source_ids: tuple[int, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the field as metadata JSON has it: ``source-ids`` for several sources, else ``source-id``."""
        result: dict[str, Any] = {"name": self.name, "transform": str(self.transform)}
        result.update(sources_to_dict(self.source_id, self.source_ids))
        result["field-id"] = self.field_id
        return result

    def __str__(self) -> str:
        sources = ", ".join(map(str, self.source_ids or (self.source_id,)))
        return f"{self.field_id}: {self.name}: {self.transform}({sources})"


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A tuple of partition fields, with its number in the table. Spec: Partitioning.

    Raises:
        InvalidInputError: a name is empty, or a name or field id is used twice.
    """

    spec_id: int = 0
    fields: tuple[PartitionField, ...] = ()

    def __post_init__(self) -> None:
        names, ids = [repr(child.name) for child in self.fields], [str(child.field_id) for child in self.fields]
        for label, values in (("name", names), ("field id", ids)):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise InvalidInputError(f"partition {label} {', '.join(twice)} is used twice in spec {self.spec_id}")
        if not all(child.name for child in self.fields):
            raise InvalidInputError(f"a partition name is empty in spec {self.spec_id}")

    @property
    def is_unpartitioned(self) -> bool:
        """Whether all files are in one partition: no fields, or only void fields."""
        return all(isinstance(child.transform, VoidTransform) for child in self.fields)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any], *, path: str | None = None, where: str = "spec") -> "PartitionSpec":
        """Read a spec of metadata JSON; raises FormatError for an illegal one."""
        fields = Fields(value, where, path)
        return cls.from_fields(fields.list("fields"), spec_id=fields.int("spec-id"), path=path, where=f"{where}.fields")

    @classmethod
    def from_fields(
        cls, values: Sequence[Any], *, spec_id: int = 0, path: str | None = None, where: str = "partition-spec"
    ) -> "PartitionSpec":
        """Read a list of fields, as in version 1 and in the header of a manifest.

        If all field ids are missing, they are numbered from 1000.

        Raises:
            FormatError: malformed, or not a legal spec.
        """
        holder = Fields({"fields": values}, "", path)
        parsed = [Fields(item.data, f"{where}[{index}]", path) for index, item in enumerate(holder.items("fields"))]
        with_ids = sum("field-id" in item for item in parsed)
        if with_ids not in (0, len(parsed)):
            missing = len(parsed) - with_ids
            raise FormatError(f"field-id is missing in {missing} of {len(parsed)} fields in '{where}'", path=path)
        try:
            fields = [_field_from_dict(item, FIRST_PARTITION_FIELD_ID + i) for i, item in enumerate(parsed)]
            return cls(spec_id, tuple(fields))
        except InvalidInputError as error:
            raise FormatError(f"{error} in '{where}'", path=path) from error

    def to_dict(self) -> dict[str, Any]:
        """Return the spec as metadata JSON has it."""
        return {"spec-id": self.spec_id, "fields": self.fields_to_list()}

    def fields_to_list(self) -> list[dict[str, Any]]:
        """Return the list of fields, as in version 1 and the header of a manifest."""
        return [child.to_dict() for child in self.fields]

    def same_fields(self, other: "PartitionSpec") -> bool:
        """Tell whether two specs are compatible: same sources, transforms and names, whatever the ids.

        Spec: "Writers must not create a new partition spec if there already exists a compatible partition spec".
        """
        return [_identity(child) for child in self.fields] == [_identity(child) for child in other.fields]

    def partition_type(self, schema: Schema) -> StructType:
        """Return the type of the partition tuple: one optional field per partition field.

        A dropped source column is unknown and an unknown transform gives a string, so that old files can be read.
        """
        types = (child.transform.result_type(_source_type(child, schema)) for child in self.fields)
        pairs = zip(self.fields, types, strict=True)
        return StructType(fields=tuple(NestedField(id=c.field_id, name=c.name, type=type_) for c, type_ in pairs))

    def partition_path(self, values: Sequence[Value], schema: Schema) -> str:
        """Return the path of a partition under the data location: ``ts_day=2017-11-16/id_bucket=3``.

        Paths are for people: values must not be read from them. Names and values are URL-encoded, as in Java.
        """
        return partition_name(self.partition_texts(values, schema))

    def partition_texts(self, values: Sequence[Value], schema: Schema) -> dict[str, str]:
        """Return the values of a partition as people read them, by the names of the fields."""
        pairs = zip(self.fields, values, strict=True)
        return {child.name: _human(child, value, schema) for child, value in pairs}

    def validate(self, schema: Schema) -> None:
        """Check that rows of a schema can be written with this spec.

        Raises:
            InvalidInputError: a transform is unknown, or a source column is missing, of a wrong type, or nested in a
                list or map.
        """
        for child in self.fields:
            if not isinstance(child.transform, VoidTransform):
                _validate_source(child, schema)


def partition_name(texts: Mapping[str, str]) -> str:
    """Return the path of a partition of these values: ``ts_day=2017-11-16/id_bucket=3``."""
    return "/".join(f"{_encode(name)}={_encode(text)}" for name, text in texts.items())


def dropped_sources(spec: PartitionSpec, schemas: Sequence[Schema]) -> dict[int, Schema]:
    """Return the newest schema with each source column that the first schema lacks; without those that none has.

    A void field needs no column: its values are null.

    Args:
        schemas: the table's schemas: the current one, then the others, the newest first.
    """
    ids = _sources(child for child in spec.fields if not isinstance(child.transform, VoidTransform))
    found = {source: next((schema for schema in schemas if source in schema.fields_by_id), None) for source in ids}
    return {source: schema for source, schema in found.items() if schema is not None and schema is not schemas[0]}


def _sources(fields: Iterable[PartitionField]) -> list[int]:
    return [source for child in fields for source in child.source_ids or (child.source_id,)]


def lost_sources(spec: PartitionSpec, schemas: Sequence[Schema]) -> set[int]:
    """Return the source columns that no schema has, although the type of a partition value depends on theirs."""
    return {
        child.source_id
        for child in spec.fields
        if not isinstance(child.transform, VoidTransform)
        and isinstance(child.transform.result_type(UnknownType()), UnknownType)
        and not any(child.source_id in schema.fields_by_id for schema in schemas)
    }


def with_sources(spec: PartitionSpec, schemas: Sequence[Schema]) -> Schema:
    """Return a schema that has the source columns of a spec, each with the type of the newest schema with it.

    It is the newest such schema, if possible also with the columns of void fields. If there is none, since
    the columns never existed together or one was widened after another was dropped, it is the first schema, and after
    its columns the dropped ones: nullable, at the top, under free names. A column that no schema has is left out.

    Args:
        schemas: as of `dropped_sources`.
    """
    every = set(_sources(spec.fields))
    dropped = dropped_sources(spec, schemas)
    if not dropped and every <= schemas[0].fields_by_id.keys():
        return schemas[0]
    needed = {*dropped, *every & schemas[0].fields_by_id.keys()}
    types = {source: dropped.get(source, schemas[0]).fields_by_id[source].type for source in needed}
    for wanted in (every, needed):
        for schema in schemas:
            found = schema.fields_by_id
            is_typed = all(source in found and found[source].type == type_ for source, type_ in types.items())
            if is_typed and wanted <= found.keys() and schema.schema_id != RECOVERED_SCHEMA_ID:
                return schema
    taken, added = set(schemas[0].names), list[NestedField]()
    for source, schema in dropped.items():
        column = schema.fields_by_id[source]
        if isinstance(column.type, PrimitiveType):
            name = column.name if column.name not in taken else f"{column.name}_{source}"
            while name in taken:
                name += "_"
            taken.add(name)
            added.append(NestedField(id=source, name=name, type=column.type, doc=column.doc))
    # At once: each schema is indexed as a whole.
    return replace(schemas[0], fields=(*schemas[0].fields, *added)) if added else schemas[0]


def sources_to_dict(source_id: int, source_ids: tuple[int, ...] | None) -> dict[str, Any]:
    """Return the sources of a partition or sort field: either ``source-ids`` or ``source-id``, never both."""
    return {"source-ids": list(source_ids)} if source_ids else {"source-id": source_id}


def sources_from_dict(fields: Fields) -> tuple[int, tuple[int, ...] | None]:
    """Read the sources of a partition or sort field.

    One id in ``source-ids`` is the same as ``source-id``; if the field has both, the list wins.

    Raises:
        FormatError: neither is there, or the list is empty.
    """
    if "source-ids" not in fields:
        return fields.int("source-id"), None
    ids = fields.int_list("source-ids")
    if not ids:
        fields.fail("source-ids", "unexpected empty list (expected field ids)")
    return ids[0], ids if len(ids) > 1 else None


def transform_from_dict(fields: Fields, source_ids: tuple[int, ...] | None) -> Transform:
    """Read a transform; with several sources it is unknown to this version."""
    text = fields.str("transform")
    return UnknownTransform(text) if source_ids else parse_transform(text)


def _field_from_dict(fields: Fields, default_id: int) -> PartitionField:
    source_id, source_ids = sources_from_dict(fields)
    field_id = fields.opt_int("field-id")
    return PartitionField(
        source_id=source_id,
        source_ids=source_ids,
        field_id=default_id if field_id is None else field_id,
        name=fields.name("name"),
        transform=transform_from_dict(fields, source_ids),
    )


def _identity(child: PartitionField) -> tuple[tuple[int, ...], str, str]:
    return child.source_ids or (child.source_id,), str(child.transform), child.name


def _source_type(child: PartitionField, schema: Schema) -> IcebergType:
    source = schema.fields_by_id.get(child.source_id)
    return source.type if source is not None else UnknownType()


def _human(child: PartitionField, value: Value, schema: Schema) -> str:
    return child.transform.to_human_string(value, _source_type(child, schema))


def _encode(text: str) -> str:
    """URL-encode like Java's URLEncoder: a blank becomes ``+``, and only the marks ``*-._`` are kept."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _validate_source(child: PartitionField, schema: Schema) -> None:
    if isinstance(child.transform, UnknownTransform):
        raise InvalidInputError(f"cannot write with partition '{child.name}': unknown transform '{child.transform}'")
    source = schema.fields_by_id.get(child.source_id)
    if source is None:
        raise InvalidInputError(f"partition '{child.name}': no column with field id {child.source_id}")
    name = schema.find_name(child.source_id)
    if not isinstance(source.type, PrimitiveType) or not child.transform.can_transform(source.type):
        raise InvalidInputError(
            f"partition '{child.name}': transform {child.transform} is not defined for column '{name}' ({source.type})"
        )
    around = next((parent for parent in schema.ancestors(source.id) if not isinstance(parent.type, StructType)), None)
    if around is not None:
        raise InvalidInputError(f"partition '{child.name}': column '{name}' is inside the {around.type}")


# --- specs written by hand --------------------------------------------------------------------------------------------


def spec_from_shorthand(
    items: Sequence[str | PartitionField] | PartitionSpec, schema: Schema, *, spec_id: int = 0
) -> PartitionSpec:
    """Return a partition spec of terms as users write them, with field ids from 1000.

    Args:
        items: ``["day(ts)", "bucket(16, id)", "truncate(4, s)", "country as land"]``. PartitionFields keep their
            ids. Terms without a name get Java's names for a new table: ts_day, id_bucket, s_trunc, ts (identity).
        schema: the columns of the terms.
        spec_id: number of the new spec.
    Raises:
        InvalidInputError: an unknown transform, a transform that is not for the column, a name that a column has, or
            two fields of one column that contain each other (day and hour).
        NotFoundError: no such column; the message lists the columns.
    """
    if isinstance(items, PartitionSpec):
        items = items.fields
    if isinstance(items, str):
        raise InvalidInputError(f"expected a list of partition terms, got the text '{items}'")
    given = [item.field_id for item in items if isinstance(item, PartitionField)]
    next_id = max((FIRST_PARTITION_FIELD_ID - 1, *given)) + 1
    fields: list[PartitionField] = []
    for item in items:
        if isinstance(item, PartitionField):
            fields.append(item)
        else:
            fields.append(_parse_field(item, schema, next_id))
            next_id += 1
    check_names(fields, schema)
    _check_redundant(fields)
    spec = PartitionSpec(spec_id, tuple(fields))
    spec.validate(schema)
    return spec


def _parse_field(text: str, schema: Schema, field_id: int) -> PartitionField:
    if not text.strip():
        raise InvalidInputError(f"expected a partition term like 'day(ts)', got {text!r}")
    term, name = split_name(text, schema)
    transform, source = parse_term(term, schema)
    name = name or default_name(transform, schema.find_name(source.id) or source.name)
    return PartitionField(source_id=source.id, field_id=field_id, name=name, transform=transform)


def split_name(text: str, schema: Schema) -> tuple[str, str | None]:
    """Split ``term as name``, unless it is the name of a column ('x as y')."""
    if text in schema.names:
        return text, None
    place = text.lower().rfind(" as ")
    return (text, None) if place < 0 else (text[:place], unquote(text[place + 4 :]))


def default_name(transform: Transform, column: str) -> str:
    """Return the name that Java's `PartitionSpec.Builder` gives a field of a new table."""
    if isinstance(transform, IdentityTransform):
        return column
    if isinstance(transform, BucketTransform):
        return f"{column}_bucket"
    if isinstance(transform, TruncateTransform):
        return f"{column}_trunc"
    return f"{column}_null" if isinstance(transform, VoidTransform) else f"{column}_{transform}"


def check_names(fields: Sequence[PartitionField], schema: Schema) -> None:
    """Check that no partition field has the name of a column other than its source; raises InvalidInputError."""
    for child in fields:
        column_id = schema.names.get(child.name)
        may_equal = isinstance(child.transform, (IdentityTransform, VoidTransform)) and column_id == child.source_id
        if column_id is not None and not may_equal:
            raise InvalidInputError(f"partition name '{child.name}' is the name of another column; add 'as <name>'")


def _check_redundant(fields: Sequence[PartitionField]) -> None:
    seen: dict[tuple[int, str], PartitionField] = {}
    for child in fields:
        if isinstance(child.transform, (BucketTransform, TruncateTransform, VoidTransform, UnknownTransform)):
            continue
        # year, month, day and hour of one column contain each other.
        kind = "identity" if isinstance(child.transform, IdentityTransform) else "time"
        other = seen.setdefault((child.source_id, kind), child)
        if other is not child:
            raise InvalidInputError(f"partition '{child.name}' is redundant: '{other.name}' is of the same column")
