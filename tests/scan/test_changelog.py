"""The changes of a table between two snapshots: applied to the rows of the first they give those of the second."""

import ast
import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support import histories
from tests.support.builders import new_table
from tests.support.case_types import kinds_of
from tests.support.histories import counted, rows_at

SIGNS = {"insert": 1, "update_after": 1, "delete": -1, "update_before": -1}
OWN = ["_change_type", "_change_ordinal", "_commit_snapshot_id"]


def read(table: Table, *args, **options) -> pa.Table:
    return table.changes(*args, mode="changelog", **options).read_all()


def split(changes: pa.Table) -> tuple[Counter[str], Counter[str]]:
    """Return the rows that were added, and those that were removed."""
    kinds = changes["_change_type"].to_pylist()
    rows = changes.drop_columns(OWN)
    sides = [[i for i, kind in enumerate(kinds) if SIGNS[kind] == sign] for sign in (1, -1)]
    added, removed = (counted(rows.take(pa.array(side, pa.int64()))) for side in sides)
    return added, removed


def applied(rows: Counter[str], changes: pa.Table) -> Counter[str]:
    added, removed = split(changes)
    result = rows.copy()
    result.update(added)
    result.subtract(removed)
    assert min(result.values(), default=0) >= 0, "a row was removed that was not there"
    return +result


def pairs_of(changes: pa.Table) -> Counter[str]:
    added, removed = split(changes)
    return added & removed


class TestRandomHistories:
    """Whatever happened to a table, the changes of a range lead from its first rows to its last ones."""

    @pytest.mark.costly
    @pytest.mark.sample(22)
    @pytest.mark.parametrize("seed", range(90))
    def test_the_changes_are_the_difference(self, tmp_path, seed: int) -> None:
        dice = random.Random(seed)
        version = 1 + seed % 3
        kind = dice.choice(kinds_of(version, for_spark=False))
        table = histories.start(tmp_path, version, kind, dice)
        histories.make(table, dice, kind, steps=9)
        history = [snapshot.snapshot_id for snapshot in table.snapshots()]
        first, last = sorted(dice.sample(range(len(history)), 2))
        self.check(table, history[first], history[-1], None)
        self.check(table, history[first], history[last], history[last])
        self.check(table, None, history[last], history[last])

    def check(self, table: Table, first: int | None, last: int, to: int | None) -> None:
        before, after = rows_at(table, first, like=to), rows_at(table, last, like=to)
        each, net = read(table, first, to), read(table, first, to, net=True)
        assert applied(before, each) == after
        assert applied(before, net) == after
        assert not pairs_of(net)
        ordinals = each["_change_ordinal"].to_pylist()
        assert ordinals == sorted(ordinals)
        for ordinal in set(ordinals):
            assert not pairs_of(each.take(pa.array([i for i, one in enumerate(ordinals) if one == ordinal])))
        names = {snapshot.snapshot_id: snapshot.operation for snapshot in table.snapshots()}
        assert first is None or "replace" not in {names[one] for one in each["_commit_snapshot_id"].to_pylist()}
        if table.metadata.format_version >= 3:
            updates = read(table, first, to, net=True, compute_updates=True)
            assert applied(before, updates) == after

    @pytest.mark.costly
    @pytest.mark.sample(4)
    @pytest.mark.parametrize("seed", range(12))
    def test_of_the_rows_of_a_filter(self, tmp_path, seed: int) -> None:
        dice = random.Random(1000 + seed)
        version = 1 + seed % 3
        kind = dice.choice(kinds_of(version, for_spark=False))
        table = histories.start(tmp_path, version, kind, dice)
        histories.make(table, dice, kind, steps=8)
        first, where = table.snapshots()[0].snapshot_id, "id in (2, 3, 5) or id > 7"
        last = table.current_snapshot().snapshot_id
        before, after = (rows_at(table, one, row_filter=where) for one in (first, last))
        for net in (False, True):
            assert applied(before, read(table, first, row_filter=where, net=net)) == after


KEEP_IDS = ("delete", "equality", "compact", "manifests", "alter", "merge", "update", "upsert", "upsert")


