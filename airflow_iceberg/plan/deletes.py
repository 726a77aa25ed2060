"""Which delete files apply to a data file, and which of them a new deletion vector replaces.

Here: an index over the delete files of a snapshot, asked once for each data file: dictionaries and a bisection, so that
100,000 data files cost 100,000 look-ups. Not here: applying deletes to rows (`data.read.deletes`).

================  ====================================================================================================
position deletes  data sequence number <= the delete's; same spec and partition; only the referenced data file, if there
                  is one (`referenced_data_file`, or equal bounds of the column `file_path`)
deletion vector   the same, always for one file; if one applies, position delete files do not
equality deletes  data sequence number < the delete's; same spec and partition, or any file if the delete's spec is
                  unpartitioned
================  ====================================================================================================

A deletion vector, or a position delete file of one data file, whose spec or partition is not that of the data file is
an error: some readers apply it and others do not. A vector that is older than its data file, whose path was added
again, applies to nothing; but a data file has one vector at most, so that a new one replaces it.

Equality deletes are also left out if the statistics show that they have no value in common with the data file, or with
the rows that the scan selects.

Spec: Scan Planning; Delete Formats.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence

from airflow_iceberg.errors import FormatError
from airflow_iceberg.expressions.metrics import ColumnRange, file_range, may_match
from airflow_iceberg.expressions.tree import ALWAYS_TRUE, AlwaysTrue, Column, Expression
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestEntry
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.transforms.transform import IdentityTransform
from airflow_iceberg.format.types import PrimitiveType
from airflow_iceberg.format.values.bytes import canonical_key

FILE_PATH_ID = 2147483546
POSITION_ID = 2147483545


def referenced_file(delete: DataFile) -> str | None:
    """Return the one data file of a position delete file or deletion vector, None if there may be several."""
    if delete.referenced_data_file is not None:
        return delete.referenced_data_file
    lower = (delete.lower_bounds or {}).get(FILE_PATH_ID)
    upper = (delete.upper_bounds or {}).get(FILE_PATH_ID)
    # These bounds are never truncated, so equal bounds are the path of the file.
    return lower.decode("utf-8", "replace") if lower is not None and lower == upper else None


class _BySequence:
    """Delete files in the order of their sequence numbers."""

    def __init__(self) -> None:
        self._entries: list[ManifestEntry] = []
        self._numbers: list[int] | None = None

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, entry: ManifestEntry) -> None:
        self._entries.append(entry)
        self._numbers = None

    def since(self, sequence_number: int) -> Sequence[ManifestEntry]:
        """Return the entries with a sequence number, or a higher one."""
        if self._numbers is None:
            self._entries.sort(key=_sequence)
            self._numbers = [_sequence(entry) for entry in self._entries]
        return self._entries[bisect_left(self._numbers, sequence_number) :]


class DeleteIndex:
    """The delete files of a snapshot, by the data files that they can apply to.

    Args:
        entries: live entries of its delete manifests, with inherited values.
        row_filter: filter of the scan; equality deletes without such rows are left out.
    Raises:
        FormatError: two deletion vectors of one data file, an equality delete without equality ids.
    """

    def __init__(
        self, entries: Iterable[ManifestEntry], *, metadata: TableMetadata, row_filter: Expression = ALWAYS_TRUE
    ) -> None:
        self._columns = _EqualityColumns(metadata)
        self._unpartitioned = {spec.spec_id: spec.is_unpartitioned for spec in metadata.partition_specs}
        self._row_filter = row_filter
        self._vectors: dict[str, ManifestEntry] = {}
        self._by_path: dict[str, _BySequence] = {}
        self._positions: dict[Hashable, _BySequence] = {}
        self._equality: dict[Hashable, _BySequence] = {}
        self._global = _BySequence()
        # The key of a partition is slow to make: it is needed only for specs of deletes in the index.
        self._keyed_specs: set[int] = set()
        for entry in entries:
            self._add(entry)

    def __bool__(self) -> bool:
        return bool(self._vectors or self._by_path or self._positions or self._equality or self._global)

    def _add(self, entry: ManifestEntry) -> None:
        file = entry.data_file
        if file.is_deletion_vector:
            self._add_vector(entry)
        elif file.content is FileContent.POSITION_DELETES:
            path = referenced_file(file)
            place = self._by_path.setdefault(path, _BySequence()) if path else self._of_partition(self._positions, file)
            place.add(entry)
        elif file.content is FileContent.EQUALITY_DELETES:
            if not file.equality_ids:
                raise FormatError("an equality delete file has no equality ids", path=file.file_path)
            if not self._columns.may_select(self._row_filter, file):
                return
            is_global = self._unpartitioned[file.spec_id]
            (self._global if is_global else self._of_partition(self._equality, file)).add(entry)
        else:
            raise FormatError("a data file stands in a delete manifest", path=file.file_path)

    def _add_vector(self, entry: ManifestEntry) -> None:
        path = entry.data_file.referenced_data_file
        if path is None:
            raise FormatError("a deletion vector has no 'referenced_data_file'", path=entry.data_file.file_path)
        if path in self._vectors:
            other = self._vectors[path].data_file.file_path
            raise FormatError(
                f"data file {path} has two deletion vectors, expected one at most: {other} and "
                f"{entry.data_file.file_path}"
            )
        self._vectors[path] = entry

    def _of_partition(self, places: dict[Hashable, _BySequence], file: DataFile) -> _BySequence:
        self._keyed_specs.add(file.spec_id)
        return places.setdefault(partition_key(file), _BySequence())

    def of(self, entry: ManifestEntry) -> tuple[DataFile, ...]:
        """Return the delete files that apply to a data file: positions first, then equality deletes, oldest first.

        Raises:
            FormatError: deletes by position that name the file are of another spec or partition.
        """
        file, sequence_number = entry.data_file, _sequence(entry)
        key = partition_key(file) if file.spec_id in self._keyed_specs else None
        found = [*self._positions_of(file, sequence_number, key)]
        # Strictly newer: an equality delete must not hit the rows of its own commit.
        equality = [*self._global.since(sequence_number + 1)]
        if key in self._equality:
            equality += self._equality[key].since(sequence_number + 1)
            equality.sort(key=_sequence)
        found += [item for item in equality if self._columns.may_overlap(file, item.data_file)]
        return tuple(item.data_file for item in found)

    def outdated_of(self, entry: ManifestEntry) -> tuple[DataFile, ...]:
        """Return the deletion vector of a data file that does not apply to it, being older."""
        vector = self._vectors.get(entry.data_file.file_path)
        return () if vector is None or _sequence(vector) >= _sequence(entry) else (vector.data_file,)

    def _positions_of(self, file: DataFile, sequence_number: int, key: Hashable) -> Sequence[ManifestEntry]:
        vector = self._vectors.get(file.file_path)
        if vector is not None and _sequence(vector) >= sequence_number:
            _check_partition(vector.data_file, file)
            return (vector,)
        found: list[ManifestEntry] = []
        if file.file_path in self._by_path:
            found += self._by_path[file.file_path].since(sequence_number)
            for item in found:
                _check_partition(item.data_file, file)
        if key in self._positions:
            found += self._positions[key].since(sequence_number)
            found.sort(key=_sequence)
        return found


def _sequence(entry: ManifestEntry) -> int:
    return entry.sequence_number or 0


def partition_key(file: DataFile) -> Hashable:
    """Return the key of a file's partition and spec."""
    return file.spec_id, canonical_key(file.partition)


