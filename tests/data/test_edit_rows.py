"""Rows of data files that are deleted or get new values by position, against a model of the rows."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data import edit_rows as editing
from airflow_iceberg.data import row_changes
from airflow_iceberg.data.edit_rows import FileEdits
from airflow_iceberg.data.read import parquet as parquet_reading
from airflow_iceberg.data.read.file import read_file
from airflow_iceberg.data.write.parquet_file import FileLayout
from airflow_iceberg.errors import InvalidInputError, NotFoundError, StorageError
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.partitions.grouping import group_by_partition
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.jobs.protocol.table_input import FileUnit
from airflow_iceberg.table import Table
from tests.operations.test_compact_deletes import add_deletes
from tests.operations.test_reserved_names import of_another_writer
from tests.support.builders import add_file, data_locations, folder_of, new_table
from tests.support.case_types import Kind, arrow_rows, kinds_of, texts
from tests.support.changes import equality_deletes
from tests.support.data_files import write_data_file
from tests.support.edits import LINEAGE, data_files, edit, edits_of, tasks_of, write_edits, write_units
from tests.support.memory import MemoryCatalog
from tests.support.sampling import SEED, sampled

COW, MOR = "copy-on-write", "merge-on-read"
BOTH = pytest.mark.parametrize("mode", [COW, MOR])
KINDS = {"id": Kind("long", "bigint", ()), "name": Kind("string", "string", ("a", "b"))}
NESTED = {
    "s": Kind("struct<a: int, b: string>", None, ({"a": 1, "b": "x"}, {"a": None, "b": "y" * 30})),
    "l": Kind("list<string>", None, ([], ["a", None], ["b"] * 5)),
}


def texts_of(table: Table, columns: Mapping[str, Kind], *more: str) -> list[dict[str, Any]]:
    """Return the rows in the order of files and positions, with `_file` and `_pos`."""
    found = table.scan(selected_fields=(*columns, "_file", "_pos", *more)).to_arrow()
    return texts(columns, found.sort_by([("_file", "ascending"), ("_pos", "ascending")]))


def place(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["_file"], row["_pos"]


def new_values(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Kind]) -> list[dict[str, Any]]:
    return texts(columns, arrow_rows(columns, rows))


def positions(*numbers: int) -> RowPositions:
    return RowPositions.of(numbers)


def assigned(places: Sequence[int], **columns: Any) -> pa.Table:
    return pa.table({"_pos": pa.array(places, pa.int64()), **columns})


def make(tmp_path: Path, version: int = 2, rows: int = 10, **options: Any) -> tuple[Table, str]:
    """A table with one file of the ids 0 to 9, and the path of the file."""
    properties = {"format-version": str(version), **options.pop("properties", {})}
    schema = {"id": "long not null", "name": "string", "d": "double"}
    table = new_table(tmp_path, schema=options.pop("schema", schema), properties=properties, **options)
    names = [["a", "b", None][number % 3] for number in range(rows)]
    values = pa.table({"id": range(rows), "name": names, "d": [number / 2 for number in range(rows)]})
    table.append(values.select(table.schema().names))
    return table, next(iter(tasks_of(table)), "")


def pairs(table: Table, *columns: str) -> list[tuple[Any, ...]]:
    """Return rows in the order of `id`."""
    found = table.refresh().scan().to_arrow().sort_by("id")
    return list(zip(*(found[name].to_pylist() for name in ("id", *columns)), strict=True))


# -- against brute force -----------------------------------------------------------------------------------------------


class Case:
    """A table of random columns, partitions, deletes and evolution, and random edits of its rows."""

    def __init__(self, number: int) -> None:
        dice = self.dice = random.Random(f"edit {SEED} {number}")
        self.version = (1, 2, 3)[number % 3]
        self.mode = COW if self.version == 1 else (COW, MOR)[number // 3 % 2]
        k, q = dice.choices(kinds_of(self.version, for_spark=False), k=2)
        self.columns = {**KINDS, "k": k, "q": q, **NESTED}
        self.next_id = 0
        term = dice.choice(("", dice.choice(k.transforms)))
        self.partition_by = [_term(term, "k")] if term else []
        self.table = Table.create(
            MemoryCatalog(),
            "db.t",
            schema={name: kind.type for name, kind in self.columns.items()},
            partition_by=self.partition_by,
            properties={"format-version": str(self.version), "write.parquet.dict-size-bytes": "200"},
        )
        self.append()
        self.append()
        self.delete_some()
        self.evolve()
        self.append()

    def random_rows(self, columns: Mapping[str, Kind], count: int) -> list[dict[str, Any]]:
        dice = self.dice
        pools = {name: [*dice.sample(kind.values, min(len(kind.values), 3)), None] for name, kind in columns.items()}
        pools["id"] = list(range(1000, 2000))
        return [{name: dice.choice(pools[name]) for name in columns} for _ in range(count)]

    def append(self) -> None:
        rows = self.random_rows(self.columns, self.dice.randint(1, 25))
        for row in rows:
            row["id"] = self.next_id
            self.next_id += 1
        self.table.append(arrow_rows(self.columns, rows))

    def delete_some(self) -> None:
        if self.version == 1:
            return
        kind = self.dice.choice(("", "by position", "by key", "both"))
        if kind in ("by position", "both"):
            self.table.delete("id in (0, 3, 4, 9, 30)", mode=MOR)
        if kind in ("by key", "both"):
            places = {(task.file.spec_id, tuple(task.file.partition)) for task in self.table.scan().plan_files()}
            gone = [equality_deletes(self.table, [1, 5, 20], *found) for found in sorted(places, key=repr)]
            add_deletes(self.table, *gone)

    def evolve(self) -> None:
        dice, changes = self.dice, []
        if dice.random() < 0.5:
            changes.append({"add_column": {"name": "late", "type": "string"}})
            self.columns["late"] = Kind("string", "string", ("x", "y"))
        if dice.random() < 0.5:
            changes.append({"rename_column": {"from": "q", "to": "r"}})
            self.columns["r"] = self.columns.pop("q")
        name = "r" if "r" in self.columns else "q"
        if self.columns[name].type in ("int", "float") and dice.random() < 0.8:
            wider = {"int": "long", "float": "double"}[self.columns[name].type]
            changes.append({"change_type": {"name": name, "type": wider}})
            self.columns[name] = next(kind for kind in kinds_of(self.version, for_spark=False) if kind.type == wider)
        if dice.random() < 0.5:
            changes.append({"add_partition_field": "bucket(3, id)"})
            if self.partition_by and self.version > 1 and dice.random() < 0.5:
                changes.append({"drop_partition_field": self.partition_by[0]})
        if changes:
            self.table.alter(changes)
        self.table.refresh()

    def edit(self) -> None:
        """Edit random rows, and check the rows, their order, the lineage and the counts against the model."""
        dice, lineage = self.dice, LINEAGE if self.version == 3 else ()
        before = texts_of(self.table, self.columns, *lineage)
        dice.shuffle(before)
        share = dice.choice((0.1, 0.5, 1.0))
        touched = before[: max(1, int(len(before) * share))]
        cuts = sorted(dice.choices(range(len(touched) + 1), k=2))
        deleted, groups = touched[: cuts[0]], (touched[cuts[0] : cuts[1]], touched[cuts[1] :])
        model = {place(row): dict(row) for row in before}
        for row in deleted:
            del model[place(row)]
        updates = []
        for group in filter(None, groups):
            names = dice.sample(list(self.columns), dice.choice((1, 2, len(self.columns))))
            columns = {name: self.columns[name] for name in names}
            values = self.random_rows(columns, len(group))
            updates.append(([place(row) for row in group], arrow_rows(columns, values)))
            for row, new in zip(group, new_values(values, columns), strict=True):
                model[place(row)] |= {**new, "_updated": True}
        changes = edit(self.table, edits_of([place(row) for row in deleted], updates), mode=self.mode)
        self.check(model, changes, lineage)
        assert sum(change.deleted_count for change in changes.changes) == len(deleted)
        assert sum(change.updated_count for change in changes.changes) == sum(map(len, groups))

    def check(self, model: Mapping[Any, dict[str, Any]], changes: Any, lineage: Sequence[str]) -> None:
        snapshot = self.table.refresh().current_snapshot()
        expected = []
        for _, row in sorted(model.items()):
            if row.pop("_updated", False) and lineage:
                row["_last_updated_sequence_number"] = snapshot.sequence_number
            expected.append({name: row[name] for name in (*self.columns, *lineage)})
        found = texts_of(self.table, self.columns, *lineage)
        plain = [{name: row[name] for name in (*self.columns, *lineage)} for row in found]
        assert sorted(map(repr, plain)) == sorted(map(repr, expected))
        files = data_files(changes)
        assert all(file.spec_id == self.table.metadata.default_spec_id for file in files)
        stored = self.table.scan(selected_fields=(*schema_to_arrow(self.table.schema()).names, "_file")).to_arrow()
        for file in files:
            rows = [row for row in found if row["_file"] == file.file_path]
            assert file.record_count == len(rows)
            for name in self.columns:
                field_id = self.table.schema().names[name]
                if field_id in (file.null_value_counts or {}):
                    assert file.null_value_counts[field_id] == sum(row[name] is None for row in rows), name
            self.check_partition(file, stored)
            if self.mode == COW and lineage:
                row_ids = [row["_row_id"] for row in rows]
                assert row_ids == sorted(row_ids)  # the order of the file before
        if self.mode == COW:
            assert not [file for file in changes.written if file.content is not FileContent.DATA]

    def check_partition(self, file: DataFile, stored: pa.Table) -> None:
        """Check that all rows of a new file are of its partition."""
        schema, spec = self.table.schema(), self.table.metadata.spec()
        rows = stored.filter(pc.equal(stored["_file"], file.file_path)).drop_columns(["_file"])
        ((partition, _),) = group_by_partition(rows, spec, schema)
        assert list(map(canonical_key, partition)) == list(map(canonical_key, file.partition))


def _term(transform: str, column: str) -> str:
    name, _, argument = transform.removesuffix("]").partition("[")
    if name == "identity":
        return column
    return f"{name}({argument}, {column})" if argument else f"{name}({column})"


@pytest.mark.costly
@pytest.mark.sample(6)
@pytest.mark.parametrize("number", range(sampled(200)))
def test_against_brute_force(number):
    case = Case(number)
    for _ in range(3):
        if case.table.scan().count():
            case.edit()


# -- one thing at a time -----------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("version", [2, 3])
class TestOneFile:
    def test_deleted_and_updated_rows(self, tmp_path, version, mode):
        table, path = make(tmp_path, version)
        updates = (assigned([5, 1], name=["five", "one"]), assigned([7], d=[70.0], name=pa.nulls(1, pa.string())))
        changes = edit(table, {path: FileEdits(deleted=positions(0, 9), updates=updates)}, mode=mode)
        expected = [(n, ["a", "b", None][n % 3], n / 2) for n in range(1, 9)]
        expected[0], expected[4], expected[6] = (1, "one", 0.5), (5, "five", 2.5), (7, None, 70.0)
        assert pairs(table, "name", "d") == expected
        (change,) = changes.changes
        assert (change.deleted_count, change.updated_count, change.is_gone) == (2, 3, False)
        assert sorted(file.record_count for file in data_files(changes)) == [8 if mode == COW else 3]

    def test_all_rows_are_deleted(self, tmp_path, version, mode):
        table, path = make(tmp_path, version)
        changes = edit(table, {path: FileEdits(deleted=positions(*range(10)))}, mode=mode)
        assert (changes.changes[0].is_gone, changes.written, pairs(table)) == (True, [], [])

    def test_all_rows_are_updated(self, tmp_path, version, mode):
        table, path = make(tmp_path, version)
        changes = edit(table, {path: FileEdits(updates=(assigned(range(10), d=[0.25] * 10),))}, mode=mode)
        # Merge-on-read: the file has no rows any more, and no deletes are written for it.
        assert changes.changes[0].is_gone == (mode == MOR)
        assert [file.content for file in changes.written] == [FileContent.DATA]
        assert [d for _, d in pairs(table, "d")] == [0.25] * 10

    def test_nothing_is_edited(self, tmp_path, version, mode):
        table, path = make(tmp_path, version)
        updates = (assigned([], d=pa.array([], pa.float64())),)
        changes = write_edits(table, {path: FileEdits(updates=updates)}, mode=mode)
        assert (changes.changes[0].updated_count, changes.written) == (0, [])

    def test_rows_move_to_other_partitions(self, tmp_path, version, mode):
        table, path = make(tmp_path, version, partition_by=["bucket(2, d)", "truncate(1, name)"][1:], rows=1)
        changes = edit(table, {path: FileEdits(updates=(assigned([0], name=["zoo"]),))}, mode=mode)
        assert [file.partition for file in data_files(changes)] == [("z",)]
        assert [task.file.partition for task in table.refresh().scan().plan_files()] == [("z",)]

    def test_files_of_an_older_spec_are_written_in_the_current_one(self, tmp_path, version, mode):
        table, path = make(tmp_path, version)
        table.alter([{"add_partition_field": "name"}])
        changes = edit(table.refresh(), {path: FileEdits(updates=(assigned([0, 1], d=[9.0, 9.0]),))}, mode=mode)
        wanted = {("a",), ("b",), (None,)} if mode == COW else {("a",), ("b",)}
        assert {file.partition for file in data_files(changes)} == wanted
        assert pairs(table, "d")[:3] == [(0, 9.0), (1, 9.0), (2, 1.0)]

    def test_earlier_deletes_stay(self, tmp_path, version, mode):
        table, path = make(tmp_path, version)
        table.delete("id in (0, 4)", mode=MOR)
        edit(table, {path: FileEdits(deleted=positions(5), updates=(assigned([6], d=[6.5]),))}, mode=mode)
        assert [n for (n,) in pairs(table)] == [1, 2, 3, 6, 7, 8, 9]
        assert dict(pairs(table, "d"))[6] == 6.5


class TestOrder:
    def make(self, tmp_path: Path) -> tuple[Table, str]:
        table, _ = make(tmp_path, rows=0, properties={"write.distribution-mode": "none"})
        table.alter([{"set_sort_order": ["d desc"]}])
        table.refresh().append(pa.table({"id": range(10), "name": ["x"] * 10, "d": map(float, range(10))}))
        ((path, task),) = tasks_of(table).items()
        assert task.file.sort_order_id == table.metadata.default_sort_order_id != 0
        return table, path

    def edited(self, table: Table, path: str, **columns: Any) -> Any:
        edits = FileEdits(deleted=positions(9), updates=(assigned([2, 4], **columns),))
        (file,) = write_edits(table, {path: edits}, mode=COW).written
        return file, pq.read_table(file.file_path.removeprefix("file://"))

    def test_rows_stay_where_they_are(self, tmp_path):
        table, path = self.make(tmp_path)
        file, rows = self.edited(table, path, name=["y", "z"])
        assert rows["d"].to_pylist() == [float(n) for n in range(9, 0, -1)]
        assert rows["name"].to_pylist() == ["x", "x", "y", "x", "z", "x", "x", "x", "x"]
        assert file.sort_order_id == table.metadata.default_sort_order_id

    def test_a_file_is_not_called_sorted_if_a_column_of_its_order_is_assigned(self, tmp_path):
        table, path = self.make(tmp_path)
        file, _ = self.edited(table, path, d=[100.0, 200.0])
        assert not file.sort_order_id

    def test_rows_of_partitions_stay_in_order_when_their_partition_may_change(self, tmp_path):
        table, path = make(tmp_path, rows=200, schema={"id": "long", "name": "string"})
        table.alter([{"set_partitioning": ["name"]}])
        updates = (assigned([7, 100], name=["b", "a"]),)
        changes = write_edits(table.refresh(), {path: FileEdits(updates=updates)}, mode=COW)
        found = [pq.read_table(file.file_path.removeprefix("file://"))["id"].to_pylist() for file in changes.written]
        assert all(ids == sorted(ids) for ids in found)
        assert sorted(number for ids in found for number in ids) == list(range(200))


class TestLineage:
    """Version 3: rows with new values keep their ids, and take the number of the commit."""

    @pytest.mark.costly
    @BOTH
    def test_again_and_again(self, tmp_path, mode):
        table, _ = make(tmp_path, 3)
        ids = {row: number for number, row in enumerate(range(10))}
        last = dict.fromkeys(range(10), 1)
        for turn in range(3):
            rows = texts_of(table, KINDS)
            chosen = [row for row in rows if int(row["id"]) % (turn + 2) == 0]
            values = pa.table({"d": [float(turn)] * len(chosen)})
            edit(table, edits_of([], [([place(row) for row in chosen], values)]), mode=mode)
            table.refresh()
            last |= {int(row["id"]): table.current_snapshot().sequence_number for row in chosen}
        found = table.scan(selected_fields=("id", *LINEAGE)).to_arrow().to_pylist()
        assert {row["id"]: row["_row_id"] for row in found} == ids
        assert {row["id"]: row["_last_updated_sequence_number"] for row in found} == last

    @BOTH
    def test_of_a_table_that_was_upgraded(self, tmp_path, mode):
        table, path = make(tmp_path, 2)
        table.delete("id = 3", mode=MOR)
        table.alter([{"upgrade_format_version": 3}])
        edit(table.refresh(), {path: FileEdits(updates=(assigned([4], d=[44.0]),))}, mode=mode)
        assert dict(pairs(table, "d")) == {n: n / 2 for n in range(10) if n != 3} | {4: 44.0}
        found = table.scan(selected_fields=("id", *LINEAGE)).to_arrow()
        assert len(set(found["_row_id"].to_pylist())) == 9
        assert None not in found["_row_id"].to_pylist()


class TestMergeOnRead:
    def test_a_file_is_not_read_if_every_column_is_assigned(self, tmp_path):
        table, path = make(tmp_path)
        everything = assigned([3], id=[30], name=["n"], d=[0.0])
        table.io.delete([path])
        changes = write_edits(table, {path: FileEdits(deleted=positions(1), updates=(everything,))}, mode=MOR)
        assert [file.record_count for file in changes.written] == [2, 1]

    def test_row_groups_without_selected_rows_are_not_read(self, tmp_path, monkeypatch):
        table, path = make(tmp_path, rows=0)
        rows = [{"id": number, "name": "x", "d": 0.0} for number in range(1000)]
        file = folder_of(table) / "theirs.parquet"
        write_data_file(file, "parquet", table.schema(), rows, row_group_size=100)
        add_file(table, file, record_count=1000)
        read: list[int] = []
        original = parquet_reading._RowGroup.read

        def recorded(group, *arguments):
            read.append(group._index)
            return original(group, *arguments)

        monkeypatch.setattr(parquet_reading._RowGroup, "read", recorded)
        (path,) = tasks_of(table)
        updates = (assigned([250, 299, 800], d=[1.0, 2.0, 3.0]),)
        changes = write_edits(table, {path: FileEdits(deleted=positions(5), updates=updates)}, mode=MOR)
        assert read == [2, 8]
        (written,) = data_files(changes)
        assert pq.read_table(written.file_path.removeprefix("file://"))["id"].to_pylist() == [250, 299, 800]

    def test_rows_of_several_files_go_into_one(self, tmp_path):
        table, _ = make(tmp_path)
        table.append(pa.table({"id": range(10, 20), "name": ["x"] * 10, "d": [0.0] * 10}))
        edits = {path: FileEdits(updates=(assigned([0], d=[1.5]),)) for path in tasks_of(table)}
        changes = edit(table, edits, mode=MOR)
        assert [file.record_count for file in data_files(changes)] == [2]
        assert [n for n, d in pairs(table, "d") if d == 1.5 and n in (0, 10)] == [0, 10]


@BOTH
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_files_of_other_formats_in_several_batches(tmp_path, mode, file_format, monkeypatch):
    monkeypatch.setitem(read_file.__kwdefaults__, "batch_size", 7)
    table = new_table(tmp_path, schema={"id": "long", "name": "string", "d": "double"})
    rows = [{"id": n, "name": None if n % 4 == 0 else f"n{n % 5}", "d": n / 2} for n in range(100)]
    file = tmp_path / f"theirs.{file_format}"
    write_data_file(file, file_format, table.schema(), rows)
    add_file(table, file, record_count=100, file_format=file_format)
    (path,) = tasks_of(table)
    chosen = list(range(3, 60, 9))
    updates = (assigned(chosen, name=[f"new{n}" for n in chosen]), assigned([99, 0, 50], d=[-1.0, -2.0, -3.0]))
    edit(table, {path: FileEdits(deleted=positions(*range(60, 80)), updates=updates)}, mode=mode)
    for number in chosen:
        rows[number]["name"] = f"new{number}"
    rows[99]["d"], rows[0]["d"], rows[50]["d"] = -1.0, -2.0, -3.0
    assert pairs(table, "name", "d") == [tuple(row.values()) for row in rows if not 60 <= row["id"] < 80]


@BOTH
@pytest.mark.parametrize("most_bytes", [1, 2000, 1 << 30])
@pytest.mark.parametrize("distinct", [3, 3000])
def test_texts_in_dictionaries(tmp_path, mode, most_bytes, distinct, monkeypatch):
    """New values are few or many, and joined with those of the file in portions."""
    monkeypatch.setattr(editing, "_MOST_BYTES", most_bytes)
    table, path = make(tmp_path, rows=200, properties={"write.parquet.dict-size-bytes": "5000"})
    names = {number: None if number % 7 == 0 else f"new {number % distinct}" for number in range(0, 200, 2)}
    updates = (assigned(list(names), name=list(names.values())),)
    changes = edit(table, {path: FileEdits(deleted=positions(1, 199), updates=updates)}, mode=mode)
    expected = {n: ["a", "b", None][n % 3] for n in range(200) if n not in (1, 199)} | names
    assert dict(pairs(table, "name")) == expected
    (file,) = data_files(changes)
    values = [names[n] for n in names] if mode == MOR else list(expected.values())
    name_id = table.schema().names["name"]
    assert file.null_value_counts[name_id] == values.count(None)
    assert file.upper_bounds[name_id].decode() == max(filter(None, values))
    stored = pq.read_table(file.file_path.removeprefix("file://"), read_dictionary=["name"])["name"]
    assert {text for chunk in stored.chunks for text in chunk.dictionary.to_pylist()} == set(filter(None, values))


@BOTH
def test_variants_and_defaults_and_required_fields_of_structs(tmp_path, mode):
    schema = {"id": "long", "v": "variant", "s": "struct<a: int not null, b: list<string>> not null"}
    table = new_table(tmp_path, schema=schema, properties={"format-version": "3"})
    struct = table.scan().to_arrow().schema.field("s").type
    value = {"metadata": b"\x01\0\0", "value": b"\x0c\x05"}
    other = {"metadata": b"\x01\0\0", "value": b"\x0c\x07"}
    kind = table.scan().to_arrow().schema.field("v").type
    rows = {"id": range(4), "v": pa.array([value, None, value, value], kind)}
    table.append(pa.table({**rows, "s": pa.array([{"a": n, "b": ["x"]} for n in range(4)], struct)}))
    table.alter([{"add_column": {"name": "c", "type": "int", "default": 5}}])
    (path,) = tasks_of(table.refresh())
    updates = (
        assigned([0], v=pa.array([other], kind), c=pa.array([None], pa.int32())),
        assigned([1], s=pa.array([{"a": 10, "b": None}], struct)),
    )
    edit(table, {path: FileEdits(deleted=positions(3), updates=updates)}, mode=mode)
    assert pairs(table, "v", "s", "c") == [
        (0, other, {"a": 0, "b": ["x"]}, None),
        (1, None, {"a": 10, "b": None}, 5),
        (2, value, {"a": 2, "b": ["x"]}, 5),
    ]


@BOTH
class TestBadEdits:
    """One clear error each, and no file is left."""

    def check(self, table: Table, edits: Mapping[str, FileEdits], mode: str, message: str, error: Any) -> None:
        disk = data_locations(table)
        with pytest.raises(error, match=message):
            write_edits(table, edits, mode=mode)
        assert data_locations(table) == disk

    @pytest.mark.parametrize(
        ("updates", "message"),
        [
            ([assigned([1], id=pa.nulls(1, pa.int64()))], r"column 'id', row 1 of the new values .* null, and the col"),
            (
                [assigned([1], d=["x"])],
                r"column 'd', row 1 of the new values of rows of .* value 'x' .* does not fit double",
            ),
            ([assigned([1], nope=[1])], "column 'nope' of the new values .* is not in the table"),
            ([assigned([1])], "assign no column"),
            ([pa.table({"d": [1.0]})], "have no column '_pos'"),
            ([assigned([None], d=[1.0])], "have no column '_pos' .*without nulls"),
            ([assigned([1, 1], d=[1.0, 2.0])], "1 of 3 edits of rows of .* are of rows that are edited twice"),
            ([assigned([1], d=[1.0]), assigned([1], name=["x"])], "1 of 3 edits of rows"),
            ([assigned([0], d=[1.0])], "1 of 2 edits of rows"),
            ([assigned([-1], d=[1.0])], "position of a row is -1"),
        ],
    )
    def test_values(self, tmp_path, mode, updates, message):
        table, path = make(tmp_path)
        edits = {path: FileEdits(deleted=positions(0), updates=tuple(updates))}
        self.check(table, edits, mode, message, InvalidInputError)

    @pytest.mark.parametrize("deletes", ["position", "equality", "vector"])
    @pytest.mark.parametrize("how", ["deleted", "updated", "updated whole"])
    def test_a_row_that_was_deleted_before_does_not_come_back(self, tmp_path, mode, deletes, how):
        table, path = make(tmp_path, 3 if deletes == "vector" else 2)
        if deletes == "equality":
            add_deletes(table, equality_deletes(table, [4], 0, ()))
        else:
            table.delete("id = 4", mode=MOR)
        whole = assigned([3, 4], id=[3, 4], name=["x", "x"], d=[0.0, 0.0])
        chosen = {
            "deleted": FileEdits(deleted=positions(3, 4)),
            "updated": FileEdits(updates=(assigned([3, 4], d=[0.0, 0.0]),)),
            "updated whole": FileEdits(updates=(whole,)),
        }
        self.check(table, {path: chosen[how]}, mode, "edited that it does not have, or .* deleted", InvalidInputError)

    @pytest.mark.parametrize(
        "edits", [FileEdits(deleted=positions(10)), FileEdits(updates=(assigned([9, 10], d=[0.0] * 2),))]
    )
    def test_positions_beyond_the_end(self, tmp_path, mode, edits):
        table, path = make(tmp_path)
        self.check(table, {path: edits}, mode, "edited that it does not have", InvalidInputError)

    def test_positions_beyond_the_end_of_a_file_that_is_shorter_than_the_table_says(self, tmp_path, mode):
        table, _ = make(tmp_path, rows=0)
        file = tmp_path / "theirs.parquet"
        write_data_file(file, "parquet", table.schema(), [{"id": 1, "name": "x", "d": 0.0}])
        add_file(table, file, record_count=5)
        (path,) = tasks_of(table)
        edits = {path: FileEdits(updates=(assigned([0, 3], d=[1.0, 2.0]),))}
        self.check(table, edits, mode, "edited that it does not have", InvalidInputError)

    def test_a_file_twice_or_in_parts(self, tmp_path, mode):
        """Rows without edits would be written twice, or not at all."""
        table, path = make(tmp_path)
        disk = data_locations(table)
        unit = FileUnit.of(tasks_of(table)[path])
        edits = FileEdits(deleted=positions(2), updates=(assigned([1], d=[1.0]),))
        for units in ([unit, unit], [replace(unit, parts=(0, 1, 2))]):
            with pytest.raises(InvalidInputError, match="are in pieces"):
                write_units(table, [(one, edits) for one in units], mode=mode)
        assert data_locations(table) == disk

    def test_a_later_file_is_gone(self, tmp_path, mode, monkeypatch):
        small = {"write.parquet.row-group-size-bytes": "1000", "write.target-file-size-bytes": "1000"}
        table, _ = make(tmp_path, rows=500, properties=small)
        # Rows of the first files are written before the last one is read.
        edits = {}
        for path, task in tasks_of(table).items():
            everything = range(task.file.record_count)
            edits[path] = FileEdits(updates=(assigned(everything, d=[0.5] * len(everything)),))
        table.io.delete([list(tasks_of(table))[-1]])
        written: list[str] = []
        create_sink = FileLayout.open_sink
        monkeypatch.setattr(
            FileLayout, "open_sink", lambda layout, location: written.append(location) or create_sink(layout, location)
        )
        self.check(table, edits, mode, "does not exist", NotFoundError)
        assert written

    @pytest.mark.parametrize("version", [2, 3])
    def test_the_last_file_cannot_be_written(self, tmp_path, mode, version, monkeypatch):
        table, _ = make(tmp_path, version)
        table.append(pa.table({"id": range(10, 20), "name": ["x"] * 10, "d": [0.0] * 10}))
        edits = {path: FileEdits(deleted=positions(2), updates=(assigned([1], d=[1.0]),)) for path in tasks_of(table)}

        def broken(*_: Any, **__: Any) -> Any:
            raise StorageError("no room")

        target = "write_vectors" if version == 3 else "write_position_deletes"
        if mode == COW:
            monkeypatch.setattr(editing, "carried_rows", broken)
        else:
            monkeypatch.setattr(row_changes, target, broken)
        self.check(table, edits, mode, "no room", StorageError)

    def test_a_table_whose_column_is_called_as_positions_are(self, tmp_path, mode):
        table = of_another_writer(tmp_path, 2, "_pos")
        edits = {path: FileEdits(deleted=positions(0)) for path in tasks_of(table)}
        self.check(table, edits, mode, "column '_pos' has a name that is reserved", InvalidInputError)
