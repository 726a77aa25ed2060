"""Data files of some KB that become gigabytes, with the default limit: read in processes of their own, and measured."""

from pathlib import Path

import pytest

from airflow_iceberg.data.limits.memory import DEFAULT_BYTES
from tests.support import hostile_parquet as hostile
from tests.support.hostile_server import Measured, measured

pytestmark = [pytest.mark.services, pytest.mark.slow]
_MB = 1 << 20
BECOMES = 1 << 30
# What the limit allows, and half of it again for the rows that are read at once and a copy of them.
MOST_BYTES, MOST_S = DEFAULT_BYTES + DEFAULT_BYTES // 2, 60
_BEFORE = """
from airflow_iceberg.data.read.file import FileToRead, read_file
from airflow_iceberg.format.manifests.entries import DataFile
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.sources import files
from airflow_iceberg.jobs.sources.unit import Unit
from airflow_iceberg.storage import load_file_io
import airflow_iceberg.data.read.parquet, airflow_iceberg.data.read.orc, airflow_iceberg.data.read.avro
io = load_file_io({})
"""
_TABLE = """
found = DataFile(file_path={path!r}, file_format={kind!r}, record_count=1, file_size_in_bytes=1)
for batch in read_file(io, FileToRead(file=found), schema=schema_from_shorthand({schema!r})): pass
"""
_SOURCE = """
unit = Unit(location={path!r}, file_format={kind!r}, size_bytes=1)
for table in files.read_unit(unit, io, schema=schema_from_shorthand({schema!r}), options={{}}): pass
"""
READERS = {"of a table": _TABLE, "a source": _SOURCE}


def read_by(reader: str, path: Path, schema: dict[str, str], kind: str = "parquet") -> Measured:
    piece = READERS[reader].format(path=str(path), kind=kind, schema=schema)
    return measured(_BEFORE, piece, most_bytes=6 << 30)


@pytest.mark.parametrize("reader", READERS)
def test_parquet(reader: str, tmp_path: Path) -> None:
    schemas = {"list of": "list<long>", "text for all items": "list<string>", "text": "string"}
    found = {}
    for name, (columns, rows, options) in hostile.bombs(BECOMES).items():
        path = hostile.write(tmp_path / f"{name}.parquet", columns, rows, **options)
        assert path.stat().st_size < 3 * _MB, name
        kind = next((kind for part, kind in schemas.items() if part in name), "long")
        schema = {column.name: kind for column in columns}
        if columns[0].kind == hostile.FIXED:
            schema = {"a": f"fixed[{columns[0].length}]"}
        found[name] = read_by(reader, path, schema)
        path.unlink()
    assert {name: one.more_bytes // _MB for name, one in found.items() if one.more_bytes > MOST_BYTES} == {}
    assert {name: one.seconds for name, one in found.items() if one.seconds > MOST_S} == {}
    said = {name: one.said for name, one in found.items()}
    assert {name: text for name, text in said.items() if "FormatError" not in text and text != "no error"} == {}
