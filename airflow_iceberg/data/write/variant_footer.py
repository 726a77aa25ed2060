"""Parquet's annotation VARIANT in the footer of a file: Arrow writes the two binaries without it.

Here: a sink that holds a file's end back until it is complete, and adds the annotation to the footer's schema (Thrift's
compact protocol).

Spec: Appendix A, Parquet (a variant is a group annotated VARIANT); Parquet's LogicalTypes, Variant.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow_iceberg.data.thrift import BYTE, STOP, STRUCT, CompactReader
from airflow_iceberg.errors import FormatError

MAGIC = b"PAR1"
# After the footer: its length, and the magic.
_TAIL_BYTES = 8
_SCHEMA_ID, _NAME_ID, _CHILDREN_ID, _LOGICAL_TYPE_ID = 2, 4, 5, 10
# LogicalType is a union: its field 16 is VariantType, whose field 1, a byte, is the version of the variants' encoding.
_VARIANT = bytes([STRUCT, 16 << 1, 1 << 4 | BYTE, 1, STOP, STOP])


class AnnotatingSink:
    """A file for writing that passes bytes to the Arrow file `sink`, and changes the end of the file.

    Args:
        variants: the paths of the groups that are variants.
    """

    def __init__(self, sink: Any, variants: Collection[tuple[str, ...]]) -> None:
        self._sink = sink
        self._variants = variants
        self._held: bytearray | None = None
        self.closed = False

    def write(self, data: Any) -> int:
        if self._held is None:
            self._sink.write(data)
        else:
            self._held += data
        return len(memoryview(data))

    def tell(self) -> int:
        return int(self._sink.tell()) + len(self._held or b"")

    def flush(self) -> None:
        """Do nothing: the owner of the sink flushes it."""

    def hold(self) -> None:
        """Hold back all following bytes: the end of the file."""
        self._held = bytearray()

    def finish(self) -> None:
        """Write the held bytes, with the annotations."""
        held, self._held = bytes(self._held or b""), None
        self._sink.write(annotated(held, self._variants))

    def close(self) -> None:
        self.closed = True
        self._sink.close()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


def annotated(tail: bytes, variants: Collection[tuple[str, ...]]) -> bytes:
    """Return the end of a Parquet file in which groups are annotated as variants.

    Args:
        tail: the last bytes of a file, with the whole footer.
        variants: the paths of the groups, with the inner groups of lists and maps.
    Raises:
        FormatError: no footer, or not a footer of Arrow's writer.
    """
    size = int.from_bytes(tail[-_TAIL_BYTES:-4], "little")
    start = len(tail) - _TAIL_BYTES - size
    if tail[-4:] != MAGIC or start < 0:
        raise FormatError("unexpected end of a parquet file that was just written (expected a footer)")
    footer = tail[start:-_TAIL_BYTES]
    for offset, last_id in reversed(_places(footer, variants)):
        insert = bytes([_LOGICAL_TYPE_ID - last_id << 4 | STRUCT]) + _VARIANT
        footer = footer[:offset] + insert + footer[offset:]
    return tail[:start] + footer + len(footer).to_bytes(4, "little") + MAGIC


def _places(footer: bytes, variants: Collection[tuple[str, ...]]) -> list[tuple[int, int]]:
    """Return the end offset and the last field id of the schema elements of variants."""
    reader = CompactReader(footer)
    found = []
    for field_id, kind in reader.fields():
        if field_id != _SCHEMA_ID:
            reader.skip(kind)
            continue
        size, _ = reader.list_header()
        elements = [_element(reader) for _ in range(size)]
        paths = _paths([(name, children) for name, children, _, _ in elements])
        found = [(end, last) for path, (_, _, end, last) in zip(paths, elements, strict=True) if path in variants]
    if len(found) != len(variants):
        raise FormatError(f"found {len(found)} groups of variants in a parquet file, expected {len(variants)}")
    return found


def _paths(elements: list[tuple[str, int]]) -> list[tuple[str, ...]]:
    """Return the path of each element of a schema, parents first; the root's is empty."""
    paths: list[tuple[str, ...]] = []
    open_: list[tuple[tuple[str, ...], int]] = []  # a group and the number of its children that follow
    for name, children in elements:
        path: tuple[str, ...] = ()
        if open_:
            parent, left = open_.pop()
            path = (*parent, name)
            if left > 1:
                open_.append((parent, left - 1))
        paths.append(path)
        if children:
            open_.append((path, children))
    return paths


def _element(reader: CompactReader) -> tuple[str, int, int, int]:
    """Return the name, number of children, offset of the stop byte and last field id of a schema element."""
    name, children, last = "", 0, 0
    for field_id, kind in reader.fields():
        if field_id == _NAME_ID:
            name = reader.binary().decode("utf-8")
        elif field_id == _CHILDREN_ID:
            children = reader.integer()
        else:
            reader.skip(kind)
        last = field_id
    return name, children, reader.at - 1, last
