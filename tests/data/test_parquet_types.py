"""What a Parquet file may hold for each type of a table, by Appendix A of the specification; nothing else."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.existing.footer_bytes import FIXED_WIDTHS, row_groups
from airflow_iceberg.data.existing.parquet_footer import read_footer
from airflow_iceberg.data.existing.parquet_types import Node, fits, forms_of, problem_of_group, schema_nodes
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand


def nodes_of(path: Path) -> dict[str, Node]:
    with path.open("rb") as handle:
        return {node.name: node for node in schema_nodes(read_footer(handle, path.stat().st_size, str(path)))}


def type_of(text: str) -> t.IcebergType:
    return schema_from_shorthand({"c": text}).fields[0].type


# Every form of Parquet, and the types of a table that may be stored so.
FIXED = "FIXED_LEN_BYTE_ARRAY({})"
ALLOWED = {
    "BOOLEAN": {"boolean"},
    "INT32": {"int", "long"},
    "INT32 INT(8)": {"int"},
    "INT32 INT(16)": {"int"},
    "INT32 INT(32)": {"int"},
    "INT64": {"long"},
    "INT64 INT(64)": {"long"},
    "FLOAT": {"float", "double"},
    "DOUBLE": {"double"},
    "INT32 DATE": {"date"},
    "INT64 TIME(MICROS)": {"time"},
    "INT64 TIME(MICROS, UTC)": {"time"},
    "INT64 TIMESTAMP(MICROS)": {"timestamp"},
    "INT64 TIMESTAMP(MICROS, UTC)": {"timestamptz"},
    "INT64 TIMESTAMP(NANOS)": {"timestamp_ns"},
    "INT64 TIMESTAMP(NANOS, UTC)": {"timestamptz_ns"},
    "INT96": {"timestamp", "timestamptz"},
    "BYTE_ARRAY STRING": {"string"},
    "BYTE_ARRAY": {"binary"},
    f"{FIXED.format(16)} UUID": {"uuid"},
    FIXED.format(16): {"fixed[16]"},
    FIXED.format(3): {"fixed[3]"},
}
ANNOTATIONS = (
    *("", "STRING", "ENUM", "JSON", "BSON", "UUID", "DATE", "UNKNOWN", "FLOAT16", "INTERVAL", "GEOMETRY", "VARIANT"),
    *(f"{sign}INT({bits})" for sign in ("", "U") for bits in (8, 16, 32, 64)),
    *(
        f"{kind}({unit}{zone})"
        for kind in ("TIME", "TIMESTAMP")
        for unit in ("MILLIS", "MICROS", "NANOS")
        for zone in ("", ", UTC")
    ),
)
TYPES = (
    *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns"),
    *("timestamptz_ns", "string", "binary", "uuid", "fixed[16]", "fixed[3]"),
)


class TestEveryFormOfParquet:
    def test_it_is_taken_for_the_types_of_the_table_alone(self):
        physical = (*FIXED_WIDTHS, "BYTE_ARRAY", FIXED.format(16), FIXED.format(3), FIXED.format(12), FIXED.format(2))
        for name in physical:
            for annotation in ANNOTATIONS:
                node = Node(name="c", physical=name, annotation=annotation)
                found = {text for text in TYPES if fits(node, type_of(text), 2)}
                assert found == ALLOWED.get(node.form, set()), node.form

    def test_a_date_may_become_a_timestamp_from_version_3_on(self):
        node = Node(name="c", physical="INT32", annotation="DATE")
        assert [fits(node, type_of("timestamp"), version) for version in (1, 2, 3)] == [False, False, True]

    @pytest.mark.parametrize("physical", ["INT32", "INT64", FIXED.format(5), "BYTE_ARRAY", "DOUBLE"])
    def test_decimals(self, physical):
        """Of the same scale, with no more digits than the table's, and no more than the physical type has room for."""
        most = {"INT32": 9, "INT64": 18, FIXED.format(5): 38}.get(physical, 0)
        for precision in (1, 5, 9, 10, 18, 19, 38):
            for scale in (0, 1, 2):
                node = Node(physical=physical, annotation=f"DECIMAL({precision}, {scale})", decimal=(precision, scale))
                for wanted in (9, 18, 38):
                    right = precision <= min(most, wanted) and scale == 2
                    assert fits(node, t.DecimalType(wanted, 2), 2) == right, (node.form, wanted)
        assert not fits(Node(physical=physical), t.DecimalType(9, 2), 2)
        assert "DECIMAL(9, 2)" in forms_of(t.DecimalType(9, 2), 2)[0]


class TestGroups:
    LEAF = Node(name="element", physical="INT32")
    KEY = Node(name="key", physical="BYTE_ARRAY", annotation="STRING", is_required=True)

    def list_of(self, *inner: Node, annotation: str = "LIST", name: str = "list") -> Node:
        repeated = Node(name=name, is_repeated=True, children=inner)
        return Node(name="c", annotation=annotation, children=(repeated,))

    def test_lists(self):
        kind = type_of("list<int>")
        assert problem_of_group(self.list_of(self.LEAF), kind) == ""
        assert problem_of_group(self.list_of(self.LEAF, name="bag"), kind) == ""
        two_levels = Node(
            name="c", annotation="LIST", children=(Node(name="array", physical="INT32", is_repeated=True),)
        )
        assert "a list of two levels" in problem_of_group(two_levels, kind)
        assert "a list of two levels" in problem_of_group(self.list_of(self.LEAF, self.LEAF), kind)
        assert "a list of two levels" in problem_of_group(self.list_of(self.LEAF, name="c_tuple"), kind)
        assert "expected a group of the type LIST" in problem_of_group(self.list_of(self.LEAF, annotation=""), kind)
        repeated = Node(name="c", physical="INT32", is_repeated=True)
        assert problem_of_group(repeated, kind) == "is repeated without a group of the type LIST"

    def test_maps(self):
        kind = type_of("map<string, int>")
        assert problem_of_group(self.list_of(self.KEY, self.LEAF, annotation="MAP"), kind) == ""
        optional = Node(name="key", physical="BYTE_ARRAY", annotation="STRING")
        assert "keys are optional" in problem_of_group(self.list_of(optional, self.LEAF, annotation="MAP"), kind)
        assert "not a key and a value" in problem_of_group(self.list_of(self.KEY, annotation="MAP"), kind)
        assert "type MAP" in problem_of_group(self.list_of(self.KEY, self.LEAF), kind)

    def test_structs(self):
        assert problem_of_group(Node(name="c", children=(self.LEAF,)), type_of("struct<a: int>")) == ""
        assert "struct" in problem_of_group(self.list_of(self.LEAF), type_of("struct<a: int>"))