class TestUpdatesOfRandomHistories:
    """By columns that identify a row, a row before and after is an update of it, of each snapshot and of all."""

    @pytest.mark.costly
    @pytest.mark.sample(8)
    @pytest.mark.parametrize("seed", range(24))
    def test_they_are_the_difference_by_id(self, tmp_path, seed: int) -> None:
        dice = random.Random(2000 + seed)
        version = 1 + seed % 3
        kind = dice.choice(kinds_of(version, for_spark=False))
        table = histories.start(tmp_path, version, kind, dice)
        histories.make(table, dice, kind, steps=9, chosen=KEEP_IDS, unique=True)
        history = [snapshot.snapshot_id for snapshot in table.snapshots()]
        first = dice.randrange(len(history) - 1)
        how = {"identifier_columns": ["id"]}
        net = read(table, history[first], net=True, **how)
        assert counted_changes(net) == self.difference(table, history[first], history[-1])
        each = read(table, history[first], **how)
        for before, after in zip(history[first:], history[first + 1 :], strict=False):
            own = each.filter(pc.equal(each["_commit_snapshot_id"], after))
            assert counted_changes(own) == self.difference(table, before, after)

    def difference(self, table: Table, before: int, after: int) -> Counter[tuple[str, str]]:
        old, new = (self.by_id(table, one) for one in (before, after))
        found: Counter[tuple[str, str]] = Counter()
        for number in old.keys() | new.keys():
            if old.get(number) == new.get(number):
                continue
            is_update = number in old and number in new
            if number in old:
                found["update_before" if is_update else "delete", old[number]] += 1
            if number in new:
                found["update_after" if is_update else "insert", new[number]] += 1
        return found

    def by_id(self, table: Table, snapshot_id: int) -> dict[int, str]:
        rows = rows_at(table, snapshot_id)
        place = [field.name for field in table.schema().fields].index("id")
        found = {ast.literal_eval(row)[place]: row for row in rows}
        assert len(found) == rows.total()
        return found


def counted_changes(changes: pa.Table) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for kind in SIGNS:
        rows = counted(changes.filter(pc.equal(changes["_change_type"], kind)).drop_columns(OWN))
        for row, count in rows.items():
            found[kind, row] += count
    return found


def table_of(folder, version=2, mode="copy-on-write", **more) -> Table:
    properties = {"format-version": str(version), "write.delete.mode": mode}
    return new_table(folder, schema={"id": "long", "name": "string"}, properties=properties, **more)


def named(*pairs) -> pa.Table:
    return pa.table({"id": [one for one, _ in pairs], "name": pa.array([name for _, name in pairs], pa.string())})


def listed(changes: pa.Table) -> list[tuple]:
    columns = [changes[name].to_pylist() for name in ("_change_ordinal", "_change_type", "id", "name")]
    return sorted(zip(*columns, strict=True), key=str)


