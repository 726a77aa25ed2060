"""`PageTokens`: the end of a list that a server sends page by page, whatever the server says.

Not here: the requests, which differ for each server.
"""

from __future__ import annotations

from airflow_iceberg.errors import FormatError

# Servers that filter after they have read a page send empty ones, but not so many in a row.
MOST_EMPTY_PAGES = 1000


class PageTokens:
    """The tokens of one list, each of which names the next page.

    Args:
        purpose: what the list is for, for messages: "catalog prod cannot list the namespaces".
    """

    def __init__(self, purpose: str) -> None:
        self._purpose = purpose
        self._seen: set[str] = set()
        self._empty_pages = 0

    def checked(self, token: object, *, items: int) -> str:
        """Return the token of the next page, after one with so many items.

        Raises:
            FormatError: no text, a token that was there before, or too many pages in a row without an item: the list
                would not end.
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
        self._seen.add(token)
        return token
