"""What the author of a DAG has given: the check of each argument of a task, in one place for all of them.

- An argument that is no template field is checked for its type when the DAG is parsed.
- A template field is rendered, and then checked for its type.
- One that was given, as a template or as the value of another task, at any depth, and is nothing at run time (None, an
  empty text, list or dictionary, or the text 'None'), is refused: it must not be taken for an argument that was left
  out. Limits, guards and selectors would be lifted.

The values of placeholders, and the arguments of functions, are data: None and an empty text are values of those. Not
here: which values an argument may have (`signatures`), and which Airflow stores (`stored`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import BaseOperatorMeta

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.hooks.arguments import is_empty, is_nothing, mask_secrets
from airflow_iceberg.hooks.signatures import arguments_of
from airflow_iceberg.hooks.stored import check_stored
from airflow_iceberg.retries import airflow_failures

if TYPE_CHECKING:
    from airflow.sdk import Context

# What is in these is data, whatever a template makes of it; without the rest of the argument it would be an error.
_DATA = frozenset(
    ("sql_params", "clause_params", "predicate_params", "params", "op_args", "op_kwargs", "snapshot_properties")
)
# The arguments of a function, which may have none.
_OF_FUNCTIONS = frozenset(("op_args", "op_kwargs"))


class _Mapped:
    """Stands for what another task has given to a mapped task: it was resolved before the operator was made."""


_MAPPED: Final = _Mapped()


class _CheckedMeta(BaseOperatorMeta):
    """Checks the arguments of an operator when all of its constructors have run."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - of a metaclass
        made = super().__call__(*args, **kwargs)
        # That of a mapped task is made at run time.
        with airflow_failures() if kwargs.get("_airflow_from_mapped") else nullcontext():
            made.check_parsed()
        return made


