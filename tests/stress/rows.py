"""What an operation means for the rows, said once for the table (as SQL) and once for the judge (in Python)."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

PARTS = ("a", "b", "c", "d")
KEYS = 300
SCHEMA = {"part": "string", "k": "long", "tag": "string", "n": "long"}


class Row(NamedTuple):
    """A row of the table: whose it is (`tag`) and which of his (`n`) tell it from all others."""

    part: str
    k: int
    tag: str
    n: int


class Range(NamedTuple):
    """A predicate: rows of a part, or of all, with low <= k < high; without bounds all of a part."""

    part: str | None
    low: int | None
    high: int | None

    @property
    def sql(self) -> str:
        terms = [] if self.part is None else [f"part = '{self.part}'"]
        if self.low is not None:
            terms.append(f"k >= {self.low} and k < {self.high}")
        return " and ".join(terms) or "true"

    def selects(self, row: Row) -> bool:
        in_part = self.part is None or row.part == self.part
        return in_part and (self.low is None or self.high is None or self.low <= row.k < self.high)


def some_rows(random: Random, *, part: str | None = None, low: int = 0, high: int = KEYS) -> list[tuple[str, int]]:
    """Return (part, k) of new rows: near each other, so that files can be told apart by their bounds."""
    base, count = random.randrange(low, high), random.randint(1, 30)
    chosen = part or random.choice(PARTS)
    # One file in three has rows of several parts, and becomes several.
    mixed = part is None and random.random() < 0.3
    return [
        (random.choice(PARTS) if mixed else chosen, min(high - 1, base + random.randrange(12))) for _ in range(count)
    ]


def some_range(random: Random) -> Range:
    """Return a predicate: mostly narrow, sometimes one that metadata alone can prove."""
    if random.random() < 0.1:
        return Range(random.choice(PARTS), None, None)
    width = random.choice((3, 10, 30, 100))
    low = random.randrange(0, KEYS - width)
    return Range(random.choice((None, *PARTS)), low, low + width)


def effect(kind: str, arguments: dict[str, Any], tag: str) -> Callable[[frozenset[Row]], frozenset[Row]]:
    """Return what a committed operation does to the rows."""
    new = frozenset(Row(part, k, tag, n) for n, (part, k) in enumerate(arguments.get("rows", ())))
    if kind == "append":
        return lambda rows: rows | new
    if kind == "delete":
        gone = Range(*arguments["range"])
        return lambda rows: frozenset(row for row in rows if not gone.selects(row))
    if kind == "overwrite":
        replaced = Range(*arguments["range"])
        return lambda rows: frozenset(row for row in rows if not replaced.selects(row)) | new
    if kind == "overwrite_partitions":
        touched = {row.part for row in new}
        return lambda rows: frozenset(row for row in rows if row.part not in touched) | new
    return lambda rows: rows
