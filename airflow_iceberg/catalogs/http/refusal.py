"""The error response of a catalog server, as the Iceberg REST protocol writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """An error response.

    Attributes:
        type: the name of the error, such as NoSuchTableException, or "".
        message: the server's text, one line without secrets.
        page: the same, if the answer is not JSON: another program than a catalog seems to have sent it.
    """

    status: int
    type: str = ""
    message: str = ""
    page: str = ""

    def __str__(self) -> str:
        named = f"{self.status} {self.type}".strip()
        return f"{named}: {self.message}" if self.message else named

    @classmethod
    def from_body(cls, status: int, body: bytes, hide: Callable[[str], str]) -> Refusal:
        """Read an error of the protocol, one of OAuth2, or the answer of a gateway, without a stack trace."""
        try:
            document = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            # A page of a gateway: its first words are enough to recognise it.
            text = re.sub(r"<[^>]*>", " ", body[:2000].decode(errors="replace"))
            line = _line(hide(text), 120)
            return cls(status=status, message=line, page=line or "an empty page")
        error = document.get("error", document) if isinstance(document, dict) else {}
        if isinstance(error, dict):
            return cls(
                status=status,
                type=_line(hide(str(error.get("type") or "")), 80),
                message=_line(hide(str(error.get("message") or "")), 500),
            )
        described = document.get("error_description") or ""
        return cls(status=status, type=_line(hide(str(error)), 80), message=_line(hide(str(described)), 500))


def _line(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"
