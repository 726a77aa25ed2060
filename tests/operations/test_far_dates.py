"""Dates and instants before year 1 and after 9999, which Iceberg and Parquet have and Python has not."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.write.ordering import SortedRows, choose_boundaries
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.expressions.json import expression_from_json, expression_to_json
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.table import Table
from tests.support.builders import ids, job_work, new_table

DAY = 86_400_000_000
YEAR_1, YEAR_10000 = -719_162, 2_932_897
LEAST, MOST = -(2**63), 2**63 - 1
NS = (LEAST, -1, 0, 1, MOST)
MICROS = (LEAST, (YEAR_1 - 1) * DAY, 0, YEAR_10000 * DAY, MOST)
VALUES: dict[str, tuple[pa.DataType, tuple[int, ...]]] = {
    "date": (pa.date32(), (-(2**31), YEAR_1 - 1, 0, YEAR_10000, 2**31 - 1)),
    "timestamp": (pa.timestamp("us"), MICROS),
    "timestamptz": (pa.timestamp("us", "UTC"), MICROS),
    "timestamp_ns": (pa.timestamp("ns"), NS),
    "timestamptz_ns": (pa.timestamp("ns", "UTC"), NS),
}


def far_rows(kind: str) -> pa.Table:
    arrow, values = VALUES[kind]
    numbers = pa.array(values, pa.int32() if arrow.bit_width == 32 else pa.int64())
    return pa.table({"id": range(len(values)), "at": numbers.view(arrow)})


def far_table(folder: Path, kind: str, *partition_by: str) -> Table:
    properties = {"format-version": "3"}
    table = new_table(folder, schema={"id": "long", "at": kind}, partition_by=list(partition_by), properties=properties)
    table.append(far_rows(kind))
    return table


@pytest.mark.parametrize("kind", sorted(VALUES))
class TestRows:
    """They are read, selected, deleted and sorted like all others."""

    def test_a_filter_selects_them_by_the_statistics_of_a_row_group(self, tmp_path, kind):
        table = far_table(tmp_path, kind)
        assert ids(table, row_filter="at < '1970-01-01'") == [0, 1]
        assert ids(table, row_filter="at = '1970-01-01'") == [2]
        assert ids(table, row_filter="at > '1970-01-01'") == [3, 4]

    def test_statistics_prune_row_groups(self, tmp_path, kind, monkeypatch):
        """A row group that holds none of the selected rows is not read."""
        table = new_table(tmp_path, schema={"id": "long", "at": kind}, properties={"format-version": "3"})
        table.append(far_rows(kind))
        (path,) = table.inspect.files()["file_path"].to_pylist()
        local = path.removeprefix("file://")
        rows, schema = pq.read_table(local), pq.read_schema(local)
        pq.write_table(rows.cast(schema), local, row_group_size=1)
        read: list[int] = []
        iter_batches = pq.ParquetFile.iter_batches

        def counted(self: pq.ParquetFile, *given: Any, **more: Any) -> Any:
            read.extend(more["row_groups"])
            return iter_batches(self, *given, **more)

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
        assert ids(table, row_filter="at > '1970-01-01'") == [3, 4]
        assert read == [3, 4]

    @pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
    @pytest.mark.parametrize("partition_by", [(), ("year(at)",), ("at",), ("bucket(2, at)",)])
    def test_they_are_deleted(self, tmp_path, kind, mode, partition_by):
        table = far_table(tmp_path, kind, *partition_by)
        work = job_work(table)
        assert delete(work, DeleteRequest(predicate="at < '1970-01-01' and id <> 1", mode=mode)).deleted_records == 1
        assert ids(table) == [1, 2, 3, 4]

    def test_compaction_and_metadata_tables_have_them(self, tmp_path, kind):
        table = far_table(tmp_path, kind, "day(at)")
        request = CompactRequest(strategy="sort", sort_by=("at desc",), options={"rewrite-all": True})
        assert compact(job_work(table), request).outcome == "committed"
        found = table.refresh().scan().to_arrow().sort_by("id")
        assert found.equals(far_rows(kind).cast(found.schema))
        assert table.inspect.files().num_rows == table.inspect.partitions().num_rows > 3
        for rows in (table.inspect.manifests(), table.inspect.entries()):
            assert str(rows)

    def test_ranges_of_a_sort_are_cut_between_them(self, kind):
        schema = schema_from_shorthand({"id": "long", "at": kind})
        order = SortedRows(sort_order_from_shorthand(["at"], schema), schema)
        rows = pa.concat_tables([far_rows(kind)] * 3)
        boundaries = choose_boundaries(order.keys(rows), order, 15)
        numbers = boundaries.column(boundaries.num_columns - 1).combine_chunks()
        assert len(numbers) == len(numbers.unique()) > 1


class TestLiterals:
    """Predicates write years as Spark does: up to seven digits, and a sign before year 0."""

    SCHEMA = schema_from_shorthand({"id": "long", "at": "timestamp", "day": "date"})

    @pytest.mark.parametrize(
        ("text", "days"),
        [
            ("10000-01-01", YEAR_10000),
            ("+10000-01-01", YEAR_10000),
            ("0000-12-31", YEAR_1 - 1),
            ("-0001-12-31", YEAR_1 - 1 - 366),
            ("5881580-07-11", 2**31 - 1),
            ("2000-02-29", 11_016),
        ],
    )
    def test_a_literal_is_the_day_of_the_calendar(self, text, days):
        for literal in (f"'{text}'", f"DATE '{text}'", f"TIMESTAMP '{text} 00:00:00'"):
            found = parse_filter(f"day = {literal}", self.SCHEMA)
            assert found.literal == days
            if days != 2**31 - 1:
                assert parse_filter(f"at = {literal}", self.SCHEMA).literal == days * DAY
            assert expression_from_json(expression_to_json(found), self.SCHEMA) == found

    @pytest.mark.parametrize(
        "text", ["2001-02-29", "0000-13-01", "12345678-01-01", "99-01-01", "+-1000-01-01", "٢٠٠٠-01-01"]
    )
    def test_others_are_refused(self, text):
        with pytest.raises(InvalidInputError, match=r"invalid date|cannot compare column"):
            parse_filter(f"day = '{text}'", self.SCHEMA)

    def test_a_bound_beyond_the_type_selects_all_or_nothing(self, tmp_path):
        table = far_table(tmp_path, "timestamp")
        assert ids(table, row_filter="at < '5000000-01-01'") == [0, 1, 2, 3, 4]
        assert ids(table, row_filter="at >= '10000-01-01'") == [3, 4]
        assert ids(table, row_filter="at < '0001-01-01'") == [0, 1]


class TestMessages:
    """A message about such a row shows its number."""

    def test_a_value_that_does_not_fit(self, tmp_path):
        table = new_table(tmp_path, schema={"at": "timestamp"})
        for arrow in (pa.timestamp("ms"), pa.timestamp("s")):
            with pytest.raises(InvalidInputError, match=r"value 100000000000000000 \(timestamp\[m?s\]\) does not fit"):
                table.append(pa.table({"at": pa.array([10**17], pa.int64()).view(arrow)}))

    def test_a_row_that_an_overwrite_does_not_select(self, tmp_path):
        table = far_table(tmp_path, "timestamp")
        with pytest.raises(InvalidInputError, match=f"at is {LEAST};"):
            table.overwrite(far_rows("timestamp"), "at > '1970-01-01'")
