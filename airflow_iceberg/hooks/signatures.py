"""The arguments of operators and sensors, as their constructors declare them: the one description of what each may be.

A constructor's annotations say which values an argument may have; nothing else has to be written for a new argument.
Not here: when values are checked, and what a template has made of them (`given`).
"""

from __future__ import annotations

import builtins
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal

from airflow_iceberg.errors import InvalidInputError, came, true_or_false

# Not `dry_run`, which is a method of Airflow's.
_ATTRIBUTES = {"dry_run": "is_dry_run"}
_OWN = "airflow_iceberg."
_TEMPLATE = "{"
_LONGEST = 200
_WORDS: tuple[tuple[Any, str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (datetime, "a datetime"),
    (timedelta, "a timedelta"),
    (Sequence, "a list"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Argument:
    """One argument of a constructor.

    Attributes:
        name: its name.
        attribute: the attribute of the operator that has it.
        kinds: what its values may be: the members of its annotation.
    """

    name: str
    attribute: str
    kinds: tuple[Any, ...]

    def accepts(self, value: Any) -> bool:
        """Tell whether a value is of a kind that the argument may have."""
        return any(_is(value, kind) for kind in self.kinds)

    def check_word(self, value: Any) -> None:
        """Check a value that is no template, and not that of another task.

        Raises:
            InvalidInputError: it is none of the argument's words.
        """
        is_given_later = callable(getattr(value, "resolve", None)) or (isinstance(value, str) and _TEMPLATE in value)
        words = [word for kind in self.kinds if typing.get_origin(kind) is Literal for word in typing.get_args(kind)]
        if not is_given_later and value not in words:
            raise self.refusal(value)

    def refusal(self, value: Any) -> InvalidInputError:
        """Return the error for a value of another kind."""
        is_many = any((typing.get_origin(kind) or kind) in (Mapping, Sequence) for kind in self.kinds)
        verb = "are" if is_many and self.name.endswith("s") else "is"
        is_short = isinstance(value, str | int | float | list | tuple) or value is None
        shown = repr(value) if is_short and len(repr(value)) <= _LONGEST else came(value)
        return InvalidInputError(f"{self.name} {verb} {shown}, expected {' or '.join(self._expected())}")

    def rendered(self, value: Any) -> Any:
        """Return a value after rendering: a template makes text of a truth value, which would be true in any case.

        Raises:
            InvalidInputError: the value is of another kind.
        """
        if bool in self.kinds and isinstance(value, str):
            return true_or_false(self.name, value)
        if not self.accepts(value):
            raise self.refusal(value)
        return value

    def _expected(self) -> Iterator[str]:
        origins = [(kind, typing.get_origin(kind) or kind) for kind in self.kinds]
        words = [said for known, said in _WORDS if known in (origin for _, origin in origins)]
        for kind, origin in origins:
            if origin is Literal:
                words += [repr(one) for one in typing.get_args(kind)]
            elif origin is Mapping:
                of_texts = typing.get_args(kind)[-1:] == (str,)
                words.append("names and texts" if of_texts else "names and values")
            elif inspect.isclass(kind) and origin not in (known for known, _ in _WORDS) and kind not in _SPOKEN:
                words.append(f"a {kind.__name__}")
            elif origin is Callable:
                words.append("a function")
        if str in self.kinds and bool not in self.kinds:
            words.append("text")
        yield from dict.fromkeys(words)
        if type(None) in self.kinds and not words:
            yield "None"


_SPOKEN = (str, type(None))


@cache
def arguments_of(kind: type) -> tuple[Argument, ...]:
    """Return the arguments of the constructors of a class that this package has written, the nearest one of each name.

    Classes that the author of a DAG derives have arguments of their own, which are not ours to check.
    """
    found: dict[str, Argument] = {}
    for owner in kind.__mro__:
        if not owner.__module__.startswith(_OWN) or "__init__" not in vars(owner):
            continue
        for parameter in inspect.signature(owner.__init__).parameters.values():  # type: ignore[misc]
            if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in found:
                kinds = _members(_evaluated(str(parameter.annotation), owner.__module__))
                attribute = _ATTRIBUTES.get(parameter.name, parameter.name)
                found[parameter.name] = Argument(name=parameter.name, attribute=attribute, kinds=kinds)
    return tuple(found.values())


class _Names(dict[str, Any]):
    """The names that an annotation of a module uses: those for type checkers alone may be anything."""

    def __init__(self, module: str) -> None:
        super().__init__({"datetime": datetime, "timedelta": timedelta, **vars(typing), **vars(sys.modules[module])})

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def _evaluated(annotation: str, module: str) -> Any:
    # The modules of operators import no annotation when they are imported, which has to be quick.
    return eval(annotation, {}, _Names(module))  # noqa: S307 - text of this package


def _members(annotation: Any) -> tuple[Any, ...]:
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return tuple(member for one in typing.get_args(annotation) for member in _members(one))
    return (type(None) if annotation is None else annotation,)


def _is(value: Any, kind: Any) -> bool:
    origin = typing.get_origin(kind) or kind
    if origin is Literal:
        # Which words there are is said by the operation, in one form for tasks and for Python.
        return isinstance(value, tuple({type(one) for one in typing.get_args(kind)}))
    if origin is Callable:
        return callable(value)
    if origin in (int, float):
        kinds = (int,) if origin is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    if origin is Any or not inspect.isclass(origin):
        return True  # Any, or a name for type checkers
    return isinstance(value, origin)
