"""Lengths in an ORC file, of lists and of the texts of dictionaries: how large they are at most, by the heads of runs.

Spec: ORC Specification v1, Run Length Encoding, versions 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_iceberg.data.limits.protobuf import varint

# Bits of a value by their code in version 2, from the code 23 on.
_WIDTHS = (24, 26, 28, 30, 32, 40, 48, 56, 64)
_SHORT_REPEAT, _DIRECT, _PATCHED, _DELTA = range(4)


def most_of(data: bytes, *, is_version_2: bool, is_sum: bool) -> int:
    """Return the largest length at most, or the sum of all of them at most.

    Raises:
        ValueError, IndexError: the bytes are no runs.
    """
    found = _runs_2(data) if is_version_2 else _runs_1(data)
    if is_sum:
        return sum(count * largest for count, largest in found)
    return max((largest for _, largest in found), default=0)


def _runs_1(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the number of values of each run, and the largest of them."""
    at = 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 0x80:
            count, delta = control + 3, data[at]
            base, at = varint(data, at + 1)
            yield count, max(base, base + (delta - 256 if delta > 127 else delta) * (count - 1))
            continue
        largest = 0
        for _ in range(256 - control):
            value, at = varint(data, at)
            largest = max(largest, value)
        yield 256 - control, largest


def _runs_2(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at < len(data):
        first = data[at]
        kind = first >> 6
        if kind == _SHORT_REPEAT:
            width = (first >> 3 & 7) + 1
            yield (first & 7) + 3, int.from_bytes(data[at + 1 : at + 1 + width], "big")
            at += 1 + width
            continue
        code, count = first >> 1 & 0x1F, ((first & 1) << 8 | data[at + 1]) + 1
        width = _width(code)
        if kind == _DIRECT:
            yield count, (1 << width) - 1
            at += 2 + (count * width + 7) // 8
        elif kind == _PATCHED:
            third, fourth = data[at + 2], data[at + 3]
            base_bytes, patch = (third >> 5) + 1, _width(third & 0x1F)
            base = int.from_bytes(data[at + 4 : at + 4 + base_bytes], "big")
            yield count, base + (1 << (width + patch)) - 1
            gap = (fourth >> 5) + 1 + patch
            entry = next(each for each in (*range(1, 25), *_WIDTHS[1:], gap) if each >= gap)
            at += 4 + base_bytes + (count * width + 7) // 8 + ((fourth & 0x1F) * entry + 7) // 8
        else:
            width = width if code else 0
            base, at = varint(data, at + 2)
            step, at = varint(data, at)
            step = abs((step >> 1) ^ -(step & 1))
            more = (count - 2) * ((1 << width) - 1) if width else (count - 2) * step
            yield count, base + step + max(more, 0)
            at += (max(count - 2, 0) * width + 7) // 8


def _width(code: int) -> int:
    return code + 1 if code < 23 else _WIDTHS[code - 23]