class TestFooters:
    """The forms are read from the bytes of a footer, whoever wrote it."""

    def test_of_arrow(self, tmp_path):
        kinds = {
            "ms": (pa.timestamp("ms", tz="UTC"), "INT64 TIMESTAMP(MILLIS, UTC)"),
            "us": (pa.timestamp("us"), "INT64 TIMESTAMP(MICROS)"),
            "ns": (pa.timestamp("ns"), "INT64 TIMESTAMP(NANOS)"),
            "none": (pa.null(), "INT32 UNKNOWN"),
            "bytes": (pa.binary(), "BYTE_ARRAY"),
            "text": (pa.large_string(), "BYTE_ARRAY STRING"),
            "u8": (pa.uint8(), "INT32 UINT(8)"),
            "i8": (pa.int8(), "INT32 INT(8)"),
            "u64": (pa.uint64(), "INT64 UINT(64)"),
            "half": (pa.float16(), "FIXED_LEN_BYTE_ARRAY(2) FLOAT16"),
            "time": (pa.time32("ms"), "INT32 TIME(MILLIS)"),
            "dec": (pa.decimal128(9, 2), "FIXED_LEN_BYTE_ARRAY(4) DECIMAL(9, 2)"),
            "uuid": (pa.uuid(), "FIXED_LEN_BYTE_ARRAY(16) UUID"),
            "day": (pa.date32(), "INT32 DATE"),
        }
        schema = pa.schema([pa.field(name, kind) for name, (kind, _) in kinds.items()])
        for version in ("1.0", "2.6"):
            pq.write_table(schema.empty_table(), tmp_path / "a.parquet", version=version)
            found = {name: node.form for name, node in nodes_of(tmp_path / "a.parquet").items()}
            expected = {name: form for name, (_, form) in kinds.items()}
            if version == "1.0":
                expected["ns"] = "INT64 TIMESTAMP(MICROS)"
            assert found == expected

    def test_of_duckdb(self, tmp_path):
        columns = "1::utinyint u, interval 1 day i, '{}'::json j, uuid() d, 1.5::decimal(18, 3) n"
        duckdb.sql(f"copy (select {columns}) to '{tmp_path}/a.parquet'")
        found = {name: node.form for name, node in nodes_of(tmp_path / "a.parquet").items()}
        assert found["u"] == "INT32 UINT(8)"
        assert found["i"] == "FIXED_LEN_BYTE_ARRAY(12) INTERVAL"
        assert found["j"] == "BYTE_ARRAY JSON"
        assert found["d"] == "FIXED_LEN_BYTE_ARRAY(16) UUID"
        assert found["n"] == "INT64 DECIMAL(18, 3)"

    def test_of_hive(self):
        """Converted types only, lists of two levels, and decimals as fixed."""
        found = nodes_of(Path(__file__).parents[1] / "golden" / "spark_legacy.parquet")
        assert found["price"].form == "FIXED_LEN_BYTE_ARRAY(4) DECIMAL(9, 2)"
        assert found["ts"].form == "INT96"
        assert found["two"].children[0].form == "INT32"
        assert found["two"].children[0].is_repeated
        assert found["names"].annotation == "MAP"
        assert found["names"].children[0].children[0].form == "BYTE_ARRAY STRING"


ENDLESS = b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"


class TestForgedFooters:
    """They end in an error at once, however many values they say that they have."""

    @pytest.mark.parametrize(
        "field",
        [
            b"\x18" + ENDLESS,  # a text
            *(b"\x19" + bytes([0xF0 | item]) + ENDLESS for item in (1, 3, 5, 7, 8, 12)),  # a list, of each type
        ],
    )
    def test_of_more_than_there_is(self, field: bytes) -> None:
        with pytest.raises((IndexError, FormatError)):
            schema_nodes(field)

    def test_of_an_integer_without_an_end(self) -> None:
        with pytest.raises(FormatError, match="more than 64 bits"):
            schema_nodes(b"\x18" + b"\xff" * 100_000)

    def test_of_a_histogram_of_very_many_values_without_bytes(self) -> None:
        sizes = b"\x29\xf1" + ENDLESS  # the repetition levels: a list of truth values
        column = b"\x3c" + (b"\x15\x02" + b"\xfc" + sizes + b"\x00" + b"\x00") + b"\x00"
        footer = b"\x49\x1c" + (b"\x19\x1c" + column) + b"\x00"
        with pytest.raises((IndexError, FormatError)):
            list(row_groups(footer))

    @pytest.mark.parametrize("header", [b"\x1c", b"\x19\x1c", b"\x19\x19"])
    def test_of_very_many_levels(self, header: bytes) -> None:
        with pytest.raises(FormatError, match="more than 64 levels"):
            schema_nodes(header * 100_000)
