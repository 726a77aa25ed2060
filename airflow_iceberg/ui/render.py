"""Values to HTML. Everything in a table may be written by an enemy: no text reaches a page but through `_shown`.

Texts lose control characters, what is longer than a page needs, and the secrets of the connection; then Jinja escapes
them. The page allows no script and no style but its own two, by their digests, and no address but Airflow's.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from airflow_iceberg.redaction import printable, replaced, without_secrets
from airflow_iceberg.ui.addresses import base_path, below_airflow, page_address

_FOLDER = Path(__file__).parent / "templates"
_MOST_CHARACTERS = 2_000
# Of those that are recognised by what is around them.
_LONGEST_SECRET = 4_096
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def page(template: str, values: Mapping[str, Any], *, secrets: tuple[str, ...] = (), status: int = 200) -> Response:
    """Return a page.

    Args:
        template: the name of its template, without the suffix.
        secrets: texts that it must not show.
    """
    html = _environment().get_template(f"{template}.html").render({**values, "_secrets": secrets})
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
    made.filters |= {"without_secrets": message, "below": below}
    return made


@pass_context
def _shown(context: Context, value: Any) -> Any:
    """Return a value as Jinja escapes it: every expression of a template comes through here."""
    if isinstance(value, Markup) or value is None:
        return value if value is not None else ""
    secrets = context.get("_secrets") or ()
    longest = max(map(len, secrets), default=0)
    return clean(_begun(str(value), _MOST_CHARACTERS + 1, lambda text: replaced(text, secrets), longest))


def _begun(text: str, most: int, without: Callable[[str], str], longest: int) -> str:
    """Return so much of the beginning of a text, without secrets, and look for them in little more of it.

    A secret must not be cut before it is found. So it is looked for in more by the length of one, which is left out of
    the answer.
    """
    head = text[: most + longest]
    made = without(head)
    return made if len(head) == len(text) else f"{made[: max(len(made) - longest, 0)]}…"


def clean(text: str) -> str:
    """Return a text without control characters and of limited length."""
    return printable(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")


def message(error: object) -> str:
    """Return a text, or that of an error, without secrets."""
    # Those of the connection are looked for afterwards.
    return _begun(str(error), _MOST_CHARACTERS + _LONGEST_SECRET, without_secrets, _LONGEST_SECRET)


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
    try:
        when = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return escape(str(milliseconds))  # far beyond any calendar
    text = when.strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}">{}</time>').format(when.isoformat(), text)


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
