"""Values to HTML. Everything in a table may be written by an enemy: no text reaches a page but through `_shown`.

Texts lose control characters, and what is longer than a page needs; then Jinja escapes them. The page allows no script
and no style but its own two, by their digests, and no address but Airflow's.

Secrets of the connection are looked for in errors alone, and there not in the words of a table or of an address: who
writes a guess there would see by the asterisks whether it is right. What is named like a secret is hidden in all texts.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from airflow_iceberg.catalogs.names import join_levels, split_levels
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.hooks.late_threads import stop_if_late
from airflow_iceberg.operations.reports.table_facts import utc_text
from airflow_iceberg.redaction import HIDDEN, printable, without_secrets
from airflow_iceberg.ui.addresses import base_path, below_airflow, page_address

_FOLDER = Path(__file__).parent / "templates"
_MOST_CHARACTERS = 2_000
# Of those that are recognised by what is around them.
_LONGEST_SECRET = 4_096
# Nobody tries all texts of this length; the asterisks of a shorter one would confirm a guess.
_NO_GUESS = 20
_PATH = re.compile(r"\S*/\S*")
_MOST_PARTS = 32
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def page(template: str, values: Mapping[str, Any], *, status: int = 200) -> Response:
    """Return a page.

    Args:
        template: the name of its template, without the suffix.
    """
    html = _environment().get_template(f"{template}.html").render(values)
    # What surrogates are left is in no text that was cleaned.
    return Response(html.encode("utf-8", "replace"), status, headers(), media_type="text/html; charset=utf-8")


@cache
def headers() -> dict[str, str]:
    """Return the headers of each answer, also of those without a page."""
    style, script = (_digest(_own(name)) for name in ("page.css", "page.js"))
    policy = {
        "default-src": "'none'",
        "style-src": style,
        "script-src": script,
        "form-action": "'self'",
        "base-uri": "'none'",
        "frame-ancestors": "'self'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        # Shared by no cache, and not shown to the next user of the browser.
        "Cache-Control": "no-store",
    }


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _own(name: str) -> str:
    return (_FOLDER / name).read_text()


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        auto_reload=False,
    )
    made.globals |= {
        "style": Markup(_own("page.css")),
        "script": Markup(_own("page.js")),
        "airflow": base_path(),
        "link": link,
        "task_link": task_link,
    }
    made.filters |= {"moment": moment, "ago": ago, "size": size, "number": number, "share": percent}
    made.filters |= {"without_secrets": message, "below": below, "levels": join_levels}
    return made


def _shown(value: Any) -> Any:
    """Return a value as Jinja escapes it: every expression of a template comes through here."""
    if isinstance(value, Markup) or value is None:
        return value if value is not None else ""
    stop_if_late()
    return clean(str(value)[: _MOST_CHARACTERS + 1])


def error_text(error: IcebergError, secrets: Sequence[str] = (), asked: Iterable[str] = ()) -> str:
    """Return the text of an error without secrets.

    Args:
        secrets: those of the connection. Short ones, which one could guess, are not looked for where the words are
            not the connection's: in paths, in what is said of a document, and in what the address asks for.
        asked: what the address asks for.
    """
    is_of_a_document = isinstance(error, FormatError | UnsupportedError | InvalidInputError)
    # The longest first: one may be a part of another.
    each = re.compile("|".join(map(re.escape, sorted(filter(None, secrets), key=len, reverse=True))) or "(?!)")
    own = re.compile("|".join(_told(asked)) or "(?!)")

    def without(text: str) -> str:
        text = without_secrets(text)
        asked_for = [found.span() for found in own.finditer(text)]
        foreign = [(0, len(text))] if is_of_a_document else [found.span() for found in _PATH.finditer(text)]

        def hidden(found: re.Match[str]) -> str:
            is_shown = _is_in(found, asked_for) or (len(found[0]) < _NO_GUESS and _is_in(found, foreign))
            return found[0] if is_shown else HIDDEN

        return each.sub(hidden, text)

    return begun(str(error), without, max((_LONGEST_SECRET, *map(len, secrets))))


def _told(asked: Iterable[str]) -> Iterable[str]:
    """Yield patterns of how errors tell what the address asks for: as a whole, its namespaces, and its parts in paths.

    A part elsewhere may be a secret that an error tells, and no word of an address uncovers one.
    """
    for text in filter(None, asked):
        yield re.escape(text)
        try:
            parts = split_levels(text)
        except InvalidInputError:
            parts = (text,)
        if (written := join_levels(parts)) != text:  # as errors write it
            yield re.escape(written)
        if len(parts) > _MOST_PARTS:  # each is in a pattern of its own, and no catalog has so many levels
            continue
        for end in range(len(parts), 0, -1):  # the longest first
            yield rf"(?i:namespace(?: does not exist:)? ['\"]?){re.escape(join_levels(parts[:end]))}(?![\w-])"
            yield f"/{re.escape(parts[end - 1])}"


def _is_in(found: re.Match[str], spans: Iterable[tuple[int, int]]) -> bool:
    """Whether what was found is a part of a word, and not the word a part of it."""
    return any(start <= found.start() and found.end() <= end for start, end in spans)


def begun(text: str, without: Callable[[str], str], longest: int = _LONGEST_SECRET) -> str:
    """Return as much of the beginning of a text as a page shows, without secrets, which are looked for in little more.

    A secret must not be cut before it is found. So it is looked for in more by the length of one, which is left out of
    the answer.
    """
    head = text[: _MOST_CHARACTERS + 1 + longest]
    made = without(head)
    return made if len(head) == len(text) else f"{made[: max(len(made) - longest, 0)]}…"


def clean(text: str) -> str:
    """Return a text without control characters and of limited length."""
    return printable(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")


def message(error: object) -> str:
    """Return a text, or that of an error, without secrets."""
    return begun(str(error), without_secrets)


def link(*path: str, **query: Any) -> Markup:
    """Return the address of one of our pages, each part encoded."""
    return escape(page_address(*path, **query))


def task_link(run: Any) -> Markup:
    """Return the address of Airflow's page about the task, or the DAG run, that made a snapshot."""
    path = ["dags", str(run.dag_id)]
    if run.run_id is not None:
        path += ["runs", str(run.run_id)]
        if run.task_id is not None:
            path += ["tasks", str(run.task_id)]
            index = getattr(run, "map_index", None)
            path += ["mapped", str(index)] if index is not None and index >= 0 else []
    tried = getattr(run, "try_number", None)
    return escape(below_airflow(path, {"try_number": tried if len(path) > 4 else None}))


