"""Names of partition directories as Java and as Python write them."""

from decimal import Decimal

import pytest

from airflow_iceberg.paimon.paths import PathRules, cast_text, escape, java_float, legacy_text, python_text
from airflow_iceberg.paimon.schema import PaimonSchema
from airflow_iceberg.paimon.types import PaimonField, parse_type
from tests.support.paimon_writer import schema_of

DAY = 86_400_000_000
MOMENT = 20_778 * DAY + 3_723_000_000  # 2026-11-21T01:02:03


class TestOneValue:
    """Java's `toString` by default, a cast to text without legacy names, Python's `str` of old."""

    @pytest.mark.parametrize(
        ("text", "value", "legacy", "cast", "python"),
        [
            ("DATE", 20777, "20777", "2026-11-20", "2026-11-20"),
            ("DATE", -719_529, "-719529", "-0001-12-31", "-0001-12-31"),
            ("DATE", 2_932_897, "2932897", "+10000-01-01", "+10000-01-01"),
            ("BOOLEAN", True, "true", "true", "True"),
            ("INT", -2, "-2", "-2", "-2"),
            ("DECIMAL(20, 10)", Decimal("1E-10"), "0.0000000001", "0.0000000001", "1E-10"),
            ("TIME(3)", 3_723_004_000, "3723004", "01:02:03.004", "01:02:03.004000"),
            ("TIME(0)", 3_723_000_000, "3723000", "01:02:03", "01:02:03"),
            ("TIMESTAMP(6)", MOMENT, "2026-11-21T01:02:03", "2026-11-21 01:02:03.000000", "2026-11-21 01:02:03"),
            ("TIMESTAMP(3)", MOMENT + 456_000, "2026-11-21T01:02:03.456", "2026-11-21 01:02:03.456",
             "2026-11-21 01:02:03.456000"),
            ("TIMESTAMP(6)", MOMENT + 456_789, "2026-11-21T01:02:03.456789", "2026-11-21 01:02:03.456789",
             "2026-11-21 01:02:03.456789"),
            ("TIMESTAMP(9)", MOMENT * 1000 + 1, "2026-11-21T01:02:03.000000001", "2026-11-21 01:02:03.000000001",
             "2026-11-21 01:02:03"),
            ("TIMESTAMP(0)", MOMENT - 3_000_000, "2026-11-21T01:02", "2026-11-21 01:02:00", "2026-11-21 01:02:00"),
            ("TIMESTAMP(6)", -1, "1969-12-31T23:59:59.999999", "1969-12-31 23:59:59.999999",
             "1969-12-31 23:59:59.999999"),
            ("VARBINARY", b"\0\xff", "\0\ufffd", "\0\ufffd", r"b'\x00\xff'"),
            ("TIMESTAMP_LTZ(0)", 0, "1970-01-01T00:00", "1970-01-01 00:00:00", "1970-01-01 00:00:00+00:00"),
        ],
    )  # fmt: skip
    def test_all_three_spellings(self, text, value, legacy, cast, python):
        type_ = parse_type(text)
        assert legacy_text(value, type_) == legacy
        assert cast_text(value, type_) == cast
        assert python_text(value, type_) == python

    @pytest.mark.parametrize(("root", "value", "text"), [
        ("DOUBLE", 1.0, "1.0"), ("DOUBLE", 1e7, "1.0E7"), ("DOUBLE", 9999999.0, "9999999.0"),
        ("DOUBLE", 0.001, "0.001"), ("DOUBLE", 0.00012, "1.2E-4"), ("DOUBLE", -0.0, "-0.0"),
        ("DOUBLE", 1e300, "1.0E300"), ("FLOAT", 0.10000000149011612, "0.1"), ("DOUBLE", float("nan"), "NaN"),
        ("FLOAT", float("-inf"), "-Infinity"),
    ])  # fmt: skip
    def test_floats_are_spelled_as_java_does(self, root, value, text):
        assert java_float(value, root) == text

    def test_characters_that_are_not_allowed_are_escaped(self):
        assert escape("a/b=c d%é\x01{}") == "a%2Fb%3Dc d%25é%01%7B%7D"


class TestDirectories:
    """`[<directory>/]<key>=<value>/…/bucket-<number>`."""

    def schema(self, **options: str) -> PaimonSchema:
        types = (("region", "STRING"), ("dt", "DATE"))
        fields = (PaimonField(id=i, name=n, type=parse_type(t)) for i, (n, t) in enumerate(types))
        written = {name.replace("__", "-").replace("_", "."): value for name, value in options.items()}
        return schema_of(*fields, partition_keys=("region", "dt"), options=written)

    @pytest.mark.parametrize("blank", [None, "", "  ", "\t\n", "\u2003"])
    def test_null_and_blank_share_a_directory(self, blank):
        schema = self.schema()
        directory = PathRules.of(schema).bucket_directory(schema, (blank, 1), 0)
        assert directory == "region=__DEFAULT_PARTITION__/dt=1/bucket-0"

    def test_a_no_break_space_is_not_blank_to_java(self):
        schema = self.schema()
        assert PathRules.of(schema).bucket_directory(schema, ("\u00a0", 1), 0) == "region=\u00a0/dt=1/bucket-0"

    def test_options_change_the_names(self):
        schema = self.schema(**{"data__file_path__directory": "data/x/", **{
            "partition_default__name": "none", "partition_legacy__name": "false"}})  # fmt: skip
        rules = PathRules.of(schema)
        assert rules.bucket_directory(schema, (None, 20777), -2) == "data/x/region=none/dt=2026-11-20/bucket-postpone"

    def test_old_pypaimon_escaped_nothing_but_what_no_store_has(self):
        schema = self.schema()
        directories = PathRules.of(schema).python_bucket_directories(schema, ("a:b", 20777), 3)
        assert directories == ("region=a:b/dt=2026-11-20/bucket-3", "region=a%3Ab/dt=2026-11-20/bucket-3")
        directories = PathRules.of(schema).python_bucket_directories(schema, ("a\0b", 20777), 3)
        assert directories == ("region=a%00b/dt=2026-11-20/bucket-3",)
