"""Index manifests: all index files of a snapshot. The content of the files is read by `index_files`."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.json_fields import Fields
from airflow_iceberg.paimon.binary_row import RowDecoder
from airflow_iceberg.paimon.containers import read_records
from airflow_iceberg.paimon.data_manifests import Partition
from airflow_iceberg.paimon.manifest_lists import bytes_of, check_version
from airflow_iceberg.paimon.schema import PaimonSchema

VERSION = 1
HASH = "HASH"
DELETION_VECTORS = "DELETION_VECTORS"


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorRange:
    """The place of one data file's deletion vector.

    Attributes:
        data_file: the name of the data file.
        offset: the first byte of the vector in the index file.
        length: the bytes of the vector's content with 32 bits, of the whole vector with 64.
        cardinality: the number of deleted rows; None in files of Paimon 0.9 and older.
    """

    data_file: str
    offset: int
    length: int
    cardinality: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GlobalIndex:
    """The rows (first and last included) and columns of a global index."""

    first_row_id: int
    last_row_id: int
    field_id: int
    extra_field_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexFile:
    """An index file.

    Attributes:
        index_type: HASH, DELETION_VECTORS, or the name of a global index.
        row_count: the number of hashes or of deletion vectors.
        vectors: the deletion vectors; empty for other types.
        external_path: the location of the file if it is not below the table.
    """

    partition: Partition
    bucket: int
    index_type: str
    file_name: str
    file_size_bytes: int
    row_count: int
    vectors: tuple[VectorRange, ...] = ()
    external_path: str | None = None
    global_index: GlobalIndex | None = None


def read_index_manifest(
    data: bytes, schema: PaimonSchema, *, path: str | None = None, is_limited: bool = False
) -> tuple[IndexFile, ...]:
    """Return the index files that an index manifest names; arguments as of `read_records`."""
    decoder = RowDecoder(field.type for field in schema.partition_fields)
    records = read_records(data, path=path, is_limited=is_limited)
    return tuple(_index_file(Fields(record, f"[{index}]", path), decoder) for index, record in enumerate(records))


def _index_file(item: Fields, decoder: RowDecoder) -> IndexFile:
    check_version(item, VERSION, "index manifest")
    if item.int("_KIND") != 0:
        item.fail("_KIND", f"unexpected kind {item.int('_KIND')} (expected 0, since an index manifest is complete)")
    ranges = item.data.get("_DELETIONS_VECTORS_RANGES") or ()
    partition = bytes_of(item, "_PARTITION")
    result = IndexFile(
        partition=decoder.decode(partition, where=item.place("_PARTITION"), path=item.path),
        bucket=item.int("_BUCKET"),
        index_type=item.str("_INDEX_TYPE"),
        file_name=item.str("_FILE_NAME"),
        file_size_bytes=item.int("_FILE_SIZE"),
        row_count=item.int("_ROW_COUNT"),
        vectors=tuple(_vector(item, index, value) for index, value in enumerate(ranges)),
        external_path=item.opt_str("_EXTERNAL_PATH"),
        global_index=_global_index(item.opt_child("_GLOBAL_INDEX")),
    )
    names = {vector.data_file for vector in result.vectors}
    if len(names) < len(result.vectors):
        raise FormatError(
            f"two deletion vectors of one file in '{item.place('_DELETIONS_VECTORS_RANGES')}'", path=item.path
        )
    return result


def _vector(item: Fields, index: int, value: object) -> VectorRange:
    place = f"{item.place('_DELETIONS_VECTORS_RANGES')}[{index}]"
    inner = Fields(value, place, item.path)  # type: ignore[arg-type]  # Fields checks it
    result = VectorRange(
        data_file=inner.str("f0"),
        offset=inner.int("f1"),
        length=inner.int("f2"),
        cardinality=inner.opt_int("_CARDINALITY"),
    )
    if result.offset < 0 or result.length < 0:
        raise FormatError(f"unexpected {result.length} bytes at {result.offset} in '{place}'", path=item.path)
    return result


def _global_index(item: Fields | None) -> GlobalIndex | None:
    if item is None:
        return None
    return GlobalIndex(
        first_row_id=item.int("_ROW_RANGE_START"),
        last_row_id=item.int("_ROW_RANGE_END"),
        field_id=item.int("_INDEX_FIELD_ID"),
        extra_field_ids=item.int_list("_EXTRA_FIELD_IDS") if "_EXTRA_FIELD_IDS" in item else (),
    )