def _check_partition(delete: DataFile, file: DataFile) -> None:
    """Check that deletes which name a data file are of its spec and partition."""
    # Differs from Java: 1.10 applies them. Not by ==, which 0.0 and -0.0 are.
    if delete.spec_id == file.spec_id and (
        delete.partition is file.partition or canonical_key(delete.partition) == canonical_key(file.partition)
    ):
        return
    what = "deletion vector" if delete.is_deletion_vector else "position delete file"
    raise FormatError(
        f"{what} {delete.file_path} is of data file {file.file_path}, and its partition {delete.partition} of spec "
        f"{delete.spec_id} is not that of the data file, {file.partition} of spec {file.spec_id}: some readers apply "
        f"it, and others do not; remove one of the two with the program that has written them"
    )


class _EqualityColumns:
    """The columns of equality deletes, compared by their statistics."""

    def __init__(self, metadata: TableMetadata) -> None:
        # A column may have been dropped since; the newest schema that has it knows its widest type.
        self._schemas = metadata.newest_schemas()
        self._known: dict[int, Column | None] = {}
        self._constants = {
            spec.spec_id: {f.source_id for f in spec.fields if isinstance(f.transform, IdentityTransform)}
            for spec in metadata.partition_specs
        }

    def may_select(self, row_filter: Expression, delete: DataFile) -> bool:
        """Tell whether an equality delete file may hold the key of a row that a filter selects."""
        if isinstance(row_filter, AlwaysTrue):
            return True
        ids = delete.equality_ids or ()

        def ranges(column: Column) -> ColumnRange:
            # Other columns of the file do not limit the rows that it deletes.
            return file_range(delete, column) if column.field_id in ids else ColumnRange()

        return may_match(row_filter, ranges)

    def may_overlap(self, file: DataFile, delete: DataFile) -> bool:
        """Tell whether a data file and an equality delete file may have a key in common."""
        if not (file.value_counts or file.lower_bounds) or not (delete.value_counts or delete.lower_bounds):
            return True
        # The values of an identity partition are read from the partition, whatever the statistics of the file say.
        constants = self._constants.get(file.spec_id, ())
        columns = [self._column(field_id) for field_id in delete.equality_ids or () if field_id not in constants]
        return all(
            column is None or _have_common_values(file_range(file, column), file_range(delete, column))
            for column in columns
        )

    def _column(self, field_id: int) -> Column | None:
        if field_id not in self._known:
            self._known[field_id] = self._find(field_id)
        return self._known[field_id]

    def _find(self, field_id: int) -> Column | None:
        for schema in self._schemas:
            field = schema.fields_by_id.get(field_id)
            if field is not None and isinstance(field.type, PrimitiveType):
                name = schema.find_name(field_id) or ""
                path = (name,) if field in schema.fields else (name, name)
                return Column(name, field_id, field.type, path)
        return None


def _have_common_values(left: ColumnRange, right: ColumnRange) -> bool:
    if (left.may_be_null and right.may_be_null) or (left.may_be_nan and right.may_be_nan):
        return True
    if not (left.may_be_value and right.may_be_value):
        return False
    return not (_is_above(left.lower, right.upper) or _is_above(right.lower, left.upper))


def _is_above(lower: object, upper: object) -> bool:
    return lower is not None and upper is not None and bool(lower > upper)  # type: ignore[operator]