class TestWhatAChangeIs:
    """A row that was added or removed; not one that was only written again."""

    @pytest.mark.parametrize("version", [1, 2, 3])
    def test_rows_that_are_carried_into_another_file_are_none(self, tmp_path, version: int) -> None:
        table = table_of(tmp_path, version)
        table.append(named((1, "a"), (2, "b"), (2, "b"), (3, None)))
        first = table.current_snapshot().snapshot_id
        table.delete("id = 1")
        assert listed(read(table, first)) == [(0, "delete", 1, "a")]

    def test_one_of_two_equal_rows(self, tmp_path) -> None:
        table = table_of(tmp_path)
        table.append(named((2, "b"), (2, "b")))
        first = table.current_snapshot().snapshot_id
        table.overwrite(named((2, "b")), "id = 2")
        assert listed(read(table, first)) == [(0, "delete", 2, "b")]

    @pytest.mark.costly
    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize("version", [2, 3])
    def test_a_compaction_is_none(self, tmp_path, version: int, mode: str) -> None:
        table = table_of(tmp_path, version, mode)
        for number in range(3):
            table.append(named((number, "a"), (number + 10, "b")))
        table.delete("id = 11")
        first = table.current_snapshot().snapshot_id
        histories._do(table, "compact", random.Random(0), kinds_of(2, for_spark=False)[0])
        histories._do(table, "manifests", random.Random(0), kinds_of(2, for_spark=False)[0])
        table.append(named((9, "x")))
        assert table.snapshots()[4].operation == "replace"
        assert listed(read(table, first)) == [(0, "insert", 9, "x")]

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    def test_deletes_on_top_of_deletes(self, tmp_path, mode: str) -> None:
        table = table_of(tmp_path, 3, mode)
        table.append(named(*((number, "a") for number in range(6))))
        first = table.current_snapshot().snapshot_id
        table.delete("id = 1")
        table.delete("id in (2, 3)")
        changes = read(table, first)
        assert listed(changes) == [(0, "delete", 1, "a"), (1, "delete", 2, "a"), (1, "delete", 3, "a")]
        assert changes["_commit_snapshot_id"].to_pylist() == [
            table.snapshots()[number].snapshot_id for number in (1, 2, 2)
        ]

    def test_its_columns(self, tmp_path) -> None:
        table = table_of(tmp_path)
        table.append(named((1, "a")))
        found = table.changes(None, mode="changelog").schema
        assert list(zip(found.names, map(str, found.types), strict=True)) == [
            ("id", "int64"),
            ("name", "string"),
            ("_change_type", "string"),
            ("_change_ordinal", "int32"),
            ("_commit_snapshot_id", "int64"),
        ]


class TestUpdates:
    """The old and the new version of a row, by columns that identify it, or by its id in version 3."""

    def changed(self, folder, version=2, **more) -> tuple[Table, int]:
        table = table_of(folder, version, **more)
        table.append(named((1, "a"), (2, "b"), (3, "c")))
        first = table.current_snapshot().snapshot_id
        table.overwrite(named((2, "B"), (4, "d")), "id in (2, 3, 4)")
        return table, first

    EXPECTED = [(0, "delete", 3, "c"), (0, "insert", 4, "d"), (0, "update_after", 2, "B"), (0, "update_before", 2, "b")]

    def test_by_columns(self, tmp_path) -> None:
        table, first = self.changed(tmp_path)
        assert listed(read(table, first, identifier_columns=["id"])) == self.EXPECTED
        assert "update_after" not in read(table, first)["_change_type"].to_pylist()

    def test_by_the_identifier_fields(self, tmp_path) -> None:
        required = {"id": {"type": "long", "required": True}, "name": "string"}
        table = new_table(tmp_path, schema=required)
        table.alter([{"set_identifier_fields": ["id"]}])
        table.append(named((1, "a"), (2, "b")))
        first = table.current_snapshot().snapshot_id
        table.overwrite(named((2, "B")), "id = 2")
        found = listed(read(table, first, compute_updates=True))
        assert found == [(0, "update_after", 2, "B"), (0, "update_before", 2, "b")]

    def test_without_anything_that_identifies_a_row(self, tmp_path) -> None:
        table, first = self.changed(tmp_path)
        with pytest.raises(InvalidInputError, match=r"compute_updates needs identifier_columns: table .* has no"):
            read(table, first, compute_updates=True)

    def test_by_the_id_of_the_row(self, tmp_path) -> None:
        table = table_of(tmp_path, 3)
        table.append(named((1, "a"), (1, "b"), (1, "c")))
        first = table.current_snapshot().snapshot_id
        table.delete("name = 'b'")
        table.append(named((1, "b")))
        # The row that was appended is another one, whatever its values.
        assert listed(read(table, first, compute_updates=True)) == [(0, "delete", 1, "b"), (1, "insert", 1, "b")]

    def test_the_net_of_two_updates_is_one(self, tmp_path) -> None:
        table, first = self.changed(tmp_path)
        table.overwrite(named((2, "b2")), "id = 2")
        found = read(table, first, net=True, identifier_columns=["id"])
        assert listed(found.drop_columns("_change_ordinal").append_column("_change_ordinal", [[0] * 4])) == [
            (0, "delete", 3, "c"),
            (0, "insert", 4, "d"),
            (0, "update_after", 2, "b2"),
            (0, "update_before", 2, "b"),
        ]
        table.overwrite(named((2, "b")), "id = 2")
        assert {one[1:] for one in listed(read(table, first, net=True))} == {("delete", 3, "c"), ("insert", 4, "d")}

    def test_columns_that_identify_no_row(self, tmp_path) -> None:
        table = table_of(tmp_path)
        table.append(named((1, "a"), (1, "b")))
        first = table.current_snapshot().snapshot_id
        table.overwrite(named((1, "c")), "id = 1")
        with pytest.raises(InvalidInputError, match="the same id: identifier_columns must identify a row"):
            read(table, first, identifier_columns=["id"])
        with pytest.raises(NotFoundError, match="identifier_columns has 'nope', which is no column"):
            read(table, first, identifier_columns=["nope"])
        with pytest.raises(InvalidInputError, match="identifier_columns is the text 'id'"):
            read(table, first, identifier_columns="id")


