"""A table property: its name, its kind, its default, and whether this writer follows it.

Here: what a property is, and how it is read from the texts of a table. Not here: the list of properties
(`table_properties`, `known`), the kinds (`kinds`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from airflow_iceberg.format.properties.kinds import Kind, anything

_T = TypeVar("_T")


class State(Enum):
    """Whether and how this writer follows a property."""

    FOLLOWED = "followed"
    WARNED = "warning"
    """Not followed; a warning says so."""
    REFUSED = "refused"
    """An error for values that cannot be followed, because files would be wrong."""
    UNUSED = "no effect"
    """A property of something that is not done here: other file formats, other engines, updates."""


class Texts(Protocol):
    """An object with the texts of a table's properties."""

    @property
    def texts(self) -> Mapping[str, str]:
        """The properties by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A property, or all properties of a prefix.

    Attributes:
        name: the full name; one that ends in ".*" is a prefix.
        check: a function that raises InvalidInputError for an illegal value, when the property is set here.
        state: whether and how this writer follows the property.
        moot: values in lower case that request what happens in any case; they give no warning and no error.
        note: end of the warning.
    """

    name: str
    check: Kind = anything
    state: State = State.FOLLOWED
    moot: tuple[str, ...] = ()
    note: str = ""

    def is_moot(self, text: str) -> bool:
        """Whether a value requests what happens in any case."""
        return text.strip().lower() in self.moot

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Property(Known, Generic[_T]):
    """An attribute of `TableProperties`: of a table the value, of the class the property itself.

    Attributes:
        read: a function from text to value; it may accept more than `check`, because other engines set properties too.
        default: value for tables without the property.
    """

    read: Callable[[str, str], _T]
    default: _T

    @overload
    def __get__(self, table: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, table: Texts, owner: type[Any]) -> _T: ...
    def __get__(self, table: Texts | None, owner: type[Any]) -> Self | _T:
        if table is None:
            return self
        text = table.texts.get(self.name)
        return self.default if text is None else self.read(self.name, text)


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnProperty(Known, Generic[_T]):
    """A property of one column, whose name ends with the column's; `read` and `default` as in `Property`."""

    read: Callable[[str, str], _T]
    default: _T

    @property
    def prefix(self) -> str:
        """The part before the column's name."""
        return self.name.removesuffix("*")

    @overload
    def __get__(self, table: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, table: Texts, owner: type[Any]) -> ColumnValues[_T]: ...
    def __get__(self, table: Texts | None, owner: type[Any]) -> Self | ColumnValues[_T]:
        return self if table is None else ColumnValues(self, table.texts)


class ColumnValues(Generic[_T]):
    """The values of one property by column, each read on demand."""

    __slots__ = ("_property", "_texts")

    def __init__(self, property_: ColumnProperty[_T], texts: Mapping[str, str]) -> None:
        self._property = property_
        self._texts = texts

    def columns(self) -> tuple[str, ...]:
        """Return the full names of the columns with an own value, in the order of the table's properties."""
        prefix = self._property.prefix
        return tuple(name.removeprefix(prefix) for name in self._texts if name.startswith(prefix))

    def property_name(self, column: str) -> str:
        """Return the full name of the property of a column."""
        return self._property.prefix + column

    def of(self, column: str) -> _T:
        """Return the value of a column."""
        name = self.property_name(column)
        text = self._texts.get(name)
        return self._property.default if text is None else self._property.read(name, text)


def followed(name: str, read: Callable[[str, str], _T], default: _T, *, check: Kind | None = None) -> Property[_T]:
    """Return a property that is followed.

    Args:
        check: the check of `Known`; `read` by default.
    """
    return Property(name=name, read=read, default=default, check=check or read)


def by_column(
    name: str, read: Callable[[str, str], _T], default: _T, *, check: Kind | None = None
) -> ColumnProperty[_T]:
    """Return a property of columns that is followed; `check` as in `followed`."""
    return ColumnProperty(name=name, read=read, default=default, check=check or read)


def refused(
    name: str, read: Callable[[str, str], _T], default: _T, *moot: str, check: Kind | None = None
) -> Property[_T]:
    """Return a property of which only the `moot` values can be followed; `check` as in `followed`."""
    return Property(name=name, read=read, default=default, check=check or read, state=State.REFUSED, moot=moot)


def warned(name: str, check: Kind, *moot: str, note: str = "") -> Known:
    """Return a property that is not followed; a warning says so."""
    return Known(name=name, check=check, state=State.WARNED, moot=moot, note=note)


def unused(name: str, check: Kind = anything) -> Known:
    """Return a property without effect here."""
    return Known(name=name, check=check, state=State.UNUSED)
