"""The modes of column metrics: none, counts, truncate(n) and full."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from airflow_iceberg.errors import InvalidInputError


class MetricsKind(Enum):
    """The metrics that are kept of a column."""

    NONE = "none"
    COUNTS = "counts"
    TRUNCATE = "truncate"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """A metrics mode as the property writes it: ``none``, ``counts``, ``truncate(16)``, ``full``.

    Attributes:
        length: code points or bytes kept of a bound, for TRUNCATE; else None.
    """

    kind: MetricsKind
    length: int | None = None

    @property
    def has_counts(self) -> bool:
        """Whether sizes and counts are kept."""
        return self.kind is not MetricsKind.NONE

    @property
    def has_bounds(self) -> bool:
        """Whether lower and upper bounds are kept."""
        return self.kind in (MetricsKind.TRUNCATE, MetricsKind.FULL)

    @staticmethod
    def parse(text: str) -> MetricsMode:
        """Read a mode, in any case; raises InvalidInputError for an unknown mode, or a length below 1."""
        word = text.strip().lower()
        if word in ("none", "counts", "full"):
            return MetricsMode(MetricsKind(word))
        found = _TRUNCATE.fullmatch(word)
        if found and int(found[1]) > 0:
            return MetricsMode(MetricsKind.TRUNCATE, int(found[1]))
        raise InvalidInputError(
            f"unknown metrics mode '{text}' (expected none, counts, truncate(length) with a length above 0, or full)"
        )


_TRUNCATE = re.compile(r"truncate\s*\(\s*(\d+)\s*\)")


NONE = MetricsMode(MetricsKind.NONE)
