"""Line charts as SVG, drawn on the server: no script, and a text that says the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 150
_TOP, _BOTTOM = 8, 4
MOST_POINTS = 240


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """A line over time.

    Attributes:
        line, area: the points of the line, and those of the area below it, as SVG has them.
        summary: what the line shows, for those who do not see it.
        last, highest: as text.
        since_ms, until_ms: the ends of the time axis.
    """

    title: str
    line: str
    area: str
    summary: str
    last: str
    highest: str
    since_ms: int
    until_ms: int


def sampled(points: Sequence[tuple[int, int]], most: int = MOST_POINTS) -> list[tuple[int, int]]:
    """Return so many points at most, the first and the last one among them."""
    if len(points) <= most:
        return list(points)
    step = (len(points) - 1) / (most - 1)
    return [points[round(number * step)] for number in range(most)]


def draw(title: str, points: Sequence[tuple[int, int]], shown: Callable[[int], str]) -> Chart | None:
    """Draw numbers over time; nothing for less than two points.

    Args:
        points: times in milliseconds, and numbers, the oldest first.
        shown: makes text of a number.
    """
    chosen = sampled(points)
    if len(chosen) < 2:
        return None
    times, values = [when for when, _ in chosen], [value for _, value in chosen]
    since, until, high = min(times), max(times), max(*values, 1)
    places = [
        f"{(when - since) / max(until - since, 1) * WIDTH:.1f},"
        f"{HEIGHT - _BOTTOM - max(value, 0) / high * (HEIGHT - _TOP - _BOTTOM):.1f}"
        # A clock may have gone back; the line does not.
        for when, value in sorted(chosen)
    ]
    first, last, highest = shown(values[0]), shown(values[-1]), shown(max(values))
    return Chart(
        title=title,
        line=" ".join(places),
        area=f"0,{HEIGHT} {' '.join(places)} {WIDTH},{HEIGHT}",
        summary=f"{title}: from {first} to {last}; at most {highest}.",
        last=last,
        highest=highest,
        since_ms=since,
        until_ms=until,
    )
