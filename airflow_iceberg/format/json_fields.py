"""Typed getters over JSON objects, whose errors contain the path of the value and its file.

Only the shape is checked here. The classes that are built from the values check their meaning.
"""

import builtins
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from airflow_iceberg.errors import FormatError

MAX_INT = (1 << 31) - 1
MIN_LONG, MAX_LONG = -(1 << 63), (1 << 63) - 1

_NAMES: Mapping[type, str] = {dict: "object", tuple: "list", type(None): "null"}


def json_type_name(value: object) -> str:
    """Return the word for a JSON value in messages: bool, int, float, str, list, object or null."""
    return _NAMES.get(type(value), type(value).__name__)


class KeyTwice(ValueError):
    """An object has a key twice: readers disagree about which of its values counts."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the keys and values of an object as a decoder of `json` gives them; raises KeyTwice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(name for name, _ in pairs).most_common(1)
        shown = twice[:100].encode(errors="backslashreplace").decode()  # half of a surrogate pair is no character
        raise KeyTwice(f"an object has the key '{shown}' twice")
    return found


# The getters are named like the types they return, so the types themselves are spelled `builtins.int` below.
@dataclass(frozen=True, slots=True)
class Fields:
    """A JSON object at a known place of a known file.

    Attributes:
        data: the object itself.
        where: path of the object inside the document, like ``snapshots[3]``; empty at the top.
        path: location of the file for the errors, or None while it is not known.
    """

    data: Mapping[builtins.str, Any]
    where: builtins.str = ""
    path: builtins.str | None = None

    def __post_init__(self) -> None:
        data: object = self.data
        if type(data) is not dict and not isinstance(data, Mapping):
            place = f" in '{self.where}'" if self.where else ""
            raise FormatError(f"unexpected type {json_type_name(data)} (expected object){place}", path=self.path)

    def __contains__(self, key: builtins.str) -> builtins.bool:
        """Tell whether the key exists with a value other than null."""
        return self.data.get(key) is not None

    def place(self, key: builtins.str) -> builtins.str:
        """Return the path of a key, like ``snapshots[3].timestamp-ms``."""
        return f"{self.where}.{key}" if self.where else key

    def fail(self, key: builtins.str, problem: builtins.str) -> NoReturn:
        """Raise a FormatError about the value of a key: the problem, followed by the place."""
        raise FormatError(f"{problem} in '{self.place(key)}'", path=self.path)

    def raw(self, key: builtins.str) -> Any:
        """Return the value of a key, of any type; raises FormatError if the key is missing."""
        if key not in self.data:
            raise FormatError(f"missing field '{self.place(key)}'", path=self.path)
        return self.data[key]

    def int(self, key: builtins.str) -> builtins.int:
        """Return an integer of 64 bits; a bool is not one, and neither is 1.0."""
        return self._checked_int(key, self.raw(key))

    def _checked_int(self, key: builtins.str, value: Any) -> builtins.int:
        if type(value) is not int:
            self._unexpected(key, value, "int")
        if not MIN_LONG <= value <= MAX_LONG:
            # Without the number itself, which may have thousands of digits.
            self.fail(key, f"unexpected number of {value.bit_length()} bits (expected an int of 64)")
        return value

    def opt_int(self, key: builtins.str) -> builtins.int | None:
        """Return an integer, or None where the key is missing or null."""
        # Tables have thousands of snapshots, each with some of these: fewer calls.
        value = self.data.get(key)
        return None if value is None else self._checked_int(key, value)

    def str(self, key: builtins.str) -> builtins.str:
        """Return a string."""
        value = self.raw(key)
        if not isinstance(value, str):
            self._unexpected(key, value, "str")
        return value

    def name(self, key: builtins.str) -> builtins.str:
        """Return a string that can name a column: JSON can contain half a surrogate pair, a column name cannot."""
        value = self.str(key)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(key, "name that is no valid Unicode")
        return value

    def opt_str(self, key: builtins.str) -> builtins.str | None:
        """Return a string, or None where the key is missing or null."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            self._unexpected(key, value, "str")
        return value

    def bool(self, key: builtins.str) -> builtins.bool:
        """Return a boolean; 0 and 1 are not ones."""
        value = self.raw(key)
        if not isinstance(value, bool):
            self._unexpected(key, value, "bool")
        return value

    def list(self, key: builtins.str) -> Sequence[Any]:
        """Return a list; its elements are not checked."""
        value = self.raw(key)
        if not isinstance(value, (list, tuple)):
            self._unexpected(key, value, "list")
        return value

    def int_list(self, key: builtins.str) -> tuple[builtins.int, ...]:
        """Return a list of integers of 64 bits."""
        return tuple(self._checked_int(f"{key}[{index}]", value) for index, value in enumerate(self.list(key)))

    def str_list(self, key: builtins.str) -> tuple[builtins.str, ...]:
        """Return a list of strings."""
        values = self.list(key)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                self._unexpected(f"{key}[{index}]", value, "str")
        return tuple(values)

    def mapping(self, key: builtins.str) -> Mapping[builtins.str, Any]:
        """Return an object."""
        return self.child(key).data

    def child(self, key: builtins.str) -> "Fields":
        """Return an object, with its own place."""
        return Fields(self.raw(key), self.place(key), self.path)

    def opt_child(self, key: builtins.str) -> "Fields | None":
        """Return an object with its own place, or None where the key is missing or null."""
        return self.child(key) if key in self else None

    def items(self, key: builtins.str) -> Iterator["Fields"]:
        """Yield the objects of a list, each with its own place like ``snapshots[3]``."""
        place = self.place(key)
        for index, value in enumerate(self.list(key)):
            yield Fields(value, f"{place}[{index}]", self.path)

    def str_map(self, key: builtins.str) -> dict[builtins.str, builtins.str]:
        """Return an object whose values are all strings."""
        child = self.child(key)
        return {name: child.str(name) for name in child.data}

    def rest(self, known: set[builtins.str] | frozenset[builtins.str]) -> dict[builtins.str, Any]:
        """Return the unknown keys with their values, to be written back."""
        return {key: value for key, value in self.data.items() if key not in known}

    def _unexpected(self, key: builtins.str, value: object, expected: builtins.str) -> NoReturn:
        self.fail(key, f"unexpected type {json_type_name(value)} (expected {expected})")
