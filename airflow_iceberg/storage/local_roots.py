"""Local folders that a connection trusts, and where a path lies in them: by place, however it is spelled.

A folder is resolved once, since the links at and above it are its owner's. Below it no link is followed: others can
write there. So a path is a folder and the names from there on, which are opened one from the other (`stores.guarded`).
Not here: which folders are trusted (`trust`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from airflow_iceberg.errors import InvalidInputError

Located = tuple[str, tuple[str, ...]]


class LocalRoots:
    """Some folders; a folder in another one is a part of that one.

    Attributes:
        tops: the outermost folders, without links.
    """

    def __init__(self, folders: Iterable[str]) -> None:
        given = {_text(_names(folder)): real_path(folder) for folder in folders}
        reals = {_text(_names(real)) for real in given.values()}
        self.tops = tuple(sorted(real for real in reals if not any(real != top and _is_in(real, top) for top in reals)))
        spelled = {**{real: real for real in reals}, **given}
        # The longest first: "/lake" may be a link, and "/" a folder of the same list.
        self._spelled = tuple(
            (text, *self._from_top(_text(_names(real))))
            for text, real in sorted(spelled.items(), key=lambda each: len(each[0]), reverse=True)
        )

    def __bool__(self) -> bool:
        return bool(self.tops)

    def locate(self, path: str) -> Located | None:
        """Return the top that a path is in and the names below it; None for a path that is outside, as it is written.

        Raises:
            InvalidInputError: ".." is in the path.
        """
        names = _names(path)
        text = _text(names)
        for spelled, top, way in self._spelled:
            if text.startswith(spelled):
                rest = text[len(spelled) : -1]
                return top, (*way, *_forward(rest.split("/"), path)) if rest else way
        _forward(names, path)
        return None

    def resolve(self, path: str) -> Located | None:
        """Return what `locate` does; a path outside is followed through the links that lead into a folder.

        The answer is a place in the folder, so that it is the same place when the links are changed afterwards.

        Raises:
            InvalidInputError: ".." is in the path.
        """
        found = self.locate(path)
        if found is not None or not self.tops:
            return found
        names, here = _names(path), "/"
        for number, name in enumerate(names, 1):
            here = os.path.join(here, name)
            if os.path.islink(here):
                here = real_path(here)
            if self._holds(here):
                top, way = self._from_top(_text(_names(here)))
                return top, (*way, *names[number:])
        return None

    def settled(self, path: str) -> str | None:
        """Return the path of a place in a folder that stays the same when links outside are changed; None for no place.

        A path that is written as one in a folder is returned as it is.

        Raises:
            InvalidInputError: ".." is in the path.
        """
        if self.locate(path) is not None:
            return path
        found = self.resolve(path)
        return None if found is None else path_of(found)

    def _holds(self, real: str) -> bool:
        return any(_is_in(_text(_names(real)), top) for top in self.tops)

    def _from_top(self, real: str) -> Located:
        top = next(top for top in self.tops if _is_in(real, top))
        rest = real[len(top) : -1]
        return top, tuple(rest.split("/")) if rest else ()


def real_path(path: str) -> str:
    """Return a path without links.

    Raises:
        InvalidInputError: that cannot be told, since somebody changes it all the time.
    """
    try:
        return os.path.realpath(path)
    except OSError as error:
        raise InvalidInputError(f"cannot tell where {path!r} leads: {str(error.strerror).lower()}") from error


def path_of(located: Located) -> str:
    """Return the one spelling of a place."""
    top, names = located
    return f"{top}{'/'.join(names)}" if names else top.rstrip("/") or "/"


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _text(names: list[str]) -> str:
    """Return a path with a slash at its end, so that one begins with another only if it is below it."""
    return f"/{'/'.join(names)}/" if names else "/"


def _is_in(real: str, top: str) -> bool:
    return real.startswith(top)


def _forward(names: list[str], path: str) -> list[str]:
    if ".." in names:
        raise InvalidInputError(f"{path!r} is not a location of a table: its path contains '..'")
    return names
