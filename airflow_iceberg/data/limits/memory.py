"""How much memory the rows of a file may need: one limit, for the readers of every format.

A few bytes of a data file may become gigabytes: pages that inflate, one long text for a million rows, lists of a
billion equal items. Who can write a file must not end the process that reads it. So the readers add up what the next
rows may become, choose how many they read at once, and refuse a file of which no portion is small enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_iceberg.errors import FormatError, InvalidInputError, advised
from airflow_iceberg.format.decompression import size_limit
from airflow_iceberg.storage.base import FileIO

SETTING = "files.max-memory-mb"
DEFAULT_BYTES = 512 << 20
# Bytes that are really in the file are no bomb: wide tables with large row groups need more than the limit.
TIMES_STORED = 16
_BATCH_BYTES = 256 << 20
_MB = 1 << 20
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The limit for one file that is read.

    Attributes:
        most_bytes: what cannot be read in portions may take: a page of each column, a dictionary, a list, a value.
        location: the file, for messages.
    """

    most_bytes: int
    location: str

    @property
    def batch_bytes(self) -> int:
        """What the rows that are read at once may take."""
        return min(_BATCH_BYTES, self.most_bytes // 2)

    def inflated(self, stored: int) -> int:
        """Return the largest size of a block of the file, of `stored` bytes, after decompression."""
        return min(size_limit(stored), max(self.most_bytes, TIMES_STORED * stored))

    def check(self, needed: int, stored: int, what: str) -> None:
        """Refuse what would need more than the limit, and more than `TIMES_STORED` times what is stored of it.

        Args:
            what: what needs it, such as "the footer".
        Raises:
            FormatError: it names the file, the limit, and what to do.
        """
        most = max(self.most_bytes, TIMES_STORED * stored)
        if needed > most:
            raise self.refusal(f"{what} may take {needed} bytes of memory, expected {most} at most")

    def refusal(self, text: str) -> FormatError:
        """Return the error of a file that may need too much memory."""
        error = FormatError(f"unexpected size in memory: {text}", path=self.location)
        advice = f"if you trust the file, set {SETTING} of the connection to more than {self.most_bytes // _MB}"
        return advised(error, advice)


def memory_limit(io: FileIO, location: str) -> MemoryLimit:
    """Return the limit for a file: the property `files.max-memory-mb` of its connection, or the default.

    Raises:
        InvalidInputError: the property is no number of megabytes.
    """
    properties = getattr(io, "current_properties", None)
    return MemoryLimit(_bytes_of((properties() if properties is not None else {}).get(SETTING)), location)


def _bytes_of(given: Any) -> int:
    text = str(given if given is not None else "").strip()
    if not text:
        return DEFAULT_BYTES
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS or not int(text):
        raise InvalidInputError(
            f"{SETTING} is {text!r}, expected a number of megabytes, such as {DEFAULT_BYTES // _MB}"
        )
    return int(text) * _MB
