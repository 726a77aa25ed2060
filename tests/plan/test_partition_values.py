"""One identity of a partition value, in sensors, watchers, events and reports; and values that a field cannot have."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import InvalidInputError, came
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.transforms.spelled import spelled_value
from airflow_iceberg.format.transforms.transform import parse_transform
from airflow_iceberg.format.types import DateType
from airflow_iceberg.format.values.bytes import canonical_key
from airflow_iceberg.operations.add_files import AddFilesRequest, add_files
from airflow_iceberg.operations.reports.partitions import touched_partitions as reported
from airflow_iceberg.operations.work import Work
from airflow_iceberg.plan.conditions.partition import PartitionCondition
from airflow_iceberg.plan.snapshot_events import EventFilter, touched_partitions
from airflow_iceberg.table import Table
from airflow_iceberg.triggers._facts import TableFacts
from tests.support.builders import new_table
from tests.support.sampling import SEED, sampled

DOUBLES = [0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, None]


def facts_of(table: Table) -> TableFacts:
    table.refresh()
    return TableFacts(table.catalog, table.catalog.load(table.identifier))


def looks(table: Table, value: Any) -> tuple[int, bool]:
    """Return how many rows a sensor finds in a partition of column `v`, and whether the newest snapshot is an event."""
    facts, snapshot = facts_of(table), table.current_snapshot()
    assert snapshot is not None
    decision = PartitionCondition(partition={"v": value}).decide(table.metadata, facts, now_ms=0)
    passes = EventFilter(partition={"v": value}).passes(table.metadata, snapshot, facts)
    return 0 if decision.result is None else decision.result["rows"], passes


def by(folder: Path, kind: str, arrow: pa.DataType, values: list[Any], **more: Any) -> Table:
    table = new_table(folder, schema={"v": kind}, partition_by=["v as part"], **more)
    table.append(pa.table({"v": pa.array(values, arrow)}))
    return table


class TestTheIdentity:
    """Values are those of one partition where Iceberg Java's comparators say so: by bits, with one NaN."""

    @pytest.mark.parametrize("limit", ["0", "100"])
    @pytest.mark.parametrize("kind", ["double", "float"])
    def test_of_floats(self, tmp_path, kind, limit):
        arrow = pa.float64() if kind == "double" else pa.float32()
        properties = {"write.summary.partition-limit": limit}
        values = [0.0, -0.0, math.nan, None, 1.5]
        table = by(tmp_path, kind, arrow, [0.0, -0.0, -0.0, math.nan, math.nan, None, 1.5], properties=properties)
        assert [looks(table, value) for value in values] == [(1, True), (2, True), (2, True), (1, True), (1, True)]
        for value in values:
            table.append(pa.table({"v": pa.array([value], arrow)}))
            assert [looks(table, other)[1] for other in values] == [
                canonical_key(other) == canonical_key(value) for other in values
            ]

    def test_of_floats_in_reports_and_metadata_tables(self, tmp_path):
        table = by(tmp_path, "double", pa.float64(), [0.0, -0.0, math.nan])
        table.append(pa.table({"v": pa.array([math.nan], pa.float64())}))
        report = reported(table.io, table.metadata, table.metadata.snapshots)
        assert (report.count, report.names) == (3, ("part=-0.0", "part=0.0", "part=NaN"))
        touched = table.inspect.touched_partitions(table.metadata.snapshots[0].snapshot_id)
        assert touched is not None
        assert len(touched) == 3
        found = touched_partitions(table.metadata.snapshots[0], facts_of(table))
        assert found is not None
        assert sorted(each["part"] for each in found) == ["-0.0", "0.0", "NaN"]

    @pytest.mark.parametrize("limit", ["0", "100"])
    def test_null_is_no_text(self, tmp_path, limit):
        properties = {"write.summary.partition-limit": limit}
        table = by(tmp_path, "string", pa.string(), ["null", "null", "None"], properties=properties)
        assert [looks(table, value) for value in ("null", None, "None")] == [(2, True), (0, False), (1, True)]
        table.append(pa.table({"v": pa.array([None], pa.string())}))
        assert [looks(table, value) for value in ("null", None)] == [(2, False), (1, True)]

    def test_numbers_are_those_of_the_column(self, tmp_path):
        table = by(tmp_path, "long", pa.int64(), [1, 1, 0])
        assert [looks(table, value) for value in (1, 1.0, "1", "1.0", 0, None)] == [
            *[(2, True)] * 4, (1, True), (0, False),
        ]  # fmt: skip
        texts = by(tmp_path / "s", "string", pa.string(), ["1", "1.0", "true"])
        assert [looks(texts, value) for value in (1, 1.0, True, "1.00")] == [*[(1, True)] * 3, (0, False)]

    def test_bytes_and_uuids(self, tmp_path):
        table = by(tmp_path, "binary", pa.binary(), [b"\xff\x00", b""])
        assert [looks(table, value) for value in (b"\xff\x00", "/wA=", b"", b"a")] == [*[(1, True)] * 3, (0, False)]
        number = uuid.UUID(int=7)
        table = by(tmp_path / "u", "uuid", pa.binary(16), [number.bytes])
        assert [looks(table, value) for value in (number, str(number).upper(), uuid.UUID(int=8))] == [
            *[(1, True)] * 2, (0, False),
        ]  # fmt: skip

    def test_files_that_a_cleared_task_adds_again(self, tmp_path):
        """A partition of NaN equals itself, so that the file is the same."""
        place = tmp_path / "old" / "v=NaN" / "0.parquet"
        place.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1]}), place)
        table = new_table(tmp_path, schema={"id": "long", "v": "double"}, partition_by=["v"])
        for epoch in range(2):
            key = OperationKey(dag_id="d", run_id="r", task_id="t", epoch=epoch, run_after_ms=1, started_ms=1)
            work = Work(Table.load(table.catalog, "db.t"), operation_key=key)
            found = add_files(work, AddFilesRequest(files=[f"file://{place}"])).outcome
            assert found == ("nothing" if epoch else "committed")
        assert len(table.refresh().scan().to_arrow()) == 1