def moment(milliseconds: int | None) -> Markup:
    """Return a time in UTC."""
    if milliseconds is None:
        return Markup("–")
    text = utc_text(milliseconds)
    if text == str(milliseconds):
        return escape(text)
    return Markup('<time datetime="{}Z">{}</time>').format(text.replace(" ", "T"), text)


def ago(milliseconds: int | None) -> str:
    """Return how long ago a time is."""
    if milliseconds is None:
        return "never"
    seconds = max(0, int(datetime.now(UTC).timestamp()) - milliseconds // 1000)
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = seconds // length
            return f"{count:,} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def size(count: int | None) -> str:
    """Return a number of bytes as people read it."""
    if count is None:
        return "–"
    value, unit = float(min(abs(count), 1 << 100)), 0  # more is no float
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    sign = "−" if count < 0 else ""
    return f"{sign}{value:,.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{sign}{value:,.1f} {_UNITS[unit]}"


def number(count: int | None) -> str:
    """Return a number with separators."""
    return "–" if count is None else f"{count:,}"


def below(path: str, location: str) -> str:
    """Return a path as it is below a location, without secrets."""
    return message(path.removeprefix(location.rstrip("/") + "/"))


def percent(part: int, whole: int) -> str:
    """Return a part of a whole in percent."""
    return f"{part / whole:.0%}" if whole else "–"
