"""Changes of a small table, planned now and committed later, with what each means for the rows.

    change = plan(catalog, MergeOnReadDelete(ids={2}))   # reads the table, writes the delete file
    other(...)                                           # somebody else commits
    change.commit()                                      # rebased or refused

The table has the columns `part` (a partition each) and `id`. A change is a value; `after` is its meaning: what the rows
are when it runs alone. Delete files are written here, as jobs do it.
"""

from __future__ import annotations

import io as bytes_io
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.catalogs.base import Catalog, TableState
from airflow_iceberg.commit.actions.append import AppendFiles
from airflow_iceberg.commit.actions.cherry_pick import CherryPick
from airflow_iceberg.commit.actions.expire_snapshots import ExpireSnapshots
from airflow_iceberg.commit.actions.overwrite import OverwriteFiles, ReplacePartitions
from airflow_iceberg.commit.actions.rewrite_files import RewriteFiles
from airflow_iceberg.commit.actions.rewrite_manifests import RewriteManifests
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.commit.compose import with_schema
from airflow_iceberg.commit.earlier_epochs import EarlierEpochs
from airflow_iceberg.commit.engine import Action, Clock, commit
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.commit.settings import now_ms, settings_for
from airflow_iceberg.data.cast.new_columns import with_new_columns
from airflow_iceberg.data.write.rows import write_rows
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent, ManifestEntry
from airflow_iceberg.format.puffin import DELETION_VECTOR, Blob, write_puffin
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.table import Table

NAME = "db.t"
Rows = Counter[tuple[str | None, int]]
HURRY = Clock(sleep=lambda seconds: None)
_unique = itertools.count(1)


def make_table(catalog: Catalog, version: int = 2, **properties: str) -> Table:
    return Table.create(
        catalog,
        NAME,
        schema={"part": "string", "id": "long"},
        partition_by=["part"],
        properties={"format-version": str(version), **properties},
    )


def rows_of(catalog: Catalog, ref: str | None = None) -> Rows:
    return rows_in(Table.load(catalog, NAME), ref)


def rows_in(table: Table, ref: str | None = None) -> Rows:
    # Without the threads of `to_arrow`, which take longer than such few rows.
    found = table.scan(ref=ref).to_arrow_batch_reader().read_all()
    return Counter(zip(found["part"].to_pylist(), found["id"].to_pylist(), strict=True))


def live_entries(table: Table, ref: str = "main") -> list[ManifestEntry]:
    """Return the live files of a branch, delete files too."""
    head = table.metadata.ref_snapshot(ref)
    manifests = () if head is None else read_manifests(table.io, head)
    return [entry for manifest in manifests for entry in read_entries(table.io, manifest) if entry.is_live]


def arrow(rows: Iterable[tuple[str | None, int]]) -> pa.Table:
    pairs = list(rows)
    return pa.table(
        {"part": pa.array([part for part, _ in pairs], pa.string()), "id": pa.array([i for _, i in pairs], pa.int64())}
    )


