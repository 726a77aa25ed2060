"""Tables with geometry and geography: values are not read, but everything is known that needs none."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.errors import InvalidInputError, UnsupportedError
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.table import Table
from tests.support.builders import add_file, folder_of, job_work, new_table

POINT = b"\x01\x01\x00\x00\x00" + bytes(16)
KINDS = ["geometry", "geography", "geometry(srid:3857)", "geography(NAD83(2011), spherical)"]


def ids(table: Table, text: str | None = None) -> list[int]:
    return sorted(table.scan(text, selected_fields=("id",)).to_arrow()["id"].to_pylist())


@pytest.fixture(params=KINDS)
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    """Five rows of another writer, at the top, in a struct and in a list."""
    kind = request.param
    schema = {"id": "long", "g": kind, "s": f"struct<g: {kind}, x: int>", "l": f"list<{kind}>"}
    table = new_table(tmp_path, schema=schema, properties={"format-version": "3"})
    numbers = table.schema().names

    def field(name: str, arrow: pa.DataType, full: str = "") -> pa.Field:
        return pa.field(name, arrow, metadata={"PARQUET:field_id": str(numbers[full or name])})

    struct = pa.struct([field("g", pa.binary(), "s.g"), field("x", pa.int32(), "s.x")])
    columns = {
        field("id", pa.int64()): [1, 2, 3, 4, 5],
        field("g", pa.binary()): [POINT, None, POINT, None, POINT],
        field("s", struct): [{"g": POINT, "x": 1}, {"g": None, "x": 2}, None, {"g": POINT, "x": None}, None],
        field("l", pa.list_(field("element", pa.binary(), "l.element"))): [[POINT], [], None, [None], None],
    }
    rows = pa.table([pa.array(values, one.type) for one, values in columns.items()], schema=pa.schema(list(columns)))
    pq.write_table(rows, folder_of(table) / "theirs.parquet", row_group_size=2)
    counts = {numbers["id"]: 0, numbers["g"]: 2, numbers["s.g"]: 3}
    facts = {"value_counts": dict.fromkeys(counts, 5), "null_value_counts": counts}
    add_file(table, folder_of(table) / "theirs.parquet", record_count=5, **facts)
    return table


EXPECTED = {
    None: [1, 2, 3, 4, 5],
    "g is null": [2, 4],
    "g is not null": [1, 3, 5],
    "s.g is null": [2, 3, 5],
    "s.g is not null and g is null": [4],
    "s is null": [3, 5],
    "l is null": [3, 5],
    "id > 3": [4, 5],
    "g is null and id > 3": [4],
    "g is null or id = 1": [1, 2, 4],
    "not (g is null)": [1, 3, 5],
    "s.x = 1": [1],
}


class TestWhatNeedsNoValue:
    """Rows are counted, other columns are filtered and read, and it is known where there is none."""

    def test_counts_and_filters(self, table):
        for text, expected in EXPECTED.items():
            assert table.scan(text).count() == len(expected), text
            assert ids(table, text) == expected, text

    def test_other_fields_of_a_struct(self, table):
        found = table.scan("g is null", selected_fields=("id", "s.x")).to_arrow().sort_by("id").to_pylist()
        assert found == [{"id": 2, "s": {"x": 2}}, {"id": 4, "s": {"x": None}}]

    def test_a_delete_by_merge_on_read(self, table):
        for text, left in (
            ("g is null and id > 3", [1, 2, 3, 5]),
            ("id = 1", [2, 3, 5]),
            ("s.g is not null", [2, 3, 5]),
        ):
            delete(job_work(table), DeleteRequest(predicate=text, mode="merge-on-read"))
            assert ids(table.refresh()) == left
            assert table.scan().count() == len(left)

    def test_values_are_refused(self, table):
        for text in EXPECTED:
            with pytest.raises(UnsupportedError, match=r"is geo.* and not read"):
                table.scan(text).to_arrow()
        for text in ("g = 'POINT(0 0)'", "g in (X'01')", "s.g > 1"):
            with pytest.raises(InvalidInputError, match="cannot be compared"):
                table.scan(text)
