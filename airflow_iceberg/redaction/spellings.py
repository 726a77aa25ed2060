"""Other spellings of a text: entities of HTML and XML, escapes of JSON, of Python and of addresses.

A secret is found in the text as it is meant, and taken out of the text as it is written.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([\"'\\/`nrt]))|&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|quot|apos|amp|lt|gt|nbsp|colon|equals|commat|sol|num|Tab|NewLine);"
)
_PERCENT = re.compile(r"%[0-9a-fA-F]{2}")
# Only what hides the signs of a pair or of an address.
_NEEDS_PERCENT = re.compile(r"%(?:25)*(?:3[ADad]|22|27|40|[46][1-9A-Fa-f]|[57][0-9Aa])")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Spelling:
    """A text as it is meant.

    Attributes:
        text: the meant text.
        starts: where pieces of it begin, each of which is either written as it is meant, or one sign.
        written: where these pieces begin in the written text; one more for its end.
        is_sign: whether a piece is one sign that is written as several.
    """

    text: str
    starts: tuple[int, ...]
    written: tuple[int, ...]
    is_sign: tuple[bool, ...]

    def written_span(self, start: int, end: int) -> tuple[int, int]:
        """Return where a part of the meant text stands in the written one."""
        return self._place(start, is_end=False), self._place(end - 1, is_end=True)

    def _place(self, position: int, *, is_end: bool) -> int:
        piece = bisect_right(self.starts, position) - 1
        if self.is_sign[piece]:
            return self.written[piece + 1] if is_end else self.written[piece]
        return self.written[piece] + position - self.starts[piece] + is_end


def spellings(text: str) -> Iterator[tuple[Spelling, ...]]:
    """Yield what a text may mean; each as the steps from the written text to it."""
    steps: tuple[Spelling, ...] = ()
    meant = text
    for _ in range(_DEEPEST):
        step = _escapes(meant) if "\\" in meant or "&" in meant else None
        if step is None and "%" in meant and _NEEDS_PERCENT.search(meant):
            step = _percent(meant)
        if step is None:
            return
        steps, meant = (*steps, step), step.text
        yield steps


def _escapes(text: str) -> Spelling | None:
    return _replaced(text, _ESCAPE, _meant)


def _percent(text: str) -> Spelling | None:
    return _replaced(text, _PERCENT, lambda each: chr(int(each[0][1:], 16)))


def _meant(each: re.Match[str]) -> str:
    code = each[1] or each[2]
    if code:
        return chr(int(code, 16))
    if each[3]:
        return _PLAIN.get(each[3], each[3])
    return html.unescape(each[0])[:1]


def _replaced(text: str, pattern: re.Pattern[str], meant: object) -> Spelling | None:
    pieces: list[str] = []
    starts: list[int] = []
    written: list[int] = []
    is_sign: list[bool] = []
    length = position = 0
    for each in pattern.finditer(text):
        sign = meant(each)  # type: ignore[operator]
        if not sign:
            continue
        if each.start() > position:
            pieces.append(text[position : each.start()])
            starts.append(length)
            written.append(position)
            is_sign.append(False)
            length += each.start() - position
        pieces.append(sign)
        starts.append(length)
        written.append(each.start())
        is_sign.append(True)
        length += 1
        position = each.end()
    if not starts:
        return None
    if position < len(text):
        pieces.append(text[position:])
        starts.append(length)
        written.append(position)
        is_sign.append(False)
    return Spelling("".join(pieces), tuple(starts), (*written, len(text)), tuple(is_sign))