CANNOT = [
    ("date", "identity", [20260101, "20260101", "2026-02-30", "soon", 1, True, "2026-01-01T10:00:00", ""]),
    ("timestamp", "day", [20260101, "20260101", "2026-13-01", "2026-01-01T10:30:00", "2026-01-01T00:00:00Z"]),
    ("timestamptz", "hour", [2026010110, "2026-01-01-24", "2026-01-01T10:30:00", "10"]),
    ("date", "month", [202601, "2026-13", "2026-1", "2026-01-02", "2026"]),
    ("date", "year", [26, "26", "2026-01-02", "2026.0", 20260101, "20260101"]),
    ("date", "month", ["9999999-01", "20260101-01"]),
    ("timestamp", "year", [20260101, "20260101", "294248", "-290309"]),
    ("timestamptz", "month", ["20260101-01", "294247-02"]),
    ("timestamp", "day", ["294247-01-11", "20260101-01-01"]),
    ("timestamp", "hour", ["294247-01-11-10"]),
    ("timestamp_ns", "year", ["2263", "1676"]),
    ("timestamp_ns", "day", ["2262-04-12"]),
    ("long", "bucket[16]", [16, -1, "x", "1.5", True]),
    ("long", "truncate[10]", [15, "11", "x"]),
    ("string", "truncate[2]", ["abc", 2026]),
    ("decimal(9, 2)", "truncate[100]", ["1.50"]),
    ("binary", "truncate[1]", [b"ab", "!"]),
    ("int", "identity", ["1.5", "x", 2**31, True, "1_000"]),
    ("boolean", "identity", [1, 0, "1", "yes"]),
    ("double", "identity", ["x", True]),
    ("decimal(9, 2)", "identity", ["1.555", "x", 1e20]),
    ("uuid", "identity", [7, "x"]),
    ("time", "identity", ["25:00", 7]),
    ("fixed[2]", "identity", [b"a", "YQ=="]),
    ("timestamp", "identity", [20260101, "2026-01-01T00:00:00+01:00"]),
    ("timestamptz", "identity", ["20260101"]),
]
CAN = [
    ("date", "identity", {"2026-01-01": ["2026-01-01", date(2026, 1, 1), " 2026-01-01 "]}),
    (
        "timestamp",
        "day",
        {"2026-01-01": ["2026-01-01", date(2026, 1, 1), "2026-01-01T00:00:00", "2026-01-01 00:00"]},
    ),
    ("timestamptz", "day", {"2026-01-01": [datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T01:00:00+01:00"]}),
    ("timestamp", "hour", {"2026-01-01-10": ["2026-01-01-10", "2026-01-01T10:00", "2026-01-01 10:00:00"]}),
    ("date", "month", {"2026-01": ["2026-01", "2026-01-01", date(2026, 1, 1)], "1969-12": ["1969-12"]}),
    ("timestamp", "year", {"2026": [2026, "2026", "2026-01-01"], "12026": ["12026"], "294247": [294247]}),
    ("timestamp_ns", "year", {"2262": ["2262"], "1677": [1677]}),
    ("timestamp_ns", "hour", {"2262-04-11-23": ["2262-04-11-23"]}),
    ("date", "year", {"5881580": ["5881580"]}),
    ("timestamp", "day", {"12026-01-01": ["12026-01-01", "+12026-01-01"]}),
    ("long", "bucket[16]", {"15": [15, "15"], "0": [0, "0"]}),
    ("long", "truncate[10]", {"-10": [-10], "10": ["10", 10.0]}),
    ("string", "truncate[2]", {"ab": ["ab"], "": [""]}),
    ("decimal(9, 2)", "truncate[100]", {"1.00": ["1", Decimal(1)]}),
    ("binary", "truncate[1]", {"YQ==": [b"a", "YQ=="]}),
    ("fixed[2]", "identity", {"YWI=": [b"ab"]}),
    ("time", "identity", {"10:30": [time(10, 30), "10:30", "10:30:00"]}),
    ("timestamp_ns", "identity", {"2026-01-01T10:30:00.000000001": ["2026-01-01 10:30:00.000000001"]}),
]


def one_field(folder: Path, kind: str, transform: str) -> Table:
    term = "v as part" if transform == "identity" else f"{transform.replace('[', '(').replace(']', ', v)')} as part"
    term = f"{transform}(v) as part" if transform in ("year", "month", "day", "hour") else term
    return new_table(folder, schema={"v": kind}, partition_by=[term], properties={"format-version": "3"})


class TestValuesThatAFieldCannotHave:
    """They are an error at the first look, of a sensor, its trigger and a watcher; nobody waits for them."""

    @pytest.mark.parametrize(("kind", "transform", "values"), CANNOT)
    def test_are_an_error_at_the_first_look(self, tmp_path, kind, transform, values):
        table = one_field(tmp_path, kind, transform)
        for value in values:
            with pytest.raises(InvalidInputError, match=r"partition field 'part' .* cannot have the value") as error:
                PartitionCondition(partition={"v": value}, tag="late").decide(table.metadata, facts_of(table), now_ms=0)
            assert came(value) in str(error.value)
            assert "expected " in str(error.value)
            with pytest.raises(InvalidInputError, match="cannot have the value"):
                EventFilter(partition={"part": value}).check(table.metadata)

    @pytest.mark.parametrize(("kind", "transform", "values"), CAN)
    def test_others_are_taken_for_what_the_path_has(self, kind, transform, values):
        source = schema_from_shorthand({"v": kind}).fields[0].type
        for in_path, given in values.items():
            for value in given:
                (text,) = PartitionCondition(partition={"v": value}).partition.values()
                assert text is not None
                found = spelled_value(parse_transform(transform), source, text)
                assert parse_transform(transform).to_human_string(found, source) == in_path

    def test_what_came_is_told(self, tmp_path):
        table = one_field(tmp_path, "timestamp", "day")
        with pytest.raises(InvalidInputError) as error:
            PartitionCondition(partition={"v": 20260101}).decide(table.metadata, facts_of(table), now_ms=0)
        assert str(error.value) == (
            "partition field 'part' (day of column 'v', timestamp) cannot have the value the number 20260101 (int): "
            "expected a date like 2026-01-01"
        )

    def test_a_value_of_an_older_spec_is_waited_for(self, tmp_path):
        table = new_table(tmp_path, schema={"v": "string"}, partition_by=["v as part"])
        table.alter([{"replace_partition_field": {"from": "part", "to": "truncate(2, v)", "name": "part"}}])
        condition = PartitionCondition(partition={"part": "abc"})
        assert condition.decide(table.metadata, facts_of(table), now_ms=0).result is None

    def test_a_name_is_compared_with_its_case(self, tmp_path):
        table = one_field(tmp_path, "date", "identity")
        with pytest.raises(InvalidInputError, match=r"'V' is no partition field .*; its partition fields: part"):
            PartitionCondition(partition={"V": "2026-01-01"}).decide(table.metadata, facts_of(table), now_ms=0)


@pytest.mark.parametrize("days", [-800_000, -719_529, -719_528, -1_100_000, 4_000_000])
def test_a_date_of_any_year_is_spelled_as_in_a_path(days):
    """Iceberg Java writes years with four characters: -221 is the year 222 before ours."""
    for text in ("year", "month", "day", "identity"):
        transform = parse_transform(text)
        value = transform.apply(days, DateType())
        assert spelled_value(transform, DateType(), transform.to_human_string(value, DateType())) == value


@pytest.mark.generated
def test_each_value_that_a_transform_gives_is_spelled_by_its_text():
    """Random values of all types through all transforms: the text of a partition path gives the value back."""
    random = Random(SEED)
    values: dict[str, Any] = {
        "int": lambda: random.randint(-(2**31), 2**31 - 1),
        "long": lambda: random.randint(-(2**63), 2**63 - 1),
        "date": lambda: random.randint(-800_000, 4_000_000),
        "timestamp": lambda: random.randint(-(10**16), 10**17),
        "timestamptz_ns": lambda: random.randint(-(2**62), 2**62),
        "time": lambda: random.randint(0, 86_400_000_000 - 1),
        "string": lambda: "".join(random.choices("aä/= +null0", k=random.randint(0, 6))),
        "binary": lambda: random.randbytes(random.randint(0, 5)),
        "uuid": lambda: uuid.UUID(bytes=random.randbytes(16)),
        "double": lambda: random.choice([*DOUBLES[:-1], random.gauss(0, 1e9), random.random()]),
        "boolean": lambda: random.random() < 0.5,
        "decimal(9, 2)": lambda: Decimal(random.randint(-(10**8), 10**8)).scaleb(-2),
    }
    tried = 0
    for _ in range(sampled(2_000)):
        kind = random.choice(list(values))
        text = random.choice(["identity", "bucket[7]", "truncate[3]", "year", "month", "day", "hour"])
        transform, source = parse_transform(text), schema_from_shorthand({"v": kind}).fields[0].type
        if not transform.can_transform(source):
            continue
        value = transform.apply(values[kind](), source)
        spelled = spelled_value(transform, source, transform.to_human_string(value, source))
        assert canonical_key(spelled) == canonical_key(value), (kind, text, value)
        tried += 1
    assert tried > 100
