"""Text columns as the dictionaries that Parquet stores: kept from file to file, and plain where that is smaller.

A file that is rewritten has most of its short texts in small dictionaries. Read as such, they are written again without
looking up a single value: a quarter of the time of a compaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from airflow_iceberg.format.arrow.buffers import number_array, numbers_of

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# A column chunk with no more bytes than this for each value, before compression, holds indices of a small dictionary.
_BYTES_PER_VALUE = 2
# Encodings that Arrow reads as dictionaries. After a writer has given up the dictionary, a column may have others:
# parquet-java uses DELTA_BYTE_ARRAY in its second version of pages.
_ENCODINGS = frozenset(("PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"))
# The largest array of plain texts; Arrow's limit is less than twice this.
_MOST_TEXT_BYTES = 1 << 30
SAMPLED_ROWS = 65_536
# Distinct values in the second half of a sample, for each in the first, from which on new values keep coming.
_AS_BEFORE = 0.9
# The rows that show that values hardly repeat, and the share of them that have a value of their own then.
_FEW_ROWS, _DISTINCT = 4_096, 0.995


def dictionary_columns(metadata: pq.FileMetaData, schema: pa.Schema) -> list[str]:
    """Return the top-level text columns of a file that are stored as small dictionaries in every row group."""
    texts = {field.name for field in schema if kinds.is_string(field.type)}
    found = []
    for leaf in range(metadata.num_columns if texts else 0):
        path = metadata.schema.column(leaf).path
        if path in texts and all(
            _is_small(metadata.row_group(number).column(leaf)) for number in range(metadata.num_row_groups)
        ):
            found.append(path)
    return found


def _is_small(chunk: pq.ColumnChunkMetaData) -> bool:
    return bool(
        chunk.has_dictionary_page
        and chunk.total_uncompressed_size <= _BYTES_PER_VALUE * chunk.num_values
        and _ENCODINGS.issuperset(chunk.encodings)
    )


def is_dictionary_of(found: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a type is a dictionary of values of `kind` that is kept.

    Categories of pandas have indices of one byte, too few for the dictionaries of two files.
    """
    return bool(found.equals(pa.dictionary(pa.int32(), kind)))


def has_dictionaries(schema: pa.Schema) -> bool:
    """Return whether a column is a dictionary."""
    return any(kinds.is_dictionary(field.type) for field in schema)


def has_columns(found: pa.Schema, expected: pa.Schema) -> bool:
    """Return whether rows have the expected columns, as dictionaries or not."""
    return len(found) == len(expected) and all(
        ours.equals(field) or (ours.name == field.name and _value_type(ours.type).equals(_value_type(field.type)))
        for ours, field in zip(found, expected, strict=True)
    )


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if kinds.is_dictionary(kind) and is_dictionary_of(kind, kind.value_type) else kind


