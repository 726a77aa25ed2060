"""Values of partition keys as people write them."""

import datetime as dt
from decimal import Decimal

import pytest

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.paimon.literals import internal_value
from airflow_iceberg.paimon.types import parse_type

DAY = dt.date(2026, 11, 21)
MOMENT = dt.datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=dt.UTC)
MICROS = 1_795_222_923_456_789


class TestAValue:
    """Text, numbers and Python's own dates become what entries have."""

    @pytest.mark.parametrize(("text", "given", "expected"), [
        ("STRING", "eu", "eu"), ("STRING", None, None), ("BOOLEAN", "True", True), ("BOOLEAN", False, False),
        ("TINYINT", "-128", -128), ("BIGINT", 2**63 - 1, 2**63 - 1), ("FLOAT", "0.1", 0.10000000149011612),
        ("DOUBLE", 0.1, 0.1), ("DECIMAL(9, 2)", "1.5", Decimal("1.50")), ("DECIMAL(9, 2)", 1.5, Decimal("1.50")),
        (
            "DECIMAL(38, 10)",
            "-1234567890123456789012345678.0123456789",
            Decimal("-1234567890123456789012345678.0123456789"),
        ),
        ("DATE", "2026-11-21", 20778), ("DATE", DAY, 20778), ("DATE", MOMENT, 20778), ("DATE", 20778, 20778),
        ("TIME(3)", "01:02:03.004", 3_723_004_000), ("TIMESTAMP(6)", "2026-11-21T01:02:03.456789", MICROS),
        ("TIMESTAMP(9)", "2026-11-21 01:02:03.456789", MICROS * 1000),
        ("TIMESTAMP(9)", "2026-11-21T01:02:03.4567890120", MICROS * 1000 + 12),
        ("TIMESTAMP(9)", "2026-11-21T01:02:03.4567891", MICROS * 1000 + 100),
        ("TIMESTAMP(6)", "2026-11-21T01:02:03.456789000", MICROS), ("TIMESTAMP_LTZ(6)", MOMENT, MICROS),
        ("TIMESTAMP_LTZ(6)", "2026-11-21T02:02:03.456789+01:00", MICROS), ("BYTES", "0x00ff", b"\x00\xff"),
    ])  # fmt: skip
    def test_by_type(self, text, given, expected):
        found = internal_value(given, parse_type(text), name="p")
        assert (type(found), repr(found)) == (type(expected), repr(expected))

    @pytest.mark.parametrize(("text", "given"), [
        *(("STRING", 7), ("BOOLEAN", 1), ("BOOLEAN", "yes"), ("TINYINT", 128), ("INT", "x"), ("INT", True)),
        *(("INT", 1.0), ("FLOAT", 1e39), ("DECIMAL(9, 2)", "1.555"), ("DATE", "21.11.2026"), ("DATE", True)),
        *(("TIMESTAMP(6)", MOMENT), ("TIMESTAMP(6)", "soon"), ("BYTES", "xyz"), ("STRING", {"a": 1})),
        *(("TIMESTAMP(6)", "2026-11-21T01:02:03.4567891"), ("TIMESTAMP(9)", "2026-11-21T01:02:03.4567890001")),
    ])  # fmt: skip
    def test_what_the_type_does_not_have_is_refused(self, text, given):
        with pytest.raises(InvalidInputError, match=r"is no value of partition key 'p' of type"):
            internal_value(given, parse_type(text), name="p")
