"""What is done with an input: it is read, and what came of it is used as a table would use it.

A target returns, or raises one of our own errors: anything else is a bug.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache

import numpy as np

from airflow_iceberg.data.read.selection import schema_of
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.avro import read_manifest, read_manifest_list, write_manifest_list
from airflow_iceberg.format.manifests.columns import read_columns, unpack
from airflow_iceberg.format.manifests.entries import DataFile, ManifestContent, ManifestEntry, ManifestFile
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.schemas.arrow import schema_to_arrow
from airflow_iceberg.format.values.valid_variant import check_variant
from airflow_iceberg.format.values.variant import object_fields, read_names
from airflow_iceberg.scan.metadata_tables import Inspection
from airflow_iceberg.table import Table
from tests.support import golden

WHERE = "file:/fuzz/input"


def metadata(data: bytes) -> None:
    """Read a metadata file, ask it all that needs no other file, and write it back."""
    found = metadata_json.read(data, path=WHERE)
    assert metadata_json.read(metadata_json.write(found)) == found
    for schema in found.schemas:
        schema_to_arrow(schema)
    for spec in found.partition_specs:
        spec.partition_type(found.schema_of_spec(spec.spec_id))
    for snapshot in found.snapshots[:20]:
        schema_of(found, snapshot)
        list(found.ancestors(snapshot.snapshot_id))
    found.snapshot_as_of(found.last_updated_ms)
    inspect = Inspection(found, NoFiles())
    for rows in (inspect.snapshots, inspect.history, inspect.refs, inspect.metadata_log):
        rows()


class NoFiles:
    """A storage that is not asked."""

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        raise AssertionError(f"{location} is not to be read")


def manifest(data: bytes) -> None:
    """Read a manifest by itself, and as its snapshot's manifest list describes it: one by one, and as columns."""
    row = ManifestFile(
        manifest_path=WHERE, manifest_length=len(data), partition_spec_id=0, content=ManifestContent.DATA,
        sequence_number=7, min_sequence_number=7, added_snapshot_id=7, first_row_id=1000,
    )  # fmt: skip
    list(read_manifest(data, path=WHERE))
    if zlib.crc32(data) % 4:
        list(read_manifest(data, manifest=row))
        return
    # Columns take ten times as long for files as small as these: a share of them is enough.
    one_by_one, refused = _described(lambda: read_manifest(data, manifest=row))
    columns, refused_columns = _described(lambda: _column_entries(data, row))
    # Whichever way it is read, the same entries are in it, or it is refused.
    assert (refused is None) == (refused_columns is None), f"{refused!r} one by one, {refused_columns!r} as columns"
    assert one_by_one == columns
    if refused is not None:
        raise refused


def _described(read: Callable[[], Iterable[ManifestEntry]]) -> tuple[list[str], IcebergError | None]:
    try:
        return [_text(entry) for entry in read()], None
    except IcebergError as error:
        return [], error


def _text(entry: ManifestEntry) -> str:
    """Return an entry as text, in which NaN equals NaN, as objects of both readers have it."""
    file = entry.data_file
    values = [getattr(file, field.name) for field in fields(DataFile)]
    values = [sorted(value.items()) if isinstance(value, Mapping) else value for value in values]
    own = (entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
    return repr((own, values))


def _column_entries(data: bytes, row: ManifestFile) -> Iterator[ManifestEntry]:
    for part in read_columns([unpack(data, row)], lists=True):
        yield from part[1] if isinstance(part, tuple) else part.entries(np.arange(len(part)))


def manifest_list(data: bytes) -> None:
    """Read a manifest list and write its rows into another one."""
    rows = read_manifest_list(data, path=WHERE)
    for version in (1, 2, 3):
        write_manifest_list(
            rows, snapshot_id=1, parent_snapshot_id=None, sequence_number=1, format_version=version, first_row_id=0
        )


def vector(data: bytes) -> None:
    found = RowPositions.from_blob(data, path=WHERE)
    assert RowPositions.from_blob(found.to_blob()) == found
    assert int(found.mask(0, 1000).sum()) <= found.cardinality
    assert len(found.to_array()) == found.cardinality


def variant(data: bytes) -> None:
    """Read the fields of a variant, and check it: its metadata is the first bytes, as many as the first one says."""
    size = data[0] if data else 0
    names, value = read_names(data[1 : 1 + size]), data[1 + size :]
    if value and value[0] & 3 == 2:
        object_fields(names, value)
    check_variant(data[1 : 1 + size], value)


def table(data: bytes) -> None:
    """Plan, count and inspect a reference table in which one file of metadata is another one.

    The input starts with the table's name, a colon, the file's name in its metadata folder, and a zero byte.
    """
    place, _, content = data.partition(b"\0")
    name, _, file = place.decode("utf-8", "replace").partition(":")
    if name not in golden.tables():
        return
    known = golden.tables()[name]
    io = OneFileReplaced(known.io, file, content)
    found = Table.from_metadata(known.metadata_location, known.properties, io=io)
    for plan in (None, *filters(found)):
        found.scan(row_filter=plan).plan_files()
    for rows in (found.inspect.files, found.inspect.entries, found.inspect.manifests, found.inspect.partitions):
        rows()


def filters(found: Table) -> list[str]:
    """Return filters that ask for the bounds of the first columns of types that can be compared with a number."""
    numbers = [f.name for f in found.schema().fields if str(f.type) in ("int", "long", "double") and f.name.isalnum()]
    return [f"`{name}` > 3" for name in numbers[:2]]


class OneFileReplaced:
    """A storage in which one file holds other bytes."""

    def __init__(self, io: object, file: str, content: bytes) -> None:
        self._io, self._file, self._content = io, file, content

    def read(self, location: str, *, offset: int = 0, length: int | None = None) -> bytes:
        if location.rpartition("/")[2] == self._file:
            return self._content[offset : None if length is None else offset + length]
        return _stored(self._io, location, offset, length)


@cache
def _stored(io: object, location: str, offset: int, length: int | None) -> bytes:
    return io.read(location, offset=offset, length=length)


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (metadata, manifest, manifest_list, vector, variant, table)
}
