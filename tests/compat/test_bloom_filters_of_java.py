"""The Bloom filters that Iceberg Java writes tell of each value that it is there, and of most others that it is not."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.data.read.bloom_filters import bloom_filter
from airflow_iceberg.data.read.file_fields import file_fields
from airflow_iceberg.format.arrow.types import values_from_array
from airflow_iceberg.table import Table

pytestmark = pytest.mark.java

ROWS = 3000
# Of the number n: the type, and the value in Spark's SQL.
COLUMNS = {
    "small": ("int", "cast(n * 7 - 900 as int)"),
    "large": ("bigint", "n * 1000000007"),
    "day": ("date", "date_add(date '1960-01-01', cast(n as int))"),
    "moment": ("timestamp", "timestamp_micros(n * 3600000007 - 10000000000000)"),
    "local": ("timestamp_ntz", "timestamp_micros(n * 3600000007 - 10000000000000)"),
    "text": ("string", "concat(if(n % 3 = 0, 'é', ''), repeat('x', cast(n % 80 as int)), n)"),
}


@pytest.fixture(scope="module")
def tables(java, catalog):
    """The table of the even numbers, whose files have filters, and the one of the odd numbers."""

    def make(rest):
        name = f"bloom_{rest}"
        filters = "".join(f", 'write.parquet.bloom-filter-enabled.column.{column}'='true'" for column in COLUMNS)
        java.sql(
            f"create table ref.db.{name} ({', '.join(f'{column} {kind}' for column, (kind, _) in COLUMNS.items())}) "
            # A column with a dictionary gets no filter, and one that is larger than the rows would not be read.
            f"using iceberg tblproperties ('write.parquet.dict-size-bytes'='1', "
            f"'write.parquet.bloom-filter-max-bytes'='8192'{filters})"
        )
        values = ", ".join(f"{sql} as {column}" for column, (_, sql) in COLUMNS.items())
        java.sql(f"insert into ref.db.{name} select {values} from (select id * 2 + {rest} as n from range({ROWS}))")
        return Table.load(catalog, f"db.{name}")

    return make(0), make(1)


@pytest.mark.services
@pytest.mark.parametrize("name", COLUMNS)
def test_filters_of_java(tables, name):
    there, others = tables
    field = there.schema().find_field(name)
    absent = values_from_array(field.type, pa.chunked_array(others.scan(selected_fields=[name]).to_arrow()[name]))
    assert len(absent) == ROWS
    rows = 0
    for task in there.scan().plan_files():
        handle = pa.OSFile(task.file.file_path.removeprefix("file:"))
        parquet = pq.ParquetFile(handle)
        source = next(one for one in file_fields(parquet.schema_arrow) if one.name == name)
        for index in range(parquet.num_row_groups):
            may_have = bloom_filter(handle, parquet.metadata.row_group(index), source, field.type)
            assert may_have is not None
            values = values_from_array(field.type, parquet.read_row_group(index).column(name))
            rows += len(values)
            assert all(may_have([value]) for value in values)
            assert sum(may_have([value]) for value in absent) < ROWS / 10
    assert rows == ROWS


@pytest.mark.parametrize("name", COLUMNS)
def test_their_keys_are_found(tables, name):
    there, others = tables
    values = there.scan(selected_fields=[name]).to_arrow()[name].to_pylist()
    (missing,) = others.scan(selected_fields=[name], limit=1).to_arrow()[name].to_pylist()
    for value, count in ((values[7], 1), (values[-1], 1), (missing, 0)):
        assert there.scan(f"{name} = :value", predicate_params={"value": value}).count() == count