class TestTheRange:
    """From one snapshot, exclusive, to another one of the same history."""

    def test_from_nothing_all_rows_of_the_last_snapshot_are_new(self, tmp_path) -> None:
        table = table_of(tmp_path)
        table.append(named((1, "a")))
        table.append(named((2, "b")))
        table.delete("id = 1")
        assert listed(read(table, None)) == [(0, "insert", 2, "b")]
        assert table.changes(None).read_all()["id"].to_pylist() == [2]

    def test_to_itself_and_of_a_table_without_rows(self, tmp_path) -> None:
        table = table_of(tmp_path)
        assert read(table, None).num_rows == table.changes(None).read_all().num_rows == 0
        table.append(named((1, "a")))
        assert read(table, table.current_snapshot().snapshot_id).num_rows == 0

    def test_appended_rows_are_those_of_appends(self, tmp_path) -> None:
        table = table_of(tmp_path)
        table.append(named((1, "a")))
        first = table.current_snapshot().snapshot_id
        table.append(named((2, "b")))
        table.overwrite(named((1, "c")), "id = 1")
        table.delete("id = 2")
        assert table.changes(first).read_all().to_pylist() == [{"id": 2, "name": "b"}]

    def test_a_branch(self, tmp_path) -> None:
        table = table_of(tmp_path)
        table.append(named((1, "a")))
        first = table.current_snapshot().snapshot_id
        table.create_branch("audit")
        table.append(named((2, "b")), branch="audit")
        table.append(named((3, "c")))
        assert listed(read(table, first, ref="audit")) == [(0, "insert", 2, "b")]
        assert listed(read(table, first)) == [(0, "insert", 3, "c")]
        audit = table.metadata.ref_snapshot("audit").snapshot_id
        with pytest.raises(InvalidInputError, match=f"snapshot {audit} is no ancestor of .* another branch, newer, or"):
            read(table, audit)

    def test_after_a_rollback(self, tmp_path) -> None:
        table = table_of(tmp_path)
        for number in (1, 2):
            table.append(named((number, "a")))
        first, second = (snapshot.snapshot_id for snapshot in table.snapshots())
        table.set_current_snapshot(first)
        table.append(named((3, "c")))
        with pytest.raises(InvalidInputError, match=r"rolled back; choose an ancestor, or read the table as a whole"):
            read(table, second)
        assert listed(read(table, first)) == [(0, "insert", 3, "c")]

    def test_an_expired_snapshot(self, tmp_path) -> None:
        table = table_of(tmp_path)
        for number in (1, 2, 3):
            table.append(named((number, "a")))
        first, second, third = (snapshot.snapshot_id for snapshot in table.snapshots())
        expire_snapshots(Work(table), ExpireSnapshotsRequest(snapshot_ids=[first]))
        message = f"snapshot {first}, after which changes are to be read, is not in .* expired, .* oldest is {second}"
        with pytest.raises(InvalidInputError, match=message):
            read(table, first)
        assert listed(read(table, second, third)) == [(0, "insert", 3, "a")]
        with pytest.raises(NotFoundError, match=f"snapshot {first} is not in"):
            read(table, None, first)

    def test_rows_have_the_columns_of_the_last_snapshot(self, tmp_path) -> None:
        table = table_of(tmp_path)
        table.append(named((1, "a"), (2, "b")))
        first = table.current_snapshot().snapshot_id
        table.delete("id = 1")
        second = table.current_snapshot().snapshot_id
        table.alter([{"rename_column": {"from": "name", "to": "who"}}, {"add_column": {"name": "n", "type": "int"}}])
        assert read(table, first).drop_columns(OWN).to_pylist() == [{"id": 1, "who": "a", "n": None}]
        assert read(table, first, second).drop_columns(OWN).to_pylist() == [{"id": 1, "name": "a"}]


