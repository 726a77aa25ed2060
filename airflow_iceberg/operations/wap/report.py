"""The report of audits: what each has found, and the first offending rows, bounded and without secrets.

Whoever reads XCom, a log or a mail sees it: so the rows are few, short, and hidden where their columns, or what is in
them, look like secrets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, ClassVar

from airflow_iceberg.commit.write_result import OperationResult
from airflow_iceberg.redaction import hide, printable, without_secrets

ROWS = 10
"""How many offending rows a report shows by default."""
_MOST_ROWS_BYTES = 8 << 10
_MOST_CHARACTERS = 200
# JavaScript, which shows XCom, rounds integers above.
_EXACT = 1 << 53


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditResult:
    """What an audit has found.

    Attributes:
        audit: the name of the audit.
        found: what was found, in words.
        rows: the first offending rows, as plain values.
    """

    audit: str
    passed: bool
    found: str
    rows: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport(OperationResult):
    """What the audits of a snapshot have found.

    Attributes:
        branch: the branch that was audited; None if a snapshot was.
        snapshot_id: the snapshot that was audited; None for a table without one.
        main_snapshot_id: the head of main that it was compared with.
        table_uuid: the uuid of the table.
        passed: whether all audits have passed.
    """

    makes_snapshots: ClassVar[bool] = False

    branch: str | None
    snapshot_id: int | None
    main_snapshot_id: int | None
    table_uuid: str
    passed: bool
    audits: tuple[AuditResult, ...]

    @property
    def failed(self) -> tuple[AuditResult, ...]:
        """The audits that have not passed."""
        return tuple(one for one in self.audits if not one.passed)

    def lines(self) -> list[str]:
        """Return the report as the lines of a table for the log, with the offending rows."""
        width = max((len(one.audit) for one in self.audits), default=0)
        lines = [f"{'passed' if one.passed else 'FAILED'}  {one.audit:<{width}}  {one.found}" for one in self.audits]
        return [*lines, *(f"{one.audit}: {json.dumps(dict(row))}" for one in self.audits for row in one.rows)]

    def markdown(self) -> str:
        """Return the report as a table of Markdown, for a person who approves it."""
        cells = [("audit", "result", "found"), ("---", "---", "---")]
        cells += [(one.audit, "passed" if one.passed else "**failed**", one.found) for one in self.audits]
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells)

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values for XCom; ids are texts."""
        audits = [{**asdict(one), "rows": list(one.rows)} for one in self.audits]
        return {**OperationResult.to_xcom(self), "audits": audits, "report": self.markdown()}


def shown_rows(rows: Iterable[Mapping[str, Any]], *, limit: int) -> tuple[dict[str, Any], ...]:
    """Return the first rows as plain values: few, short, and without what looks like a secret."""
    shown: list[dict[str, Any]] = []
    left = _MOST_ROWS_BYTES
    for row in rows:
        plain = {str(name)[:_MOST_CHARACTERS]: _shown(str(name), value) for name, value in row.items()}
        left -= len(json.dumps(plain))
        if len(shown) >= limit or left < 0:
            break
        shown.append(plain)
    return tuple(shown)


def shown_text(text: str) -> str:
    """Return a text that an audit has made, short and without what looks like a secret."""
    return printable(without_secrets(" ".join(text.split())))[: 5 * _MOST_CHARACTERS]


def _shown(name: str, value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    hidden = hide(name, value if isinstance(value, str) else _plain(value))
    if isinstance(hidden, int | float):
        is_exact = not isinstance(hidden, int) or abs(hidden) <= _EXACT
        return hidden if is_exact and hidden == hidden and abs(hidden) != float("inf") else str(hidden)
    text = without_secrets(str(hidden))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


def _plain(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[: _MOST_CHARACTERS // 2]).hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if not isinstance(value, list | dict) else json.dumps(value, default=str)
