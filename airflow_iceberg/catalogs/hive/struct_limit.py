"""How many structs the answer of a metastore has: one without fields is a byte there, and hundreds in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from thrift.transport.TTransport import TTransportException

from airflow_iceberg.storage.answer_limits import METASTORE_STRUCTS


class StructLimitError(TTransportException):  # type: ignore[misc] # thrift has no types
    """An answer has more structs than one may: another try gets the same one."""


class _Thread(threading.local):
    left: int | None = None


_thread = _Thread()


@contextmanager
def limited_structs() -> Iterator[None]:
    """Let the structs that this thread makes in the block be so many at most; they raise `StructLimitError`."""
    _thread.left = METASTORE_STRUCTS
    try:
        yield
    finally:
        _thread.left = None


def count_struct() -> None:
    """Count a struct that is made."""
    left = _thread.left
    if left is not None:
        if not left:
            raise StructLimitError(message=f"it has more than {METASTORE_STRUCTS} structs, the most for an answer")
        _thread.left = left - 1