class TestWhatIsRead:
    """Columns and rows as of a scan; rows are compared as a whole."""

    def test_selected_columns(self, tmp_path) -> None:
        table = new_table(tmp_path, schema={"id": "long", "p": "struct<a: int, b: int>"}, properties={})
        rows = [{"id": 1, "p": {"a": 1, "b": 1}}, {"id": 2, "p": {"a": 2, "b": 2}}]
        shape = pa.schema([("id", pa.int64()), ("p", pa.struct([("a", pa.int32()), ("b", pa.int32())]))])
        table.append(pa.Table.from_pylist(rows, shape))
        first = table.current_snapshot().snapshot_id
        table.overwrite(pa.Table.from_pylist([{"id": 2, "p": {"a": 2, "b": 3}}], shape), "id = 2")
        found = read(table, first, selected_fields=("p.a", "_spec_id", "_change_type")).drop_columns(OWN[1:])
        assert found.to_pylist() == [
            {"p": {"a": 2}, "_spec_id": 0, "_change_type": "delete"},
            {"p": {"a": 2}, "_spec_id": 0, "_change_type": "insert"},
        ]

    def test_row_ids(self, tmp_path) -> None:
        table = table_of(tmp_path, 3)
        table.append(named((1, "a"), (1, "a"), (1, "b")))
        first = table.current_snapshot().snapshot_id
        table.delete("name = 'b'")
        found = read(table, first, selected_fields=("id", "_row_id"))
        assert found.select(["id", "_row_id"]).to_pylist() == [{"id": 1, "_row_id": 2}]

    def test_more_rows_than_are_kept_are_read_twice(self, tmp_path, monkeypatch) -> None:
        monkeypatch.setattr("airflow_iceberg.data.changelog.KEPT_BYTES", 10)
        table = table_of(tmp_path, 3)
        table.append(named(*((number, f"n{number}") for number in range(50))))
        first = table.current_snapshot().snapshot_id
        table.overwrite(named((7, "x")), "id = 7")
        found = listed(read(table, first, identifier_columns=["id"]))
        assert found == [(0, "update_after", 7, "x"), (0, "update_before", 7, "n7")]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"mode": "all"}, "mode is 'all', expected one of append, changelog"),
            ({"mode": "append", "net": True}, "net, compute_updates and identifier_columns are for mode='changelog'"),
            ({"mode": "changelog", "selected_fields": ("_deleted",)}, "_deleted cannot be selected of changes"),
            ({"mode": "changelog", "selected_fields": "id"}, "selected_fields is the text 'id'"),
        ],
    )
    def test_what_makes_no_sense(self, tmp_path, options, message) -> None:
        with pytest.raises(InvalidInputError, match=message):
            table_of(tmp_path).changes(None, **options)

    @pytest.mark.parametrize("bounds", [("5",), (None, "5"), (True,)])
    def test_ids_are_numbers(self, tmp_path, bounds) -> None:
        with pytest.raises(InvalidInputError, match="expected an int: the id of a snapshot"):
            table_of(tmp_path).changes(*bounds)

    def test_a_table_whose_columns_are_those_of_a_changelog(self, tmp_path) -> None:
        table = new_table(tmp_path, schema={"id": "long", "_change_type": "string"})
        with pytest.raises(InvalidInputError, match="column '_change_type' of the table has the name of a column of"):
            read(table, None)
        assert read(table, None, selected_fields=("id",)).num_rows == 0
