"""Variants of Arrow rows, checked and converted to the two binaries that a table stores.

Accepted are structs of `metadata` and `value` in any order and of any binary type, structs with `typed_value`, and
Arrow's extension type of these. Values are written unchanged; only shredded ones are joined first. Bytes that are no
variant are refused, like other values that no type has (`data.cast.valid`).
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from airflow_iceberg.data.cast.valid import first_refused
from airflow_iceberg.data.variant_shredding import check_variant_columns, read_variant
from airflow_iceberg.errors import FormatError, InvalidInputError, UnsupportedError
from airflow_iceberg.format.arrow.types import type_to_arrow
from airflow_iceberg.format.types import VariantType
from airflow_iceberg.format.values.valid_variant import check_variant

_VERSION = 1
_PARTS = ("metadata", "value", "typed_value")
# Rows whose bytes are looked at together.
_BATCH_ROWS = 4096


class BadVariant(Exception):
    """A row without a valid variant; the index is relative to the checked array."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(problem)
        self.index = index


def check_variant_type(arrow: pa.DataType, name: str, source: str) -> None:
    """Raise InvalidInputError for an Arrow type that cannot hold variants."""
    message = (
        f"column '{name}' is {arrow} in {source} and cannot become variant: expected a struct of the binaries metadata "
        f"and value"
    )
    try:
        check_variant_columns(arrow)
    except (FormatError, UnsupportedError) as error:
        raise InvalidInputError(f"{message}: {error}" if kinds.is_struct(arrow) else message) from error
    if not {field.name for field in arrow} <= set(_PARTS):
        raise InvalidInputError(message)


def variant_column(array: pa.Array) -> pa.Array:
    """Return variants as structs of two binaries, neither of them null.

    Raises:
        BadVariant: a row lacks one of the two, or they are not the bytes of a variant.
    """
    missing = array.is_null()
    is_shredded = array.type.get_field_index("typed_value") >= 0
    for name in ("metadata",) if is_shredded else ("metadata", "value"):
        part = array.field(name).cast(pa.binary())
        _refuse(pc.and_not(pc.equal(pc.binary_length(pc.fill_null(part, b"")), 0), missing), f"no {name} of a variant")
    try:
        plain = read_variant(array)
    except FormatError as error:
        raise BadVariant(first_refused(array, read_variant, (FormatError,)), str(error)) from None
    parts = [pc.if_else(missing, b"", plain.field(name)) for name in ("metadata", "value")]
    _refuse(pc.and_not(pc.equal(pc.binary_length(parts[1]), 0), missing), "no value of a variant")
    first = pc.binary_slice(parts[0], 0, 1)
    odd = [item for item in first.unique().to_pylist() if item and item[0] & 0x0F != _VERSION]
    _refuse(pc.is_in(first, pa.array(odd, pa.binary())), f"metadata of a variant that is not of version {_VERSION}")
    _check_bytes(parts[0], parts[1])
    mask = missing if array.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(type_to_arrow(VariantType()).fields), mask=mask)


def _check_bytes(metadata: pa.Array, value: pa.Array) -> None:
    for first in range(0, len(value), _BATCH_ROWS):
        pairs = zip(
            metadata.slice(first, _BATCH_ROWS).to_pylist(), value.slice(first, _BATCH_ROWS).to_pylist(), strict=True
        )
        for index, (names, data) in enumerate(pairs, first):
            if not data:
                continue  # below a null
            try:
                check_variant(names, data)
            except FormatError as error:
                raise BadVariant(index, str(error)) from None


def _refuse(wrong: pa.Array, problem: str) -> None:
    index = pc.index(wrong, True).as_py()
    if index >= 0:
        raise BadVariant(index, problem)