class CheckedArguments(BaseOperator, metaclass=_CheckedMeta):
    """An operator or sensor whose arguments are checked.

    Attributes:
        may_be_nothing: the arguments that may render to nothing.
        may_be_empty: the arguments that may render to an empty list, which is a value of theirs.
        file_fields: the arguments that may be the name of a `.sql` file; others that end like one are no files.
        words_at_parse: template fields whose word, if the DAG has it itself, is checked when the DAG is parsed.
    """

    may_be_nothing: ClassVar[frozenset[str]] = frozenset()
    may_be_empty: ClassVar[frozenset[str]] = frozenset()
    file_fields: ClassVar[tuple[str, ...]] = ()
    words_at_parse: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Begin a mapped task, after checking what is no template."""
        check_constants(cls, kwargs)
        return super().partial(**kwargs)

    def check_parsed(self) -> None:
        """Check what is known when the DAG is parsed.

        Raises:
            InvalidInputError: an argument that is no template field has a value of another type, or an argument has a
                value that Airflow cannot store.
        """
        known = [one for one in arguments_of(type(self)) if hasattr(self, one.attribute)]
        check_constants(type(self), {one.name: getattr(self, one.attribute) for one in known})
        for one in known:
            if one.name not in _OF_FUNCTIONS:
                check_stored(one.name, getattr(self, one.attribute))
        for name in self.template_fields:
            for value in _references(getattr(self, name, None)):
                _set_upstream(self, value)

    # -- rendering ----------------------------------------------------------------------------------------------------

    def resolve_template_files(self) -> None:
        """Read the files that arguments name, when the DAG is parsed; Airflow would look for one in each argument."""
        super().resolve_template_files()
        for name in self.file_fields:
            self._read_files(name, self.get_template_env, is_parsed=True)

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render the arguments, and check them; Airflow calls this for each task, mapped or not.

        Airflow before 3.3 keeps the template itself where it renders to nothing.
        """
        if parent is not self:
            super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
            return
        self.check_before_rendering()
        given = {name: getattr(self, name) for name in template_fields}
        with airflow_failures():
            for name in self.file_fields:
                self._read_files(name, lambda: jinja_env, resolved=seen_oids)
            for name in given:
                self._render_one(name, context, jinja_env, seen_oids)
            self.check_rendered(given)
        # Airflow stores and shows the rendered fields.
        mask_secrets({name: getattr(self, name, None) for name in self.template_fields})

    def check_before_rendering(self) -> None:
        """Check what rendering would change; overridden by operators with such arguments."""

    def _render_one(self, name: str, context: Context, jinja_env: Any, seen_oids: set[int]) -> None:
        value = getattr(self, name)
        if callable(value) and not hasattr(value, "resolve"):
            setattr(self, name, value(context=context, jinja_env=jinja_env))
        elif value is not None:
            setattr(self, name, self.render_template(value, context, jinja_env, seen_oids))

    def render_template(
        self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """Render the fields of option classes, too, into a copy, since they are frozen."""
        if not is_dataclass(content) or isinstance(content, type) or hasattr(content, "resolve"):
            return super().render_template(content, context, jinja_env, seen_oids)
        if seen_oids is not None and id(content) in seen_oids:
            return content  # of another task
        rendered = {
            item.name: self.render_template(getattr(content, item.name), context, jinja_env) for item in fields(content)
        }
        for item in fields(content):
            # Before the class checks its fields, which would say that they were left out.
            place = f"{type(content).__name__}.{item.name}"
            refuse_nothing(place, getattr(content, item.name), rendered[item.name])
        return replace(content, **rendered)

    def check_rendered(self, given: Mapping[str, Any]) -> None:
        """Check the arguments after rendering, and take the text of a truth value for it.

        Args:
            given: the values before, by the names of the attributes.

        Raises:
            InvalidInputError: an argument was given and is nothing, or is of another type.
        """
        names = {one.attribute: one.name for one in arguments_of(type(self))}
        mapped = _mapped_names(self)
        for attribute, before in given.items():
            name, after = names.get(attribute, attribute), getattr(self, attribute)
            is_free = name in _OF_FUNCTIONS or (name in self.may_be_empty and isinstance(after, list | tuple))
            if name not in self.may_be_nothing and not (is_free and is_empty(after)):
                refuse_nothing(name, _MAPPED if name in mapped else before, after)
        for argument in arguments_of(type(self)):
            if argument.attribute in given:
                value = argument.rendered(getattr(self, argument.attribute))
                setattr(self, argument.attribute, value)

    def _read_files(
        self, name: str, environment: Callable[[], Any], *, is_parsed: bool = False, resolved: Collection[int] = ()
    ) -> None:
        # What another task has given stays the object that it is: Airflow would take a new one for a template.
        value = getattr(self, name, None)
        if id(value) in resolved:
            return
        if isinstance(value, str):
            setattr(self, name, self._read_file(name, value, environment, is_parsed=is_parsed))
        elif isinstance(value, list | tuple):
            read = [self._read_file(name, one, environment, is_parsed=is_parsed) for one in value]
            setattr(self, name, type(value)(read))

    def _read_file(self, name: str, value: Any, environment: Callable[[], Any], *, is_parsed: bool) -> Any:
        if not (isinstance(value, str) and value.endswith(".sql")) or "\n" in value:
            return value
        env = environment()
        try:
            return env.loader.get_source(env, value)[0]
        except (LookupError, AttributeError) as error:  # of jinja, or there is no loader
            if is_parsed:
                return value  # the task will say so
            raise InvalidInputError(
                f"{name} is the name of a file, {value!r}, and there is no such file beside the DAG or in its "
                f"template_searchpath"
            ) from error


def check_constants(kind: type, given: Mapping[str, Any]) -> None:
    """Check the arguments that are no template fields, by name.

    Raises:
        InvalidInputError: one has a value of another type, or a template, or is none of its words.
    """
    for argument in arguments_of(kind):
        is_constant = argument.attribute not in kind.template_fields  # type: ignore[attr-defined]
        if is_constant and argument.name in given and not argument.accepts(given[argument.name]):
            raise argument.refusal(given[argument.name])
        if argument.name in given and argument.name in kind.words_at_parse:  # type: ignore[attr-defined]
            argument.check_word(given[argument.name])


# -- given, but nothing ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Nothing:
    """A value that was given, and that is nothing.

    Attributes:
        place: the argument, with the way to the value in it.
        value: None, '', 'None', or something empty.
    """

    place: str
    value: Any


def nothings(place: str, given: Any, rendered: Any, *, is_data: bool = False) -> Iterator[Nothing]:
    """Yield what was given, and is nothing after rendering.

    Args:
        place: the argument, or the way to a value in it.
        given: the value before rendering.
        is_data: whether the value is data, of which only the text that a template makes of None is refused.
    """
    is_text = isinstance(rendered, str) and is_nothing(rendered)
    if is_data:
        if is_text and rendered.strip() == "None" and isinstance(given, str) and given != rendered:
            yield Nothing(place=place, value=rendered)
    elif is_text or (is_empty(rendered) and not is_empty(given)):
        # An empty text is no way to leave an argument out, also where no template has made it.
        yield Nothing(place=place, value=rendered)
    for part in _parts(place, given, rendered, is_data=is_data):
        # What a mapping of an author's own names has by himself is a value, also if it is empty.
        if part.is_field or not (isinstance(part.given, str) and part.given == part.rendered):
            is_of_function = part.name in _OF_FUNCTIONS and is_empty(part.rendered)
            if not is_of_function:
                is_value = is_data or (part.is_value and not part.is_field)
                yield from nothings(part.place, part.given, part.rendered, is_data=is_value)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """A part of a value.

    Attributes:
        name: the field that has it, or the last one above it.
        is_field: whether it is a field with a name of ours, and no key of the author's.
        is_value: whether the value that it is in is data.
    """

    place: str
    name: str
    given: Any
    rendered: Any
    is_field: bool = False
    is_value: bool = False


def _parts(place: str, given: Any, rendered: Any, *, is_data: bool) -> Iterator[_Part]:
    name = place.rpartition(".")[2]
    if is_dataclass(rendered) and not isinstance(rendered, type):
        for item in fields(rendered):
            after = getattr(rendered, item.name)
            # A field that was left out of an object that another task has made was left out there.
            before = getattr(given, item.name) if is_dataclass(given) else after
            inner = f"{place}.{item.name}"
            yield _Part(place=inner, name=item.name, given=before, rendered=after, is_field=True)
    elif isinstance(rendered, Mapping):
        # An author's own names may be "table", too.
        is_record = "table" in rendered and not is_data and name not in _DATA
        for key, after in rendered.items():
            is_dynamic = is_record or (isinstance(after, Mapping) and "table" in after)
            before = given.get(key) if isinstance(given, Mapping) else _MAPPED if is_dynamic else after
            inner = f"{place}.{key}" if is_record else f"{place}[{key!r}]"
            yield _Part(
                place=inner, name=str(key), given=before, rendered=after, is_field=is_record, is_value=name in _DATA
            )
    elif isinstance(rendered, list | tuple):
        known = isinstance(given, list | tuple) and len(given) == len(rendered)
        for index, after in enumerate(rendered):
            before = given[index] if known else _MAPPED
            yield _Part(place=f"{place}[{index}]", name="", given=before, rendered=after, is_value=name in _DATA)


def refuse_nothing(name: str, given: Any, rendered: Any) -> None:
    """Check that an argument which was given is not nothing.

    Raises:
        InvalidInputError: it is, or a part of it.
    """
    for one in nothings(name, given, rendered):
        what = "None" if one.value is None else repr(one.value)
        way = ""
        if one.value == "None":
            way = ", or give the other task's value itself, or set render_template_as_native_obj=True in the DAG"
        raise InvalidInputError(
            f"{one.place} is {what} at run time, although the DAG gives a value: a template rendered to nothing, or "
            f"another task returned nothing, which is not taken for left out; correct that{way}, or skip the task"
        )


def _mapped_names(operator: BaseOperator) -> frozenset[str]:
    """Return the arguments that a mapped task has from other tasks."""
    if not getattr(operator, "_BaseOperator__from_mapped", False):
        return frozenset()
    dag = operator.get_dag()
    task = None if dag is None else dag.task_dict.get(operator.task_id)
    given = getattr(getattr(task, "expand_input", None), "value", None)
    if isinstance(given, Mapping):
        return frozenset(name for name, value in given.items() if _is_of_tasks(value))
    if given is None:
        return frozenset()
    known = getattr(task, "partial_kwargs", {})
    rows = [given] if _resolves(given) else [one for one in given if _is_of_tasks(one)]
    names = {name for one in rows if isinstance(one, Mapping) for name, value in one.items() if _is_of_tasks(value)}
    if any(_resolves(one) for one in rows):
        names |= vars(operator).get("_BaseOperator__init_kwargs", {}).keys() - known.keys()
    return frozenset(names)


def _is_of_tasks(value: Any) -> bool:
    """Tell whether a value is that of another task, or has one in it."""
    if isinstance(value, Mapping):
        return any(_is_of_tasks(one) for one in value.values())
    if isinstance(value, list | tuple):
        return any(_is_of_tasks(one) for one in value)
    return _resolves(value)


def _resolves(value: Any) -> bool:
    return callable(getattr(value, "resolve", None)) and not isinstance(value, os.PathLike)


# -- the tasks that values come from -----------------------------------------------------------------------------------


def _references(value: Any) -> Iterator[Any]:
    """Yield the option objects in a value, in which Airflow does not look for the values of other tasks."""
    if is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, item.name) for item in fields(value))
        for item in fields(value):
            yield from _references(getattr(value, item.name))
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _references(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _references(one)


def _set_upstream(operator: BaseOperator, value: Any) -> None:
    from airflow.sdk.definitions.xcom_arg import XComArg

    if not getattr(operator, "_BaseOperator__from_mapped", False):
        XComArg.apply_upstream_relationship(operator, value)
