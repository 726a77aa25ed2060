"""Metadata of variants, as a writer of variants makes it; the package reads and re-encodes values only."""

from collections.abc import Sequence
from itertools import accumulate, pairwise


def encode_names(names: Sequence[str]) -> bytes:
    """Return the metadata of a dictionary of names."""
    data = [name.encode() for name in names]
    ends = list(accumulate(map(len, data), initial=0))
    width = max(1, (max(len(data), ends[-1]).bit_length() + 7) // 8)
    is_sorted = all(left < right for left, right in pairwise(data))
    numbers = b"".join(number.to_bytes(width, "little") for number in (len(data), *ends))
    return bytes([1 | is_sorted << 4 | (width - 1) << 6]) + numbers + b"".join(data)
