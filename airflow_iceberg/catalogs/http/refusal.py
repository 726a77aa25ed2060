"""The error response of a catalog server, as the Iceberg REST protocol writes it, or of what stands in front of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

# Types of errors after which a request will never be done, though their status says that the server has failed: names
# of what is not there, those that the protocol has for wrong requests, and Java's for documents not understood.
_NEVER = re.compile(
    r"(?i)unsupported|not[ _]?(supported|implemented)"
    r"|(bad ?request|validation|unprocessable ?entity)(exception|error)?$"
    r"|(invalidtypeid|unrecognizedproperty|mismatchedinput|json(parse|mapping|processing))exception"
)
# An exception in the page of a server in Java that has not caught it: java.lang.UnsupportedOperationException.
_UNCAUGHT = re.compile(rb"\b(?:[a-z_]\w{0,40}\.){1,10}([A-Z]\w{0,60}(?:Exception|Error))\b")
_BEGINNING = 2000
# What a gateway answers for a server that it does not reach, or that is down.
_FOR_NOW = (502, 503, 504)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """An error response.

    Attributes:
        type: the name of the error, such as NoSuchTableException, or that of the exception on the page of a failure.
        message: the server's text, one line without secrets.
        is_model: whether it has the form of the protocol's errors: a catalog has sent it, and no other program.
    """

    status: int
    type: str = ""
    message: str = ""
    is_model: bool = False

    def __str__(self) -> str:
        named = f"{self.status} {self.type}".strip()
        return f"{named}: {self.message}" if self.message else named

    @property
    def is_final(self) -> bool:
        """Whether it says, with the status of a failure, that no other try will do."""
        is_failure = self.status >= 500 and self.status not in _FOR_NOW
        is_named = self.is_model or self.type.endswith(("Exception", "Error"))
        return is_failure and is_named and _NEVER.search(self.type) is not None

    @classmethod
    def from_body(cls, status: int, body: bytes, hide: Callable[[str], str]) -> Refusal:
        """Read an error of the protocol, one of OAuth2, or the answer of a gateway, without a stack trace."""
        found = cls._from_document(status, body, hide)
        uncaught = None if found.type or status < 500 else _UNCAUGHT.search(body[:_BEGINNING])
        return found if uncaught is None else replace(found, type=_line(hide(uncaught[1].decode()), 80))

    @classmethod
    def _from_document(cls, status: int, body: bytes, hide: Callable[[str], str]) -> Refusal:
        try:
            document = json.loads(body) if body else {}
        except (ValueError, RecursionError):
            # A page of a gateway: its first words are enough to recognise it.
            text = re.sub(r"<[^>]*>", " ", body[:_BEGINNING].decode(errors="replace"))
            return cls(status=status, message=_line(hide(text), 120))
        error = document.get("error", document) if isinstance(document, dict) else {}
        if isinstance(error, dict):
            return cls(
                status=status,
                type=_line(hide(str(error.get("type") or "")), 80),
                message=_line(hide(str(error.get("message") or "")), 500),
                is_model=_is_model(document, error),
            )
        described = document.get("error_description") or ""
        return cls(status=status, type=_line(hide(str(error)), 80), message=_line(hide(str(described)), 500))


def _is_model(document: Any, error: dict[str, Any]) -> bool:
    """Whether an error is one of the protocol: in an object of its own, or with type and message beside each other.

    Gateways and frameworks answer {"message": …}, {"detail": …} or {"error": "Not Found", …} for a path that they do
    not know.
    """
    return bool(error.keys() & {"type", "message"}) if error is not document else error.keys() >= {"type", "message"}


def _line(text: str, length: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[:length]}…"
