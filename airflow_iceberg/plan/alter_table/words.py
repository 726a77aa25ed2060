"""The schema update language: a list of changes is read and checked before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.metadata.table_metadata import RESERVED_PROPERTIES
from airflow_iceberg.format.properties.kinds import property_text
from airflow_iceberg.format.schemas.evolution import Position, SchemaEvolution
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.format.values.digits import whole_number
from airflow_iceberg.plan.alter_table.evolution import Evolution

Changes = Sequence[Mapping[str, Any]]
Step = Callable[[Evolution], None]
_Take = Callable[["_Words", str], Any]
_Read = Callable[[str, str, Any], Step]


def read_changes(changes: Changes) -> tuple[Step, ...]:
    """Return what a list of changes does, in its order.

    Raises:
        InvalidInputError: an unknown change, or one with words missing or too many.
    """
    if isinstance(changes, (str, Mapping)) or not isinstance(changes, Sequence):
        raise InvalidInputError(f"expected a list of changes, got {_shown(changes)}")
    return tuple(_step(item, number) for number, item in enumerate(changes))


class _Words:
    """The words of one change; each is taken out once, and unknown words are rejected.

    Args:
        short: the word of a bare value: `{"drop_column": "a"}` means `{"drop_column": {"name": "a"}}`.
    """

    def __init__(self, kind: str, place: str, given: Any, *, short: str | None = None) -> None:
        self._place = f"{place} ({kind})"
        if not isinstance(given, Mapping):
            if short is None:
                self.fail(f"expected an object, got {_shown(given)}")
            given = {short: given}
        self._left = dict(given)

    def fail(self, problem: str) -> NoReturn:
        raise InvalidInputError(f"{self._place}: {problem}")

    def text(self, word: str) -> str:
        if word not in self._left:
            self.fail(f"missing '{word}'")
        return self._checked(word, self._left.pop(word))

    def opt_text(self, word: str) -> str | None:
        value = self._left.pop(word, None)
        return None if value is None else self._checked(word, value)

    def _checked(self, word: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            self.fail(f"expected a text for '{word}', got {_shown(value)}")
        return value

    def flag(self, word: str) -> bool:
        value = self._left.pop(word, False)
        if not isinstance(value, bool):
            self.fail(f"expected true or false for '{word}', got {_shown(value)}")
        return value

    def raw(self, word: str, *, required: bool = False) -> Any:
        if required and word not in self._left:
            self.fail(f"missing '{word}'")
        return self._left.pop(word, None)

    def position(self, *, required: bool = False) -> Position | None:
        given = [word for word in ("first", "before", "after") if word in self._left]
        if len(given) > 1 or (required and not given):
            self.fail(f"expected one of first, before and after, got {' and '.join(given) or 'none'}")
        if not given:
            return None
        if given == ["first"]:
            return Position(where="first") if self.flag("first") else None
        return Position(where="before" if given == ["before"] else "after", other=self.text(given[0]))

    def done(self) -> None:
        if self._left:
            self.fail(f"unknown word {', '.join(repr(word) for word in self._left)}")


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"


def _step(item: Any, number: int) -> Step:
    place = f"changes[{number}]"
    if not isinstance(item, Mapping) or len(item) != 1:
        raise InvalidInputError(f"{place}: expected an object with one key that names the change, got {_shown(item)}")
    ((kind, given),) = item.items()
    read = _READERS.get(kind)
    if read is None:
        raise InvalidInputError(f"{place}: unknown change {kind!r} (known: {', '.join(_READERS)})")
    return read(kind, place, given)


# Words that are keywords of Python, or name something else in Python.
_ARGUMENTS = {"from": "old", "to": "new", "type": "type_"}


def _object(apply: Callable[..., None], words: Mapping[str, _Take], *, short: str | None = None) -> _Read:
    """Return the reader of a change that is an object.

    Args:
        apply: makes the change of a table with the words as arguments.
        short: the argument of `_Words`.
    """

    def read(kind: str, place: str, given: Any) -> Step:
        left = _Words(kind, place, given, short=short)
        values = {_ARGUMENTS.get(word, word): take(left, word) for word, take in words.items()}
        left.done()
        return lambda to: apply(to, **values)

    return read


def _column(method: Callable[..., None], words: Mapping[str, _Take], *, short: str | None = None) -> _Read:
    """Return the reader of a change that is a method of SchemaEvolution."""
    return _object(lambda to, **values: method(to.columns, **values), words, short=short)


def _list(apply: Callable[[Evolution, tuple[str, ...]], None]) -> _Read:
    """Return the reader of a change that is a list of texts."""

    def read(kind: str, place: str, given: Any) -> Step:
        if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(x, str) for x in given):
            raise InvalidInputError(f"{place} ({kind}): expected a list of texts, got {_shown(given)}")
        return lambda to: apply(to, tuple(given))

    return read


_TEXT, _OPTIONAL_TEXT, _FLAG, _RAW = _Words.text, _Words.opt_text, _Words.flag, _Words.raw


def _required(words: _Words, word: str) -> Any:
    return words.raw(word, required=True)


def _position(words: _Words, _: str) -> Position | None:
    return words.position()


def _required_position(words: _Words, _: str) -> Position:
    found = words.position(required=True)
    return words.fail("expected true for 'first'") if found is None else found


def _replace_partition_field(to: Evolution, old: str, new: str, name: str | None) -> None:
    to.partitioning.drop(old, to.schema)
    to.partitioning.add(new, to.schema, name=name)


def _set_sort_order(to: Evolution, terms: Sequence[str]) -> None:
    order = sort_order_from_shorthand(terms, to.schema)
    to.sort_order = to.sort_order if order.same_fields(to.sort_order) else order


def _remove_properties(to: Evolution, names: Sequence[str]) -> None:
    for name in names:
        to.properties.pop(name, None)


def _union_by_name(kind: str, place: str, given: Any) -> Step:
    try:
        other = schema_from_shorthand(given)
    except (InvalidInputError, AttributeError, TypeError) as error:
        raise InvalidInputError(f"{place} ({kind}): {error}") from error
    return lambda to: to.columns.union_by_name(other)


def _set_properties(kind: str, place: str, given: Any) -> Step:
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"{place} ({kind}): expected an object of names and values, got {_shown(given)}")
    properties = {str(name): _property(f"{place} ({kind})", str(name), value) for name, value in given.items()}
    return lambda to: to.properties.update(properties)


def _property(place: str, name: str, value: Any) -> str:
    if name in RESERVED_PROPERTIES:
        hint = "use upgrade_format_version" if name == "format-version" else "the table keeps it itself"
        raise InvalidInputError(f"{place}: property {name!r} cannot be set: {hint}")
    return property_text(place, name, value)


def _upgrade_format_version(kind: str, place: str, given: Any) -> Step:
    if isinstance(given, str) and (number := whole_number(given)) is not None:
        given = number  # a template gives text
    if not isinstance(given, int) or isinstance(given, bool):
        raise InvalidInputError(f"{place} ({kind}): expected a number, got {_shown(given)}")
    return lambda to: to.upgrade(given)


def _set_location(kind: str, place: str, given: Any) -> Step:
    if not isinstance(given, str) or not given.strip("/ "):
        raise InvalidInputError(f"{place} ({kind}): expected a location, got {_shown(given)}")

    def step(to: Evolution) -> None:
        to.location = given.rstrip("/")

    return step


_OF_COLUMNS: Mapping[str, _Read] = {
    "add_column": _column(
        SchemaEvolution.add_column,
        {
            "name": _TEXT,
            "type": _required,
            "doc": _OPTIONAL_TEXT,
            "required": _FLAG,
            "default": _RAW,
            "allow_incompatible": _FLAG,
            "position": _position,
        },
    ),
    "drop_column": _column(SchemaEvolution.drop_column, {"name": _TEXT}, short="name"),
    "rename_column": _object(lambda to, old, new: to.columns.rename_column(old, new), {"from": _TEXT, "to": _TEXT}),
    "move_column": _column(SchemaEvolution.move, {"name": _TEXT, "position": _required_position}),
    "change_type": _column(SchemaEvolution.change_type, {"name": _TEXT, "type": _required}),
    "make_optional": _column(SchemaEvolution.make_optional, {"name": _TEXT}, short="name"),
    "make_required": _column(SchemaEvolution.make_required, {"name": _TEXT, "allow_incompatible": _FLAG}, short="name"),
    "set_doc": _column(SchemaEvolution.set_doc, {"name": _TEXT, "doc": _OPTIONAL_TEXT}),
    "set_default": _object(
        lambda to, name, value: to.columns.set_default(name, value), {"name": _TEXT, "value": _required}
    ),
    "set_identifier_fields": _list(lambda to, names: to.columns.set_identifier_fields(names)),
    "union_by_name": _union_by_name,
}
_READERS: Mapping[str, _Read] = {
    **_OF_COLUMNS,
    "add_partition_field": _object(
        lambda to, field, name: to.partitioning.add(field, to.schema, name=name),
        {"field": _TEXT, "name": _OPTIONAL_TEXT},
        short="field",
    ),
    "drop_partition_field": _object(
        lambda to, field: to.partitioning.drop(field, to.schema), {"field": _TEXT}, short="field"
    ),
    "rename_partition_field": _object(
        lambda to, old, new: to.partitioning.rename(old, new), {"from": _TEXT, "to": _TEXT}
    ),
    "replace_partition_field": _object(_replace_partition_field, {"from": _TEXT, "to": _TEXT, "name": _OPTIONAL_TEXT}),
    "set_partitioning": _list(lambda to, terms: to.partitioning.set(terms, to.schema)),
    "set_sort_order": _list(_set_sort_order),
    "set_properties": _set_properties,
    "remove_properties": lambda kind, place, given: _list(_remove_properties)(
        kind, place, [given] if isinstance(given, str) else given
    ),
    "set_location": _set_location,
    "upgrade_format_version": _upgrade_format_version,
}
CHANGES = tuple(_READERS)
"""The names of all changes."""
COLUMN_CHANGES = frozenset(_OF_COLUMNS)
"""The names of those that depend on the schema alone."""
