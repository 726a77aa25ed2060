"""The words of changes: what a list of them says, checked before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.format.metadata.table_metadata import RESERVED_PROPERTIES
from airflow_iceberg.format.properties.kinds import property_text
from airflow_iceberg.format.schemas.evolution import Position
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.sort_orders import sort_order_from_shorthand
from airflow_iceberg.plan.alter_table.evolution import Evolution

Changes = Sequence[Mapping[str, Any]]
Step = Callable[[Evolution], None]


def read_changes(changes: Changes) -> tuple[Step, ...]:
    """Return what a list of changes does, in its order.

    Raises:
        InvalidInputError: an unknown change, or one with words missing or too many.
    """
    if isinstance(changes, (str, Mapping)) or not isinstance(changes, Sequence):
        raise InvalidInputError(f"expected a list of changes, got {_shown(changes)}")
    return tuple(_step(item, number) for number, item in enumerate(changes))


class _Words:
    """The words of one change; takes them out one by one, and refuses what is left over."""

    def __init__(self, kind: str, place: str, given: Any, *, short: str | None = None) -> None:
        """Take the words.

        Args:
            short: the word that a bare value stands for: `{"drop_column": "a"}` is `{"drop_column": {"name": "a"}}`.
        """
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
        raise InvalidInputError(f"{place}: expected an object with one key that says what to do, got {_shown(item)}")
    ((kind, given),) = item.items()
    read = _READERS.get(kind)
    if read is None:
        raise InvalidInputError(f"{place}: unknown change {kind!r} (known: {', '.join(_READERS)})")
    return read(kind, place, given)


def _add_column(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    name, type_, doc = words.text("name"), words.raw("type", required=True), words.opt_text("doc")
    required, default, incompatible = words.flag("required"), words.raw("default"), words.flag("allow_incompatible")
    position = words.position()
    words.done()
    return lambda to: to.columns.add_column(
        name,
        type_,
        doc=doc,
        required=required,
        default=default,
        position=position,
        allow_incompatible=incompatible,
    )


def _drop_column(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given, short="name")
    name = words.text("name")
    words.done()
    return lambda to: to.columns.drop_column(name)


def _rename_column(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    name, new = words.text("from"), words.text("to")
    words.done()
    return lambda to: to.columns.rename_column(name, new)


def _move_column(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    name, position = words.text("name"), words.position(required=True)
    words.done()
    if position is None:
        words.fail("expected true for 'first'")
    return lambda to: to.columns.move(name, position)


def _change_type(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    name, type_ = words.text("name"), words.raw("type", required=True)
    words.done()
    return lambda to: to.columns.change_type(name, type_)


def _make_optional(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given, short="name")
    name = words.text("name")
    words.done()
    return lambda to: to.columns.make_optional(name)


def _make_required(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given, short="name")
    name, incompatible = words.text("name"), words.flag("allow_incompatible")
    words.done()
    return lambda to: to.columns.make_required(name, allow_incompatible=incompatible)


def _set_doc(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    name, doc = words.text("name"), words.opt_text("doc")
    words.done()
    return lambda to: to.columns.set_doc(name, doc)


def _set_default(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    name, value = words.text("name"), words.raw("value", required=True)
    words.done()
    return lambda to: to.columns.set_default(name, value)


def _set_identifier_fields(kind: str, place: str, given: Any) -> Step:
    names = _texts(kind, place, given)
    return lambda to: to.columns.set_identifier_fields(names)


def _union_by_name(kind: str, place: str, given: Any) -> Step:
    try:
        other = schema_from_shorthand(given)
    except (InvalidInputError, AttributeError, TypeError) as error:
        raise InvalidInputError(f"{place} ({kind}): {error}") from error
    return lambda to: to.columns.union_by_name(other)


def _add_partition_field(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given, short="field")
    field, name = words.text("field"), words.opt_text("name")
    words.done()
    return lambda to: to.partitioning.add(field, to.schema, name=name)


def _drop_partition_field(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given, short="field")
    field = words.text("field")
    words.done()
    return lambda to: to.partitioning.drop(field, to.schema)


def _rename_partition_field(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    name, new = words.text("from"), words.text("to")
    words.done()
    return lambda to: to.partitioning.rename(name, new)


def _replace_partition_field(kind: str, place: str, given: Any) -> Step:
    words = _Words(kind, place, given)
    old, new, name = words.text("from"), words.text("to"), words.opt_text("name")
    words.done()

    def step(to: Evolution) -> None:
        to.partitioning.drop(old, to.schema)
        to.partitioning.add(new, to.schema, name=name)

    return step


def _set_partitioning(kind: str, place: str, given: Any) -> Step:
    terms = _texts(kind, place, given)
    return lambda to: to.partitioning.set(terms, to.schema)


def _set_sort_order(kind: str, place: str, given: Any) -> Step:
    terms = _texts(kind, place, given)

    def step(to: Evolution) -> None:
        order = sort_order_from_shorthand(terms, to.schema)
        to.sort_order = to.sort_order if order.same_fields(to.sort_order) else order

    return step


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


def _remove_properties(kind: str, place: str, given: Any) -> Step:
    names = _texts(kind, place, [given] if isinstance(given, str) else given)

    def step(to: Evolution) -> None:
        for name in names:
            to.properties.pop(name, None)

    return step


def _upgrade_format_version(kind: str, place: str, given: Any) -> Step:
    if isinstance(given, str) and given.isdecimal():
        given = int(given)  # a template gives text
    if not isinstance(given, int) or isinstance(given, bool):
        raise InvalidInputError(f"{place} ({kind}): expected a number, got {_shown(given)}")
    return lambda to: to.upgrade(given)


def _set_location(kind: str, place: str, given: Any) -> Step:
    if not isinstance(given, str) or not given.strip("/ "):
        raise InvalidInputError(f"{place} ({kind}): expected a location, got {_shown(given)}")

    def step(to: Evolution) -> None:
        to.location = given.rstrip("/")

    return step


def _texts(kind: str, place: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(item, str) for item in given):
        raise InvalidInputError(f"{place} ({kind}): expected a list of texts, got {_shown(given)}")
    return tuple(given)


_READERS: Mapping[str, Callable[[str, str, Any], Step]] = {
    "add_column": _add_column,
    "drop_column": _drop_column,
    "rename_column": _rename_column,
    "move_column": _move_column,
    "change_type": _change_type,
    "make_optional": _make_optional,
    "make_required": _make_required,
    "set_doc": _set_doc,
    "set_default": _set_default,
    "set_identifier_fields": _set_identifier_fields,
    "union_by_name": _union_by_name,
    "add_partition_field": _add_partition_field,
    "drop_partition_field": _drop_partition_field,
    "rename_partition_field": _rename_partition_field,
    "replace_partition_field": _replace_partition_field,
    "set_partitioning": _set_partitioning,
    "set_sort_order": _set_sort_order,
    "set_properties": _set_properties,
    "remove_properties": _remove_properties,
    "set_location": _set_location,
    "upgrade_format_version": _upgrade_format_version,
}
CHANGES = tuple(_READERS)
"""The names of all changes."""
