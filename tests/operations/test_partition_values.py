"""The values of touched partitions are keys of Airflow's events: no value is empty, or one that a database refuses."""

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.operations.reports.partitions import touched_partitions
from tests.support.builders import new_table


@pytest.mark.parametrize(("value", "key"), [("north", "north"), (" ", "region=+"), ("a\0b", "region=a%00b")])
def test_a_value_that_is_no_key_is_named_by_its_path(value: str, key: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, schema={"region": "string"}, partition_by=["region"])
    table.append(pa.table({"region": [value]}))
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    assert touched_partitions(table.io, table.metadata, [snapshot]).values == (key,)
