"""Whether a location lies below a folder, whatever reads its text. Pure.

A prefix alone proves little: `<folder>/../other` begins with the folder, too. Not here: symbolic links, which only the
store knows (`stores.local`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

# Some stores and libraries decode a path once, or take a backslash for a slash.
_MOST_DECODINGS = 8
_SLASHES = re.compile(r"[/\\]")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


def relative_path(location: str, folder: str) -> str | None:
    """Return the path of a location below a folder, at any depth; None if it is not surely below it.

    Not below it is what another spelling of the folder begins, and a path with `.`, `..`, an empty part or a control
    character in it, also if percent-encoding or a backslash hides them. Encoded slashes between other parts are legal:
    partition values may have them.
    """
    prefix = f"{folder.rstrip('/')}/"
    path = location[len(prefix) :]
    return path if location.startswith(prefix) and _is_plain(path) else None


def _is_plain(path: str) -> bool:
    return all(path.split("/")) and not any(
        _CONTROLS.search(text) or any(part in (".", "..") for part in _SLASHES.split(text)) for text in decodings(path)
    )


def decodings(text: str) -> Iterator[str]:
    """Yield a text, and what becomes of it each time that it is decoded; at last "..", if that never ends."""
    for _ in range(_MOST_DECODINGS):
        yield text
        decoded = unquote(text, errors="surrogateescape")
        if decoded == text:
            return
        text = decoded
    yield ".."  # nobody names anything like this
