"""What all commands share: the table that is asked for, errors without a traceback, and tables that fit a terminal.

The formats json, yaml and plain are those of Airflow's own commands, with all fields. A table has fewer columns, and
long texts are wrapped, but for snapshot ids, which are there to be copied.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.redaction import printable, replaced, without_secrets

if TYPE_CHECKING:
    from airflow_iceberg.table import Table

Row = Mapping[str, Any]

# The width of a table that is written into a file or a pipe, as in Airflow's own commands.
_WIDTH_OF_PIPES = 200
_GAP = "  "


def command(function: Callable[[Namespace], None]) -> Callable[[Namespace], None]:
    """Make a command of a function: errors are one line on stderr, and the exit code is 1."""

    @functools.wraps(function)
    def run(args: Namespace) -> None:
        # As Airflow's own commands do that read connections: they may lie in its database.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
        # Airflow before 3.3 logs on stdout, where only the answer belongs.
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
                handler.setStream(sys.stderr)
        logging.getLogger("airflow_iceberg").setLevel(logging.DEBUG if args.verbose else logging.ERROR)
        try:
            function(args)
        except Exception as error:
            if args.verbose and not isinstance(error, IcebergError):
                raise
            kind = "" if isinstance(error, IcebergError) else f"{type(error).__name__}: "
            # The text of an exit goes to stderr, and its code is 1.
            raise SystemExit(printable(f"error: {_hidden(f'{kind}{error}', args)}")) from None

    return run


def load_table(args: Namespace, name: str | None = None) -> Table:
    """Load the table that a command names."""
    hook = IcebergHook(args.iceberg_conn_id)
    args.hook = hook  # whose secrets no error may show
    return hook.load_table(name or args.table)


def limit_of(args: Namespace) -> int:
    """Return the largest number of rows to show.

    Raises:
        InvalidInputError: it is below 1.
    """
    if args.limit < 1:
        raise InvalidInputError(f"--limit is {args.limit}, expected 1 or more")
    return int(args.limit)


def _hidden(text: str, args: Namespace) -> str:
    hook = getattr(args, "hook", None)
    try:
        secrets = [] if hook is None else [secret for secret in hook.config.secrets() if len(secret) > 3]
    except Exception:  # noqa: BLE001 - the connection cannot be read: it is the error that is shown
        secrets = []
    return without_secrets(replaced(text, secrets))


def emit(args: Namespace, rows: Sequence[Row], columns: Mapping[str, Callable[[Row], Any]] | None = None) -> None:
    """Print rows in the format that was asked for.

    Args:
        columns: the columns of a table and of plain text by their names; by default all fields.
    """
    shown = [{name: get(row) for name, get in columns.items()} for row in rows] if columns else [dict(r) for r in rows]
    if args.output == "table":
        sys.stdout.write("".join(f"{line}\n" for line in (table_lines(shown) if shown else ("No data found",))))
        return
    from airflow.cli.simple_table import AirflowConsole

    if args.output == "plain":
        shown = [{printable(_text(name)): printable(_text(value)) for name, value in row.items()} for row in shown]
    AirflowConsole().print_as(shown if args.output == "plain" else [dict(row) for row in rows], args.output)


def screen_width() -> int:
    """Return the number of columns of the terminal, or of what is written into a file."""
    return shutil.get_terminal_size((_WIDTH_OF_PIPES, 50)).columns


def table_lines(rows: Sequence[Row], width: int | None = None) -> Iterator[str]:
    """Yield the lines of a table that is as wide as the terminal at most.

    Args:
        width: the number of columns; by default those of the terminal.
    """
    most = width or screen_width()
    # A column that says nothing takes the place of others.
    names = [name for name in rows[0] if any(_text(row.get(name)) for row in rows)]
    cells = [[printable(_text(row.get(name))) for name in names] for row in rows]
    names = [printable(_text(name)) for name in names]
    widths = _widths(names, cells, most)
    for line in (names, ["=" * width for width in widths], *cells):
        yield from _wrapped(line, widths)


def _widths(names: Sequence[str], cells: Sequence[Sequence[str]], most: int) -> list[int]:
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    least = [width if name.endswith("snapshot_id") else len(name) for name, width in zip(names, widths, strict=True)]
    while sum(widths) + len(_GAP) * (len(widths) - 1) > most:
        spare, number = max((width - least[number], number) for number, width in enumerate(widths))
        if spare <= 0:
            break
        widths[number] -= 1
    return widths


def _wrapped(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    parts = [
        textwrap.wrap(cell, width, break_on_hyphens=False) or [""] for cell, width in zip(cells, widths, strict=True)
    ]
    for number in range(max(map(len, parts))):
        line = (
            (part[number] if number < len(part) else "").ljust(width) for part, width in zip(parts, widths, strict=True)
        )
        yield _GAP.join(line).rstrip()


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(one)}" for name, one in value.items())
    return str(value).replace("\n", " ")
