"""Variants as a writer makes their metadata, which the package only reads, and as Python values."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from airflow_iceberg.format.values.variant import Primitive


def encode_names(names: Sequence[str]) -> bytes:
    data = [name.encode() for name in names]
    ends = list(accumulate(map(len, data), initial=0))
    width = max(1, (max(len(data), ends[-1]).bit_length() + 7) // 8)
    is_sorted = all(left < right for left, right in pairwise(data))
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(data), *ends))
    return bytes([1 | is_sorted << 4 | (width - 1) << 6]) + numbers + b"".join(data)


def plain(node: Any) -> Any:
    if isinstance(node, Primitive):
        return node.value
    if isinstance(node, Mapping):
        return {name: plain(child) for name, child in node.items()}
    return [plain(child) for child in node]