def ids(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def in_list(ids: Iterable[int]) -> str:
    return f"id in ({', '.join(map(str, sorted(ids)))})"


@dataclass(kw_only=True)
class Planned:
    """A change that was planned on one state of the table."""

    catalog: Catalog
    state: TableState
    action: Action

    def commit(self, *, clock: Clock | None = None, catalog: Catalog | None = None) -> TableState:
        return commit(catalog or self.catalog, self.state, self.action, clock=clock or HURRY).state

    @property
    def snapshot_id(self) -> int | None:
        settings = getattr(self.action, "settings", None)
        return None if settings is None else settings.snapshot_id


def plan(catalog: Catalog, change: Change, **options: Any) -> Planned:
    """Plan a change on the table as it is now, and write its files.

    Args:
        options: key (OperationKey), try_number, branch.
    """
    table = Table.load(catalog, NAME)
    state = catalog.load(NAME)
    return Planned(catalog=catalog, state=state, action=change.action(_Work(table=table, **options)))


@dataclass(kw_only=True)
class _Work:
    """What plans have in common."""

    table: Table
    key: OperationKey | None = None
    try_number: int = 1
    branch: str = "main"
    isolation: Any = "serializable"

    def __post_init__(self) -> None:
        metadata = self.table.metadata
        self.settings = settings_for(metadata, branch=self.branch, operation_key=self.key, try_number=self.try_number)
        head = metadata.ref_snapshot(self.branch)
        self.start = None if head is None else head.snapshot_id

    def make(self, kind: type[Any], **options: Any) -> Any:
        """Return an action of a kind that starts at the state which the plan was made on."""
        return kind(self.table.io, self.settings, **self.common, **options)

    @property
    def common(self) -> dict[str, Any]:
        return {"written_schema": self.table.schema(), "starting_snapshot_id": self.start}

    @property
    def earlier(self) -> Any:
        key = self.settings.operation_key
        if key is None:
            return None
        return EarlierEpochs(self.table.io, key, self.settings.branch, try_number=self.try_number, on_rerun="replace")

    def bound(self, text: str) -> Expression:
        return parse_filter(text, self.table.schema())

    def write(self, rows: Iterable[tuple[str | None, int]], *, carried: bool = False) -> tuple[DataFile, ...]:
        pairs, prefix = list(rows), f"{'carried' if carried else 'manual'}-{next(_unique):012x}"
        if self.key is not None:
            name = self.key.carried_prefix if carried else self.key.file_prefix
            prefix = name(self.try_number, f"{next(_unique):012x}")
        return write_rows(self.table.io, self.table.metadata, arrow(pairs), file_prefix=prefix) if pairs else ()

    def write_ids(self, change: Any) -> tuple[DataFile, ...]:
        return self.write((change.part, i) for i in sorted(change.ids))

    def files(self, row_filter: str | None = None) -> list[Any]:
        return self.table.scan(row_filter, snapshot_id=self.start).plan_files() if self.start is not None else []

    def positions(self, row_filter: str | None) -> dict[str, list[int]]:
        """Return the positions of the live rows that a predicate selects, by file."""
        if self.start is None:
            return {}
        columns = ("part", "id", "_file", "_pos")
        found = self.table.scan(row_filter, selected_fields=columns, snapshot_id=self.start).to_arrow()
        result: dict[str, list[int]] = {}
        for path, position in zip(found["_file"].to_pylist(), found["_pos"].to_pylist(), strict=True):
            result.setdefault(path, []).append(position)
        return result

    def live_rows(self, paths: Iterable[str]) -> dict[str, list[tuple[str | None, int]]]:
        wanted = set(paths)
        if not wanted:
            return {}
        found = self.table.scan(selected_fields=("part", "id", "_file"), snapshot_id=self.start).to_arrow()
        result: dict[str, list[tuple[str | None, int]]] = {path: [] for path in wanted}
        for part, number, path in zip(*(found[name].to_pylist() for name in ("part", "id", "_file")), strict=True):
            if path in wanted:
                result[path].append((part, number))
        return result


class Change:
    """What a task does to the table."""

    def action(self, work: _Work) -> Action:
        raise NotImplementedError

    def after(self, rows: Rows) -> Rows:
        return rows


def _of(change: Any) -> Rows:
    return Counter((change.part, i) for i in change.ids)


def _without(rows: Rows, selected: Callable[[tuple[str | None, int]], bool]) -> Rows:
    return Counter({row: count for row, count in rows.items() if not selected(row)})


@dataclass(frozen=True)
class Append(Change):
    part: str | None = "a"
    ids: frozenset[int] = frozenset({1, 2, 3})

    def action(self, work):
        files, schema = work.write_ids(self), work.table.schema()
        return AppendFiles(work.table.io, files, work.settings, written_schema=schema, earlier=work.earlier)

    def after(self, rows):
        return rows + _of(self)


@dataclass(frozen=True)
class AppendWithColumn(Append):
    """An append that brings the table a column, of which its rows have no value."""

    def action(self, work):
        metadata = work.table.metadata
        written = with_new_columns(
            metadata.schema(),
            [pa.schema([("note", pa.string())])],
            last_column_id=metadata.last_column_id,
            specs=metadata.partition_specs,
            format_version=metadata.format_version,
        )
        return with_schema(super().action(work), written)


@dataclass(frozen=True)
class Overwrite(Change):
    part: str = "a"
    ids: frozenset[int] = frozenset({7})

    def action(self, work):
        options = {"isolation": work.isolation, "earlier": work.earlier}
        row_filter = work.bound(f"part = '{self.part}'")
        return work.make(OverwriteFiles, added=work.write_ids(self), row_filter=row_filter, **options)

    def after(self, rows):
        return _without(rows, lambda row: row[0] == self.part) + _of(self)


@dataclass(frozen=True)
class DynamicOverwrite(Change):
    part: str | None = "a"
    ids: frozenset[int] = frozenset({8})

    def action(self, work):
        options = {"isolation": work.isolation, "earlier": work.earlier}
        return work.make(ReplacePartitions, files=work.write_ids(self), **options)

    def after(self, rows):
        return _without(rows, lambda row: row[0] == self.part) + _of(self) if self.ids else rows


@dataclass(frozen=True)
class DeleteWhere(Change):
    """A delete of whole files by any predicate; `after` is not told."""

    row_filter: str

    def action(self, work):
        return work.make(OverwriteFiles, row_filter=work.bound(self.row_filter), isolation=None)


@dataclass(frozen=True)
class DeletePartition(Change):
    part: str = "a"

    def action(self, work):
        return DeleteWhere(f"part = '{self.part}'").action(work)

    def after(self, rows):
        return _without(rows, lambda row: row[0] == self.part)


@dataclass(frozen=True)
class CopyOnWriteDelete(Change):
    ids: frozenset[int] = frozenset({2})

    def action(self, work):
        text = in_list(self.ids)
        hit = work.positions(text)
        files = [task.file for task in work.files(text) if task.file.file_path in hit]
        rest = [row for rows in work.live_rows(hit).values() for row in rows if row[1] not in self.ids]
        options = {"conflict_filter": work.bound(text), "isolation": work.isolation}
        return work.make(OverwriteFiles, added=work.write(rest, carried=True), removed=files, **options)

    def after(self, rows):
        return _without(rows, lambda row: row[1] in self.ids)


@dataclass(frozen=True)
class MergeOnReadDelete(Change):
    ids: frozenset[int] = frozenset({2})
    command: str = "delete"

    def action(self, work):
        text = in_list(self.ids)
        hit = work.positions(text)
        tasks = [task for task in work.files(text) if task.file.file_path in hit]
        deletes, replaced = [], []
        alive = work.positions(None) if work.table.metadata.format_version >= 3 and tasks else {}
        for task in tasks:
            path, gone = task.file.file_path, hit[task.file.file_path]
            if work.table.metadata.format_version >= 3:
                # A vector takes up all that is deleted already, by whatever.
                gone = set(range(task.file.record_count)) - (set(alive[path]) - set(gone))
                deletes.append(write_vector(work.table.io, task.file, gone))
                replaced += [file for file in task.delete_files if file.content is FileContent.POSITION_DELETES]
            else:
                deletes.append(write_position_deletes(work.table.io, task.file, gone))
        return work.make(
            RowDelta,
            added_deletes=deletes,
            removed_deletes=replaced,
            referenced=list(hit),
            conflict_filter=work.bound(text),
            isolation=work.isolation,
            command=self.command,
        )

    def after(self, rows):
        return _without(rows, lambda row: row[1] in self.ids)


@dataclass(frozen=True)
class EqualityDelete(Change):
    """A delete by key that reads nothing, as streaming writers make it."""

    part: str = "a"
    ids: frozenset[int] = frozenset({2})

    def action(self, work):
        deletes = [write_equality_deletes(work.table, self.part, self.ids)]
        nothing = work.bound("id is null and id is not null")
        return work.make(RowDelta, added_deletes=deletes, conflict_filter=nothing, isolation=work.isolation)

    def after(self, rows):
        return _without(rows, lambda row: row[0] == self.part and row[1] in self.ids)


@dataclass(frozen=True)
class Compact(Change):
    part: str | None = None
    keep_sequence_number: bool = True

    def action(self, work):
        files = [task.file for task in work.files(None if self.part is None else f"part = '{self.part}'")]
        rows = [row for found in work.live_rows(file.file_path for file in files).values() for row in found]
        if work.start is None:
            return RewriteManifests(work.table.io, work.settings)
        added, keep = work.write(rows, carried=True), self.keep_sequence_number
        return work.make(RewriteFiles, removed=files, added=added, keep_sequence_number=keep)


@dataclass(frozen=True)
class RewriteAllManifests(Change):
    def action(self, work):
        return RewriteManifests(work.table.io, work.settings, only_if_better=False)


@dataclass(frozen=True)
class Pick(Change):
    """Cherry-pick the head of a branch.

    Attributes:
        made: the change that made it.
    """

    branch: str
    made: Change

    def action(self, work):
        return CherryPick(work.table.io, work.settings, source_id=work.table.refs[self.branch].snapshot_id)

    def after(self, rows):
        return self.made.after(rows)


@dataclass(frozen=True)
class Expire(Change):
    """Expire all snapshots that nothing keeps."""

    retain_last: int = 1

    def action(self, work):
        return ExpireSnapshots(
            table_uuid=work.table.metadata.table_uuid,
            new_uuid="00000000-0000-4000-8000-000000000000",
            now_ms=now_ms,
            older_than_ms=now_ms() + 60_000,
            retain_last=self.retain_last,
        )


# --- delete files -----------------------------------------------------------------------------------------------------


def write_vector(io: Any, file: DataFile, positions: Iterable[int]) -> DataFile:
    found, place = sorted(positions), f"{file.file_path}-{next(_unique)}.puffin"
    properties = {"referenced-data-file": file.file_path, "cardinality": str(len(found))}
    blob = Blob(type=DELETION_VECTOR, data=RowPositions.of(found).to_blob(), properties=properties)
    data, (written,) = write_puffin([blob])
    return _deletes(
        io,
        place,
        data,
        len(found),
        (file.spec_id, file.partition),
        file_format="puffin",
        referenced_data_file=file.file_path,
        content_offset=written.offset,
        content_size_in_bytes=written.length,
    )


def write_position_deletes(io: Any, file: DataFile, positions: Iterable[int]) -> DataFile:
    wanted, path = sorted(positions), file.file_path.encode()
    columns = (("file_path", pa.string(), 2147483546), ("pos", pa.int64(), 2147483545))
    schema = pa.schema([pa.field(name, kind, False, {"PARQUET:field_id": str(id_)}) for name, kind, id_ in columns])
    data = parquet_bytes(pa.table([[file.file_path] * len(wanted), wanted], schema))
    place = f"{file.file_path}-{next(_unique)}-deletes.parquet"
    bounds = {"lower_bounds": {2147483546: path}, "upper_bounds": {2147483546: path}}
    return _deletes(io, place, data, len(wanted), (file.spec_id, file.partition), **bounds)


def write_equality_deletes(table: Table, part: str, ids: Iterable[int]) -> DataFile:
    """Write an equality delete file by `id` in one partition."""
    return equality_deletes(table, ids, 0, (part,))


def equality_deletes(table: Table, ids: Iterable[int], spec_id: int, partition: Sequence[Any]) -> DataFile:
    """Write an equality delete file by `id` in a partition of a spec."""
    field_id, wanted = table.schema().names["id"], sorted(ids)
    schema = pa.schema([pa.field("id", pa.int64(), True, {"PARQUET:field_id": str(field_id)})])
    return _deletes(
        table.io,
        f"{table.location}/data/equality-{next(_unique)}.parquet",
        parquet_bytes(pa.table([wanted], schema)),
        len(wanted),
        (spec_id, tuple(partition)),
        content=FileContent.EQUALITY_DELETES,
        equality_ids=(field_id,),
        # As writers of streams give them: a scan leaves out deletes of rows that it does not select.
        value_counts={field_id: len(wanted)},
        null_value_counts={field_id: 0},
        lower_bounds={field_id: wanted[0].to_bytes(8, "little")},
        upper_bounds={field_id: wanted[-1].to_bytes(8, "little")},
    )


def _deletes(io: Any, location: str, data: bytes, count: int, place: tuple[int, Any], **options: Any) -> DataFile:
    """Create a delete file in a partition (its spec's id and values) and describe it."""
    io.create(location, data)
    spec_id, partition = place
    known = {"content": FileContent.POSITION_DELETES, "file_format": "parquet", "record_count": count}
    size = len(data)
    return DataFile(
        **{**known, **options}, file_path=location, file_size_in_bytes=size, spec_id=spec_id, partition=partition
    )


def parquet_bytes(table: pa.Table) -> bytes:
    sink = bytes_io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
