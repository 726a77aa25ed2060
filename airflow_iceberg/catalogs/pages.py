"""`PageTokens`: the end of a list that a server sends page by page, whatever the server says.

Not here: the requests, which differ for each server.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_iceberg.errors import FormatError
from airflow_iceberg.storage.answer_limits import MOST_PAGES, MOST_PAGES_BYTES, MOST_PAGES_S

# Servers that filter after they have read a page send empty ones, but not so many in a row.
MOST_EMPTY_PAGES = 1000


class PageTokens:
    """The tokens of one list, each of which names the next page.

    Args:
        purpose: what the list is for, for messages: "catalog prod cannot list the namespaces".
        monotonic: seconds.
    """

    def __init__(self, purpose: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._purpose = purpose
        self._monotonic, self._begun = monotonic, monotonic()
        self._seen: set[str] = set()
        self._empty_pages = self._size_bytes = 0

    def checked(self, token: object, *, items: int, size_bytes: int = 0) -> str:
        """Return the token of the next page, after one with so many items and bytes.

        Raises:
            FormatError: no text, a token that was there before, too many pages in a row without an item, or more than
                a list may have: it would not end.
        """
        if not isinstance(token, str) or not token:
            got = "an empty text" if token == "" else type(token).__name__
            raise FormatError(f"{self._purpose}: the token of its next page is {got}, expected a text")
        if token in self._seen:
            raise FormatError(f"{self._purpose}: the server gives the same page again and again")
        self._empty_pages = 0 if items else self._empty_pages + 1
        if self._empty_pages > MOST_EMPTY_PAGES:
            raise FormatError(
                f"{self._purpose}: the server gave more than {MOST_EMPTY_PAGES} pages in a row without an item"
            )
        self._size_bytes += size_bytes + len(token)
        took_s = self._monotonic() - self._begun
        for what, found, most in (
            ("pages", len(self._seen) + 1, MOST_PAGES),
            ("bytes", self._size_bytes, MOST_PAGES_BYTES),
            ("seconds", took_s, MOST_PAGES_S),
        ):
            if found >= most:
                raise FormatError(
                    f"{self._purpose}: the list has not ended after {found:.0f} {what}, at most {most:.0f} are read; "
                    f"use namespaces with fewer entries, or check that the server is the one that you mean"
                )
        self._seen.add(token)
        return token
