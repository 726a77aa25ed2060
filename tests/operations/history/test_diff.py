"""`diff`: how two snapshots, branches or tables differ: schema, properties, partitions and rows."""

import pyarrow as pa
import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.history.diff import State, diff
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, job_work, new_table


def rows(*pairs):
    ids, values = zip(*pairs, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})


@pytest.fixture(params=["1", "2", "3"], ids="v{}".format)
def table(request, tmp_path):
    table = new_table(tmp_path, schema={"id": "long", "v": "string"}, properties={"format-version": request.param})
    table.append(rows((1, "a"), (2, "b"), (3, "c")))
    table.create_branch("audit")
    return table


def compared(table, left, right, **options):
    table.refresh()
    return diff(State.of(table, left), State.of(table, right), **options)


class TestTwoStatesOfOneTable:
    """Only the files are read that one of them has; neither has to be an ancestor of the other."""

    def test_branches_that_have_both_gone_on(self, table):
        table.append(rows((4, "d")), branch="audit")
        table.append(rows((5, "e")))
        found = compared(table, "main", "audit")
        assert found.counts == {"added": 1, "removed": 1, "updated": 0}
        assert [(row["_change"], row["id"]) for row in found.rows] == [("removed", 5), ("added", 4)]

    def test_rows_by_key_columns(self, table):
        table.overwrite(rows((2, "B"), (9, "z")), "id = 2", check_filter=False, branch="audit")
        found = compared(table, "main", "audit", key_columns=["id"])
        assert found.counts == {"added": 1, "removed": 0, "updated": 1}
        changes = {(row["_change"], row["id"], row["v"]) for row in found.rows}
        assert changes == {("before", 2, "b"), ("after", 2, "B"), ("added", 9, "z")}

    def test_a_compaction_is_no_difference(self, table):
        table.append(rows((4, "d")))
        before = table.current_snapshot().snapshot_id
        compact(job_work(table), CompactRequest(options={"rewrite-all": True}))
        found = compared(table, before, "main")
        assert (found.counts, found.rows) == ({"added": 0, "removed": 0, "updated": 0}, ())

    def test_the_schema_and_the_partitions(self, table):
        before = table.current_snapshot().snapshot_id
        table.alter([{"add_column": {"name": "n", "type": "int"}}, {"rename_column": {"from": "v", "to": "w"}}])
        table.append(pa.table({"id": [7], "w": ["x"], "n": pa.array([1], pa.int32())}))
        found = compared(table, before, "main")
        assert set(found.schema) == {"column n int is added", "column v string is now w string"}
        assert found.partitions == {"": ((1, 3), (2, 4))}

    def test_few_rows_are_shown_and_too_many_are_not_read(self, table):
        table.append(rows(*((number, "x") for number in range(100, 150))))
        assert len(compared(table, "audit", "main", limit=3).rows) == 3
        found = compared(table, "audit", "main", most_rows=10)
        assert (found.counts, found.rows) == ({}, ())
        assert "50 rows would have to be read" in found.note

    def test_with_itself(self, table):
        assert compared(table, "main", "main").is_same

    @pytest.mark.parametrize("at", ["nowhere", "17", 17])
    def test_a_state_that_does_not_exist(self, table, at):
        with pytest.raises(NotFoundError, match=str(at)):
            State.of(table, at)

    def test_a_table_without_rows(self, tmp_path):
        empty = new_table(tmp_path / "e")
        assert diff(State.of(empty), State.of(empty)).counts == {}
        empty.append(id_rows([1]))
        whole, nothing = State.of(empty), State(table=empty, snapshot=None)
        assert diff(nothing, whole).counts["added"] == 1
        assert diff(whole, nothing).counts == {"removed": 1}


class TestTwoTables:
    """Columns are known by their names; all rows are read."""

    @pytest.fixture
    def other(self, table):
        properties = {"my-password": "sesame", "format-version": str(table.metadata.format_version)}
        other = Table.create(table.catalog, "db.o", schema={"id": "long", "v": "string"}, properties=properties)
        other.append(rows((1, "a"), (2, "B"), (4, "d"), (4, "d")))
        return other

    def test_rows_as_a_whole(self, table, other):
        found = diff(State.of(table), State.of(other))
        assert found.counts == {"added": 3, "removed": 2}
        assert found.properties == {"my-password": (None, "***")}

    def test_rows_by_key(self, table, other):
        with pytest.raises(InvalidInputError, match="several rows have the same id"):
            diff(State.of(table), State.of(other), key_columns=["id"])
        other.delete("id = 4")
        found = diff(State.of(table), State.of(other), key_columns=["id"])
        assert found.counts == {"added": 0, "removed": 1, "updated": 1}

    def test_a_key_that_one_of_them_does_not_have(self, table, other):
        with pytest.raises(NotFoundError, match="key column 'x'"):
            diff(State.of(table), State.of(other), key_columns=["x"])