def with_field_ids(batch: pa.RecordBatch | pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the field ids of the writer's schema; texts that were read as dictionaries remain so."""
    fields = [
        field.with_type(column.type) if is_dictionary_of(column.type, field.type) else field
        for field, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.Table.from_arrays(batch.columns, schema=pa.schema(fields))


def with_types(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in the types of a schema that differs only in which columns are dictionaries."""
    if table.schema.equals(schema):
        return table
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if kinds.is_dictionary(field.type) and not kinds.is_dictionary(column.type):
            column = column.dictionary_encode()
        elif kinds.is_dictionary(column.type) and not kinds.is_dictionary(field.type):
            column = plain(column)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=schema)


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the texts of a dictionary column, in chunks that are not too large for Arrow."""
    kind, pieces = column.type.value_type, []
    for chunk in column.chunks:
        longest = pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0
        step = max(1, _MOST_TEXT_BYTES // max(1, longest))
        pieces += [chunk.slice(start, step).cast(kind) for start in range(0, len(chunk), step)]
    return pa.chunked_array(pieces, type=kind)


def without_unused(table: pa.Table, *, if_larger: bool = False) -> pa.Table:
    """Return rows whose dictionaries have no unused values.

    A value that was deleted, or that is in another file, must not remain in the dictionary of this one: a user who
    deletes it later would not find this file.

    Args:
        if_larger: change only dictionaries that are larger than the texts of the rows.
    """
    for at, column in enumerate(table.columns):
        if not kinds.is_dictionary(column.type) or not column.num_chunks:
            continue
        column = column.unify_dictionaries()
        size = column.chunk(0).dictionary.nbytes
        if not if_larger or (size > column.chunk(0).indices.nbytes and size > _text_bytes(column)):
            table = table.set_column(at, table.field(at), _with_used_values(column))
    return table


def _with_used_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with the used values of its one dictionary, in the order of the rows.

    The rows are not decoded: their texts may be many times as large as the dictionary.
    """
    dictionary = column.chunk(0).dictionary
    used = column.chunk(0).indices.slice(0, 0)
    for chunk in column.chunks:
        used = pc.unique(pa.chunked_array([used, chunk.indices])).drop_null()
        if len(used) == len(dictionary):  # after some rows already, as a rule
            return column
    places = np.zeros(len(dictionary), np.int32)
    places[numbers_of(used)] = np.arange(len(used), dtype=np.int32)
    moved, values = number_array(places), dictionary.take(used)
    chunks = [pa.DictionaryArray.from_arrays(moved.take(chunk.indices), values) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=column.type)


def plain_bytes(table: pa.Table) -> int:
    """Return the size of rows in memory without dictionaries, to which later rows may force a writer to decode them."""
    if not has_dictionaries(table.schema):
        return int(table.nbytes)
    return sum(_text_bytes(one) if kinds.is_dictionary(one.type) else int(one.nbytes) for one in table.columns)


def _text_bytes(column: pa.ChunkedArray) -> int:
    """Return the bytes of the texts of a dictionary column, with the offset of each."""
    lengths = [pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
    return 4 * len(column) + (pc.sum(pa.chunked_array(lengths, type=pa.int32())).as_py() or 0)


def join(tables: Sequence[pa.Table], *, most_bytes: int) -> pa.Table:
    """Return the rows of all tables; a column is a dictionary if it is one in all of them, of at most `most_bytes`."""
    first = tables[0].schema
    if any(not table.schema.equals(first) for table in tables):
        first = pa.schema([_shared(first.field(at), tables, at) for at in range(len(first))])
        tables = [with_types(table, first) for table in tables]
    joined = pa.concat_tables(tables)
    if not has_dictionaries(first):
        return joined
    joined = joined.unify_dictionaries()
    small = [_plain_if_large(field, joined.column(at), most_bytes) for at, field in enumerate(joined.schema)]
    return with_types(joined, pa.schema(small))


def _shared(field: pa.Field, tables: Sequence[pa.Table], at: int) -> pa.Field:
    found = [table.schema.field(at).type for table in tables]
    return field.with_type(next((kind for kind in found if not kinds.is_dictionary(kind)), field.type))


def _plain_if_large(field: pa.Field, column: pa.ChunkedArray, most_bytes: int) -> pa.Field:
    if not kinds.is_dictionary(field.type) or not column.num_chunks:
        return field
    return field.with_type(field.type.value_type) if column.chunk(0).dictionary.nbytes > most_bytes else field


def plain_columns(rows: pa.Table, *, most_bytes: int, sampled: int = SAMPLED_ROWS) -> frozenset[str]:
    """Return the top-level primitive columns whose dictionary would be given up, or be larger than the values.

    The encoder finds that, too, but only after it has looked up the values of a million rows. A sample shows it before:
    its dictionary and indices are larger than its values, parquet-java's rule for the first page of a column; or new
    values keep coming, like the keys of sorted rows, more than a dictionary can hold.

    Args:
        rows: the first row group of a file.
        most_bytes: the largest size of a dictionary.
        sampled: the number of rows that are looked at.
    """
    sample = rows.slice(0, sampled)
    found = set()
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if not (kinds.is_primitive(field.type) or kinds.is_string(field.type) or kinds.is_decimal(field.type)):
            continue
        if kinds.is_boolean(field.type) or not sample.num_rows:
            continue  # never in a dictionary
        if _hardly_repeats(rows.column(field.name)):
            found.add(field.name)
            continue
        distinct = _distinct(column)
        width = column.nbytes / sample.num_rows
        indices = sample.num_rows * max(distinct, 2).bit_length() / 8
        in_all = distinct * width * rows.num_rows / sample.num_rows  # if values keep coming in
        if (
            distinct * width + indices >= sample.num_rows * width
            or distinct * width > most_bytes
            or (in_all > most_bytes and _keeps_coming(column, distinct))
        ):
            found.add(field.name)
    return frozenset(found)


def _hardly_repeats(column: pa.ChunkedArray) -> bool:
    """Return whether there are hundreds of thousands of values at least, which few rows show already.

    Values do not repeat among neighbours, nor among rows from all over the column: each alone could be chance.
    """
    count = len(column)
    if count < 2 * _FEW_ROWS or _distinct(column.slice(0, _FEW_ROWS)) < _DISTINCT * _FEW_ROWS:
        return False
    step = count // _FEW_ROWS
    # Not at regular distances, which would miss values that come round and round.
    places = np.arange(_FEW_ROWS) * step + np.random.Generator(np.random.PCG64(1)).integers(0, step, _FEW_ROWS)
    return _distinct(column.take(number_array(places))) >= _DISTINCT * _FEW_ROWS


def _keeps_coming(column: pa.ChunkedArray, distinct: int) -> bool:
    """Return whether the second half of a column has nearly as many new values as the first."""
    before = _distinct(column.slice(0, len(column) // 2))
    return distinct - before >= _AS_BEFORE * before


def _distinct(column: pa.ChunkedArray) -> int:
    """Return the number of distinct values, without nulls; `count_distinct` needs more than twice the time."""
    found = pc.unique(column)
    return len(found) - int(found.null_count)
