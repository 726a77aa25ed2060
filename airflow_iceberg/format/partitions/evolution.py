"""Partition evolution: fields added, removed, renamed, replaced.

Here: one method for each change, without effect if the change was made already. Not here: the words of changes
(`plan.alter_table`), specs (`spec`).

Spec: Partition Evolution. From v2 on a removed field disappears, and if it is added again it gets its old id, since
equal ids mean equal values. In v1 ids are not stored and follow the position: a removed field becomes void, and new
fields are appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_iceberg.errors import AlreadyExistsError, IcebergError, InvalidInputError, NotFoundError
from airflow_iceberg.format.partitions.spec import PartitionField, PartitionSpec, split_name
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.transforms.terms import parse_term
from airflow_iceberg.format.transforms.transform import (
    BucketTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)


class PartitionEvolution:
    """A partition spec between two versions of a table.

    Args:
        spec: the spec before the changes.
        history: all specs of the table.
        last_partition_id: highest field id that the table ever assigned.
        format_version: version of the table; changes may raise it.
    """

    def __init__(
        self, spec: PartitionSpec, *, history: Sequence[PartitionSpec], last_partition_id: int, format_version: int
    ) -> None:
        self.fields = list(spec.fields)
        self.last_partition_id = last_partition_id
        self.format_version = format_version
        self._start = spec
        self._history = history

    @property
    def spec(self) -> PartitionSpec:
        """The current spec; the table assigns its number."""
        return PartitionSpec(spec_id=self._start.spec_id, fields=tuple(self.fields))

    def add(self, term: str, schema: Schema, *, name: str | None = None) -> None:
        """Add a field, such as `day(ts)` or `bucket(16, id) as shard`, unless it exists.

        Raises:
            AlreadyExistsError: it exists with another name, or the name is used.
            InvalidInputError, NotFoundError: not a term, or not for the column.
        """
        text, named = split_name(term, schema)
        name = name or named
        transform, source = parse_term(text, schema)
        there = self._of(source.id, transform)
        if there is not None:
            if name not in (None, there.name):
                raise AlreadyExistsError(
                    f"partition field {term!r} already exists as '{there.name}'; rename it instead of adding it"
                )
            return
        if self._restore(source.id, transform, name):
            return
        new = self._recycled(source.id, transform, name) or PartitionField(
            source_id=source.id,
            field_id=self._next_id(),
            name=name or _default_name(transform, schema.find_name(source.id) or source.name),
            transform=transform,
        )
        self._free_name(new.name)
        self.fields.append(new)
        PartitionSpec(0, (new,)).validate(schema)

    def drop(self, text: str, schema: Schema) -> None:
        """Remove a field by its name or its term; raises NotFoundError if the table never had it."""
        found = self._find(text, schema)
        if found is not None:
            self._drop(found)

    def _drop(self, found: PartitionField) -> None:
        place = self.fields.index(found)
        if self.format_version >= 2:
            del self.fields[place]
        else:
            self.fields[place] = replace(found, transform=VoidTransform(), source_ids=None)

    def rename(self, name: str, to: str) -> None:
        """Rename a field, unless it has this name already.

        Raises:
            NotFoundError: the table has no such field.
            AlreadyExistsError: another field has the new name.
        """
        found = next((field for field in self.fields if field.name == name), None)
        target = next((field for field in self.fields if field.name == to), None)
        if found is None:
            ids = {field.field_id for spec in self._history for field in spec.fields if field.name == name}
            if target is not None and target.field_id in ids:
                return
            raise self._not_found(name)
        if found is target:
            return
        self._free_name(to)
        self.fields[self.fields.index(found)] = replace(found, name=to)

    def set(self, terms: Iterable[str], schema: Schema) -> None:
        """Partition by exactly these terms, in this order: existing fields are kept, others are removed."""
        wanted = list(terms)
        parsed = [parse_term(split_name(term, schema)[0], schema) for term in wanted]
        keep = {(source.id, transform) for transform, source in parsed}
        for field in list(self.fields):
            if not self._is_gone(field) and (field.source_id, field.transform) not in keep:
                self._drop(field)
        for term in wanted:
            self.add(term, schema)
        if self.format_version >= 2:
            order = [(source.id, transform) for transform, source in parsed]
            self.fields.sort(key=lambda field: order.index((field.source_id, field.transform)))

    # --- finding ---

    def _of(self, source_id: int, transform: Transform) -> PartitionField | None:
        return next(
            (f for f in self.fields if (f.source_id, f.transform, f.source_ids) == (source_id, transform, None)), None
        )

    def _find(self, text: str, schema: Schema) -> PartitionField | None:
        """Return the field with a name or a term, None if it was removed already."""
        named = {field.name: field for field in self.fields}
        # A name may begin or end with blanks, like a column; other blanks around it are ignored.
        text = text if text in named else text.strip()
        found = named.get(text)
        if found is not None:
            return None if self._is_gone(found) else found
        earlier = {field.field_id for spec in self._history for field in spec.fields if field.name == text}
        if earlier:
            renamed = next((field for field in self.fields if field.field_id in earlier), None)
            if renamed is not None and not self._is_gone(renamed):
                raise NotFoundError(f"no partition field {text!r}: it is called '{renamed.name}' now")
            return None
        try:
            transform, source = parse_term(text, schema)
        except IcebergError as error:
            raise self._not_found(text) from error
        there = self._of(source.id, transform)
        known = {(field.source_id, field.transform) for spec in self._history for field in spec.fields}
        if there is None and (source.id, transform) not in known:
            raise self._not_found(text)
        return there

    def _is_gone(self, field: PartitionField) -> bool:
        return self.format_version == 1 and isinstance(field.transform, VoidTransform)

    def _not_found(self, text: str) -> NotFoundError:
        known = ", ".join(f"{field.name} ({field.transform})" for field in self.fields) or "none"
        return NotFoundError(f"no partition field {text!r} (partition fields: {known})")

    # --- making ---

    def _restore(self, source_id: int, transform: Transform, name: str | None) -> bool:
        """Undo a removal by the same list of changes: the field is restored at its old position."""
        for place, old in enumerate(self._start.fields):
            if (old.source_id, old.transform) != (source_id, transform) or name not in (None, old.name):
                continue
            at = next((i for i, field in enumerate(self.fields) if field.field_id == old.field_id), None)
            if at is not None:
                self.fields[at] = old
            else:
                self._free_name(old.name)
                self.fields.insert(min(place, len(self.fields)), old)
            return True
        return False

    def _recycled(self, source_id: int, transform: Transform, name: str | None) -> PartitionField | None:
        """Return the equal field of an earlier spec.

        Spec: "Field IDs must be reused if an existing partition spec contains an equivalent field".
        """
        if self.format_version == 1:
            return None
        taken = {field.field_id for field in self.fields}
        for spec in reversed(self._history):
            for field in spec.fields:
                same = (field.source_id, field.transform, field.source_ids) == (source_id, transform, None)
                if same and field.field_id not in taken:
                    return field if name is None else replace(field, name=name)
        return None

    def _next_id(self) -> int:
        self.last_partition_id += 1
        return self.last_partition_id

    def _free_name(self, name: str) -> None:
        """Rename a void field that has the name, as in Iceberg Java; AlreadyExistsError if another field has it."""
        for place, field in enumerate(self.fields):
            if field.name != name:
                continue
            if not isinstance(field.transform, VoidTransform):
                raise AlreadyExistsError(f"there is a partition field '{name}' already ({field.transform})")
            self.fields[place] = replace(field, name=f"{name}_{field.field_id}")


def check_partitioning(spec: PartitionSpec, before: Schema, after: Schema) -> None:
    """Check that a spec fits a schema that changed.

    Raises:
        InvalidInputError: a source column was dropped.
    """
    for field in spec.fields:
        for source in field.source_ids or (field.source_id,):
            if source not in after.fields_by_id and not isinstance(field.transform, VoidTransform):
                raise InvalidInputError(
                    f"column '{before.find_name(source)}' cannot be dropped: partition field '{field.name}' is made "
                    f"of it; drop the partition field first"
                )


def check_column_names(specs: Iterable[PartitionSpec], before: Schema, after: Schema) -> None:
    """Check that no column gets the name of a partition field that is made of another one.

    Earlier specs count as well: Iceberg Java, at least up to 1.10, loads no table that has both.

    Args:
        specs: all specs of the table, also the one that files are written with.
        before: the schema before the change; names that it has already are left alone.
    Raises:
        InvalidInputError: naming the partition field, and the ways out.
    """
    for spec in specs:
        for field in spec.fields:
            column = after.names.get(field.name)
            if column in (None, field.source_id, before.names.get(field.name)):
                continue
            raise InvalidInputError(
                f"partition name '{field.name}' ({field.transform}, spec {spec.spec_id}) would be the name of another "
                f"column, and Iceberg Java could not load the table: give the column another name; or rename the "
                f"partition field if the newest spec has it, compact with rewrite-all, and once there is a later "
                f"snapshot expire all others with clean_expired_metadata=True, which removes the spec"
            )


def _default_name(transform: Transform, column: str) -> str:
    """Return the name that Iceberg Java gives a field added to a table, which differs from that of a new table."""
    match transform:
        case IdentityTransform():
            return column
        case BucketTransform(num_buckets):
            return f"{column}_bucket_{num_buckets}"
        case TruncateTransform(width):
            return f"{column}_trunc_{width}"
        case VoidTransform():
            return f"{column}_null"
    return f"{column}_{transform}"
