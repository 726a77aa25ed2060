"""What the bytes of a Parquet footer say of its column chunks, before Arrow is asked.

Arrow trusts a footer there: a bound of a wrong length, a histogram of a wrong length, or an encrypted column, ends the
process. So these few facts are read here, and all else by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_iceberg.data.thrift import BINARY, I64, LIST, STRUCT, CompactReader
from airflow_iceberg.errors import FormatError

# Numbers of the enum Type.
PHYSICAL_TYPES: Mapping[int | None, str] = dict(
    enumerate(("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"))
)
FIXED_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
# Field ids: of FileMetaData, RowGroup, ColumnChunk, ColumnMetaData and Statistics.
_ROW_GROUPS, _COLUMNS, _META_DATA, _CRYPTO, _ENCRYPTED, _TYPE, _STATISTICS = 4, 1, 3, 8, 9, 1, 12
# The size statistics of a chunk, and in them the bytes of its texts and the histograms of its levels.
_SIZES, _TEXT_BYTES, _REPETITIONS, _DEFINITIONS = 16, 1, 2, 3
_BOUNDS = frozenset((1, 2, 5, 6))


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column chunk.

    Attributes:
        type: the number of its physical type; None if it does not say.
        bound_widths: the lengths of its bounds, in bytes.
        repetitions, definitions: the lengths of the histograms of its levels, 0 for none.
    """

    type: int | None = None
    is_encrypted: bool = False
    bound_widths: frozenset[int] = frozenset()
    has_text_bytes: bool = False
    repetitions: int = 0
    definitions: int = 0


def row_groups(footer: bytes) -> Iterator[list[Chunk]]:
    """Yield the column chunks of each row group.

    Raises:
        FormatError, IndexError: the bytes are no footer.
    """
    reader = CompactReader(footer)
    for field_id, kind in reader.fields():
        if field_id == _ROW_GROUPS and kind == LIST:
            for _ in range(_structs(reader)):
                yield from _columns(reader)
        else:
            reader.skip(kind)


def _columns(reader: CompactReader) -> Iterator[list[Chunk]]:
    for field_id, kind in reader.fields():
        if field_id == _COLUMNS and kind == LIST:
            yield [_chunk(reader) for _ in range(_structs(reader))]
        else:
            reader.skip(kind)


def _structs(reader: CompactReader) -> int:
    size, kind = reader.list_header()
    if size and kind != STRUCT:
        raise FormatError(f"unexpected list of Thrift type {kind} in the footer of a Parquet file")
    return size


def _chunk(reader: CompactReader) -> Chunk:
    found, is_encrypted = _Facts(), False
    for field_id, kind in reader.fields():
        if field_id == _META_DATA and kind == STRUCT:
            found = _meta_data(reader)
        else:
            is_encrypted = is_encrypted or field_id in (_CRYPTO, _ENCRYPTED)
            reader.skip(kind)
    return Chunk(
        type=found.type,
        is_encrypted=is_encrypted,
        bound_widths=frozenset(found.widths),
        has_text_bytes=found.has_text_bytes,
        repetitions=found.histograms.get(_REPETITIONS, 0),
        definitions=found.histograms.get(_DEFINITIONS, 0),
    )


class _Facts:
    """What is found of a chunk, as it is read."""

    def __init__(self) -> None:
        self.type: int | None = None
        self.widths: set[int] = set()
        self.histograms: dict[int, int] = {}
        self.has_text_bytes = False


def _meta_data(reader: CompactReader) -> _Facts:
    found = _Facts()
    for field_id, kind in reader.fields():
        if field_id == _TYPE:
            found.type = reader.integer()
        elif field_id == _STATISTICS and kind == STRUCT:
            for inner_id, inner in reader.fields():
                if inner_id in _BOUNDS and inner == BINARY:
                    found.widths.add(len(reader.binary()))
                else:
                    reader.skip(inner)
        elif field_id == _SIZES and kind == STRUCT:
            _add_sizes(reader, found)
        else:
            reader.skip(kind)
    return found


def _add_sizes(reader: CompactReader, found: _Facts) -> None:
    found.histograms, found.has_text_bytes = {}, False
    for field_id, kind in reader.fields():
        if field_id in (_REPETITIONS, _DEFINITIONS) and kind == LIST:
            # Arrow reads integers here, whatever the list says of its items.
            found.histograms[field_id], _ = reader.list_header()
            for _ in range(found.histograms[field_id]):
                reader.skip(I64)
        else:
            found.has_text_bytes = found.has_text_bytes or field_id == _TEXT_BYTES
            reader.skip(kind)
