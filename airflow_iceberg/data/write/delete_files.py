"""Delete files: positions of deleted rows, in position delete files (version 2) or deletion vectors (version 3).

Not here: which rows are deleted (`data.row_changes`, `data.edit_rows`), and reading (`data.read.deletes`).

Spec: Position Delete Files; Deletion Vectors.
"""

from __future__ import annotations

import io as bytes_io
import uuid
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from airflow_iceberg.data.read.deletes import POSITION_SCHEMA
from airflow_iceberg.data.write.avro_file import encoded_blocks, header_metadata, new_blocks
from airflow_iceberg.data.write.options import WriteOptions
from airflow_iceberg.data.write.parquet_file import encoder_settings
from airflow_iceberg.format.arrow.buffers import number_array, text_array
from airflow_iceberg.format.deletion_vectors import RowPositions
from airflow_iceberg.format.manifests.entries import DataFile, FileContent
from airflow_iceberg.format.metadata_columns import POSITION
from airflow_iceberg.format.puffin import DELETION_VECTOR, Blob, write_puffin
from airflow_iceberg.format.types import LongType
from airflow_iceberg.format.values.bytes import to_bytes
from airflow_iceberg.storage.base import FileIO

PATH_ID, POSITION_ID = 2147483546, 2147483545
# A row of a position delete file before it is encoded: the position, since the path is the same in all of them.
_ROW_BYTES, _MOST_ROWS_PER_GROUP = 8, 1 << 20
# The bytes of paths that an Avro delete file repeats at a time.
_PORTION_BYTES = 16 << 20


def write_position_deletes(
    io: FileIO, location: str, file: DataFile, positions: RowPositions, options: WriteOptions
) -> DataFile:
    """Write a position delete file for one data file, and describe it.

    Spec: Position Delete Files: sorted by path and position. The bounds of the path are never truncated, so that
    readers see that all positions are in one file.
    """
    encode = _avro_deletes if options.file_format == "avro" else _parquet_deletes
    data, numbers = encode(file.file_path, positions, options), positions.to_array()
    io.create(location, data)
    path, first, last = file.file_path.encode(), int(numbers[0]), int(numbers[-1])
    return DataFile(
        content=FileContent.POSITION_DELETES,
        file_path=location,
        file_format=options.file_format,
        partition=file.partition,
        spec_id=file.spec_id,
        record_count=len(numbers),
        file_size_in_bytes=len(data),
        lower_bounds={PATH_ID: path, POSITION_ID: to_bytes(LongType(), first)},
        upper_bounds={PATH_ID: path, POSITION_ID: to_bytes(LongType(), last)},
        referenced_data_file=file.file_path,
    )


def _parquet_deletes(path: str, positions: RowPositions, options: WriteOptions) -> bytes:
    """Return a Parquet file with the deleted positions of one data file."""
    import pyarrow.parquet as pq

    # One path for all rows: as a dictionary it takes no memory.
    path_type = pa.dictionary(pa.int32(), pa.string())
    path_field = pa.field("file_path", path_type, False, {"PARQUET:field_id": str(PATH_ID)})
    schema = pa.schema([path_field, pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(POSITION_ID)})])
    numbers, sink = positions.to_array(), bytes_io.BytesIO()
    rows_per_group = max(1, min(options.row_group_size_bytes // _ROW_BYTES, _MOST_ROWS_PER_GROUP))
    with pq.ParquetWriter(sink, schema, **encoder_settings(options)) as writer:
        for start in range(0, len(numbers), rows_per_group):
            part = number_array(numbers[start : start + rows_per_group])
            indices = number_array(np.zeros(len(part), np.int32))
            paths = pa.DictionaryArray.from_arrays(indices, text_array([path]))
            writer.write_table(pa.Table.from_arrays([paths, part], schema=schema))
    return sink.getvalue()


def _avro_deletes(path: str, positions: RowPositions, options: WriteOptions) -> bytes:
    """Return an Avro file with the deleted positions of one data file."""
    metadata = header_metadata(POSITION_SCHEMA, **{"delete-type": "position"})
    blocks, numbers = new_blocks(metadata, options, name=f"{path} {uuid.uuid4()}"), positions.to_array()
    pieces, rows_per_portion = [blocks.header], max(1, _PORTION_BYTES // len(path.encode()))
    for start in range(0, len(numbers), rows_per_portion):
        part = number_array(numbers[start : start + rows_per_portion])
        indices = number_array(np.zeros(len(part), np.int32))
        paths = pa.DictionaryArray.from_arrays(indices, text_array([path])).cast(pa.string())
        pieces += encoded_blocks(blocks, POSITION_SCHEMA, pa.table({"file_path": paths, "pos": part}))
    return b"".join(pieces)


def write_vectors(io: FileIO, location: str, vectors: Sequence[tuple[DataFile, RowPositions]]) -> list[DataFile]:
    """Write deletion vectors into one Puffin file, and describe them."""
    blobs = [
        Blob(
            type=DELETION_VECTOR,
            data=positions.to_blob(),
            fields=(POSITION.id,),
            properties={"referenced-data-file": file.file_path, "cardinality": str(positions.cardinality)},
        )
        for file, positions in vectors
    ]
    data, places = write_puffin(blobs, properties={"created-by": "airflow-iceberg"})
    io.create(location, data)
    return [
        DataFile(
            content=FileContent.POSITION_DELETES,
            file_path=location,
            file_format="puffin",
            partition=file.partition,
            spec_id=file.spec_id,
            record_count=positions.cardinality,
            file_size_in_bytes=len(data),
            referenced_data_file=file.file_path,
            content_offset=place.offset,
            content_size_in_bytes=place.length,
        )
        for (file, positions), place in zip(vectors, places, strict=True)
    ]
