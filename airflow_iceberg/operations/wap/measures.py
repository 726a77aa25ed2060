"""How each audit is decided: from metadata where that proves it, else by rows that are streamed.

Counts and shares of nulls are read from manifests as far as no rows of a file were deleted; freshness opens only files
whose bounds can hold a row that is new enough. Keys are counted, and SQL is run, by DuckDB in this process, which
spills what does not fit into memory. Not here: what an audit is (`operations.wap.audits`), the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib import import_module
from itertools import islice
from typing import Any

from airflow_iceberg.commit.open_table import OpenTable
from airflow_iceberg.data.cast.rows import python_rows
from airflow_iceberg.data.read.selection import schema_of
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.expressions.merge_clauses import quoted
from airflow_iceberg.expressions.query import tables_of
from airflow_iceberg.expressions.tree import ALWAYS_TRUE
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.format.snapshots import Snapshot
from airflow_iceberg.format.types import (
    DateType,
    IcebergType,
    PrimitiveType,
    TimestampNsType,
    TimestampType,
    TimestamptzNsType,
    TimestamptzType,
)
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import first_rows
from airflow_iceberg.operations.inputs.changes import Consumer
from airflow_iceberg.operations.inputs.tables import Input, pin
from airflow_iceberg.operations.wap import audits
from airflow_iceberg.operations.wap.report import AuditResult, shown_rows, shown_text
from airflow_iceberg.scan import TableScan

_TIMES = (TimestampType, TimestamptzType, TimestampNsType, TimestamptzNsType)
_WITH_ZONE = (TimestamptzType, TimestamptzNsType)


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """A snapshot that is audited.

    Attributes:
        snapshot: the snapshot; None for a table without rows.
        main: the head of main that it is compared with.
        schema: the columns that the table had before, for `SchemaUnchanged`.
        inputs: further tables that SQL reads, by name.
        now: the time that ages are measured from.
        sample_rows: the number of offending rows that are shown.
    """

    table: OpenTable
    snapshot: Snapshot | None
    main: Snapshot | None
    schema: Schema
    inputs: Mapping[str, Input] = field(default_factory=dict)
    now: datetime
    sample_rows: int

    def scan(self, snapshot: Snapshot | None = None, **more: Any) -> TableScan:
        """Describe a read of the audited snapshot, or of another one."""
        wanted = snapshot or self.snapshot
        more["snapshot_id"] = None if wanted is None else wanted.snapshot_id
        return TableScan.of(self.table.metadata, self.table.io, **more)

    def count(self, snapshot: Snapshot | None, **more: Any) -> int:
        """Return the number of rows of a snapshot; none of no snapshot."""
        return 0 if snapshot is None else self.scan(snapshot, **more).count()

    def query(self, sql: str, params: Mapping[str, Any] | None = None, *, limit: int) -> list[dict[str, Any]]:
        """Return the first rows of a query over the audited snapshot, main and the inputs."""
        source = Source.from_sql(sql, params, dialect="duckdb")
        known = {audits.AUDITED: self._as_input(self.snapshot), audits.MAIN: self._as_input(self.main), **self.inputs}
        read = tables_of(sql, dialect="duckdb")
        used = {name: one for name, one in known.items() if read is None or name.lower() in read}
        opened: dict[str, OpenTable] = {}
        consumer = Consumer(table=self.table, branch=audits.MAIN, key=None, try_number=None)
        tables = pin({name: _kept(name, one, opened) for name, one in used.items()}, source, consumer)
        return first_rows(source, tables, {name: table.io for name, table in opened.items()}, limit=limit)

    def _as_input(self, snapshot: Snapshot | None) -> Input:
        return Input(open=lambda: self.table, snapshot_id=None if snapshot is None else snapshot.snapshot_id)


def _kept(name: str, one: Input, opened: dict[str, OpenTable]) -> Input:
    """Return an input whose table is kept when it is opened, for access to its files."""

    def open_() -> OpenTable:
        opened[name] = one.open()
        return opened[name]

    return replace(one, open=open_)


def decide(audit: audits.Audit, audited: Audited) -> AuditResult:
    """Make an audit.

    Raises:
        InvalidInputError, NotFoundError: the audit is wrong: its SQL, or a column that the table does not have.
    """
    return _DECIDE[type(audit)](audit, audited)


def _no_rows(audit: audits.NoRows, audited: Audited) -> AuditResult:
    rows = audited.query(audit.sql, audit.params, limit=audited.sample_rows + 1)
    if not rows:
        return _result(audit, True, "no row")
    return _failed(audit, audited, _at_least(len(rows), audited.sample_rows, "offending row"), rows)


def _row_count(audit: audits.RowCount, audited: Audited) -> AuditResult:
    least, most = _number(audit, "min", audit.min), _number(audit, "max", audit.max)
    where = {"row_filter": audit.row_filter, "predicate_params": audit.predicate_params}
    count = audited.count(audited.snapshot, **where)
    return _result(audit, _within(count, least, most), f"{count} rows, expected {_range(least, most)}")


def _row_count_change(audit: audits.RowCountChange, audited: Audited) -> AuditResult:
    least, most = _number(audit, "min", audit.min), _number(audit, "max", audit.max)
    count, before = audited.count(audited.snapshot), audited.count(audited.main)
    if before:
        change = (count - before) / before
    else:
        change = math.inf if count else 0.0
    found = f"{count} rows, {before} in main: a change of {change:+.4g}, expected {_range(least, most)}"
    return _result(audit, _within(change, least, most), found)


def _null_share(audit: audits.NullShare, audited: Audited) -> AuditResult:
    most = _share(audit, "max", audit.max)
    field_id = audited.scan().schema.find_field(audit.column).id
    rows = audited.count(audited.snapshot)
    nulls = _count_nulls(audit.column, field_id, audited) if rows else 0
    share = nulls / rows if rows else 0.0
    found = f"{nulls} of {rows} rows have null in '{audit.column}' ({share:.4g}), expected at most {most:g}"
    if _within(share, None, most):
        return _result(audit, True, found)
    where = f"{_column(audit.column)} is null"
    sample = audited.scan(row_filter=where, limit=max(audited.sample_rows, 1)).to_arrow()
    return _failed(audit, audited, found, python_rows(sample, source="the rows without a value"))


def _count_nulls(column: str, field_id: int, audited: Audited) -> int:
    scan = audited.scan(row_filter=f"{_column(column)} is null")
    tasks = list(scan.iter_files())
    files = [task.file for task in tasks if not task.delete_files]
    # Where the partition decides, it decides: a file of Hive may have other values in the column, which nobody reads.
    counts = [
        file.record_count if task.residual == ALWAYS_TRUE else (file.null_value_counts or {}).get(field_id, -1)
        for task, file in ((task, task.file) for task in tasks if not task.delete_files)
    ]
    # Some writers write -1 for a count that they do not know.
    is_known = all(0 <= count <= file.record_count for count, file in zip(counts, files, strict=True))
    if is_known and len(files) == len(tasks) and column in _top_level(scan.schema):
        return sum(counts)
    return scan.count()


def _unique_share(audit: audits.UniqueShare, audited: Audited) -> AuditResult:
    least = _share(audit, "min", audit.min)
    for column in audit.keys:
        audited.scan().schema.find_field(column)
    keys = ", ".join(_column(column, "duckdb") for column in audit.keys)
    has_key = " and ".join(f"{_column(column, 'duckdb')} is not null" for column in audit.keys)
    grouped = f"from {audits.AUDITED} where {has_key} group by {keys}"
    [totals] = audited.query(
        f"select count(*) as keys, coalesce(sum(n), 0)::bigint as n from (select count(*) as n {grouped})", limit=1
    )
    share = totals["keys"] / totals["n"] if totals["n"] else 1.0
    what = ", ".join(audit.keys)
    found = (
        f"{totals['keys']} different keys ({what}) in {totals['n']} rows ({share:.4g}), expected {_range(least, None)}"
    )
    if _within(share, least, None):
        return _result(audit, True, found)
    twice = f'select {keys}, count(*) as "rows" {grouped} having count(*) > 1 order by "rows" desc, {keys}'
    return _failed(
        audit, audited, found, audited.query(f"{twice} limit {audited.sample_rows}", limit=audited.sample_rows)
    )


def _freshness(audit: audits.Freshness, audited: Audited) -> AuditResult:
    kind = audited.scan().schema.find_field(audit.column).type
    oldest = audited.now - audit.max_age
    limit = _literal(audit, kind, oldest)
    where: dict[str, Any] = {
        "row_filter": f"{_column(audit.column)} >= :oldest",
        "predicate_params": {"oldest": limit},
    }
    is_fresh = audited.snapshot is not None and audited.scan(limit=1, **where).to_arrow().num_rows > 0
    what = "there is a row" if is_fresh else "no row has a value"
    return _result(audit, is_fresh, f"{what} in '{audit.column}' of {oldest:%Y-%m-%d %H:%M:%S} UTC or later")


def _literal(audit: audits.Freshness, kind: IcebergType, moment: datetime) -> object:
    if isinstance(kind, DateType):
        return moment.astimezone(UTC).date()
    if not isinstance(kind, _TIMES):
        raise InvalidInputError(
            f"audit {audit.label!r}: column '{audit.column}' is of type {kind}, expected a timestamp or a date"
        )
    return moment if isinstance(kind, _WITH_ZONE) else moment.astimezone(UTC).replace(tzinfo=None)


def _schema_unchanged(audit: audits.SchemaUnchanged, audited: Audited) -> AuditResult:
    now = (
        audited.table.metadata.schema()
        if audited.snapshot is None
        else schema_of(audited.table.metadata, audited.snapshot)
    )
    before = audited.schema
    if now.same_fields(before):
        return _result(audit, True, "the schema is unchanged")
    changed = [
        f"{name}: {_described(before, name)} became {_described(now, name)}"
        for name in dict.fromkeys([*before.names, *now.names])
        if _described(before, name) != _described(now, name)
    ]
    return _result(audit, False, f"the schema has changed: {'; '.join(changed) or 'documentation or defaults'}")


def _described(schema: Schema, name: str) -> str:
    if name not in schema.names:
        return "nothing"
    found = schema.find_field(name)
    kind = (
        found.type if isinstance(found.type, PrimitiveType) else type(found.type).__name__.removesuffix("Type").lower()
    )
    return f"{kind}{' required' if found.required else ''} (id {found.id})"


def _python_audit(audit: audits.PythonAudit, audited: Audited) -> AuditResult:
    answer = _function(audit)(audited.scan(), **audit.op_kwargs)
    if answer is None or answer is True:
        return _result(audit, True, "the function found nothing wrong")
    if answer is False:
        return _result(audit, False, "the function returned False")
    if isinstance(answer, str):
        return _result(audit, False, answer)
    rows = list(islice(_rows(audit, answer), audited.sample_rows + 1))
    if not rows:
        return _result(audit, True, "the function found no row")
    return _failed(audit, audited, _at_least(len(rows), audited.sample_rows, "offending row"), rows)


def _function(audit: audits.PythonAudit) -> Callable[..., Any]:
    if not isinstance(audit.function, str):
        return audit.function
    module, _, name = audit.function.partition(":")
    try:
        found = getattr(import_module(module.strip()), name.strip())
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(f"audit {audit.label!r}: cannot import {audit.function}: {error}") from error
    if not callable(found):
        raise InvalidInputError(f"audit {audit.label!r}: {audit.function} is no function")
    return found  # type: ignore[no-any-return]


def _rows(audit: audits.PythonAudit, answer: Any) -> Iterable[Mapping[str, Any]]:
    if hasattr(answer, "to_batches"):
        answer = answer.to_batches()
    if hasattr(answer, "to_pylist"):
        answer = [answer]
    try:
        found = iter(answer)
    except TypeError:
        found = iter([answer])
    for one in found:
        if isinstance(one, Mapping):
            yield one
        elif hasattr(one, "to_pylist"):
            yield from python_rows(one, source=f"the rows of audit {audit.label!r}")
        else:
            raise InvalidInputError(
                f"audit {audit.label!r} returned {type(answer).__name__}, expected True, False, None, a text, "
                f"or rows as dictionaries or Arrow"
            )


def _column(name: str, dialect: str = "spark") -> str:
    return ".".join(quoted(part, dialect) for part in name.split("."))


def _top_level(schema: Schema) -> set[str]:
    return {item.name for item in schema.fields}


def _number(audit: audits.Audit, name: str, value: object) -> float:
    """Return a limit, which a template may have made text; a limit that is not given is None."""
    if value is None:
        return None  # type: ignore[return-value]
    try:
        if isinstance(value, bool):
            raise ValueError
        found = float(str(value))
    except ValueError as error:
        raise InvalidInputError(f"audit {audit.label!r}: {name} is {value!r}, expected a number") from error
    if math.isnan(found):
        raise InvalidInputError(f"audit {audit.label!r}: {name} is {value!r}, expected a number")
    return found


def _share(audit: audits.Audit, name: str, value: object) -> float:
    """Return a limit of a share: with 5 for 5 % an audit would never fail, or never pass."""
    found = math.nan if value is None else _number(audit, name, value)
    if not 0 <= found <= 1:
        example = f", such as {found / 100:g} for {found:g} %" if 1 < found <= 100 else ""
        raise InvalidInputError(f"audit {audit.label!r}: {name} is {value!r}, expected a share from 0 to 1{example}")
    return found


def _within(value: float, least: float | None, most: float | None) -> bool:
    return (least is None or value >= least) and (most is None or value <= most)


def _range(least: float | None, most: float | None) -> str:
    ends = ([] if least is None else [f"at least {least:.15g}"]) + ([] if most is None else [f"at most {most:.15g}"])
    return " and ".join(ends)


def _at_least(found: int, shown: int, what: str) -> str:
    return f"more than {shown} {what}s" if found > shown else f"{found} {what}{'' if found == 1 else 's'}"


def _result(audit: audits.Audit, passed: bool, found: str) -> AuditResult:
    return AuditResult(audit=shown_text(audit.label), passed=passed, found=shown_text(found))


def _failed(audit: audits.Audit, audited: Audited, found: str, rows: Iterable[Mapping[str, Any]]) -> AuditResult:
    shown = shown_rows(rows, limit=audited.sample_rows)
    return AuditResult(audit=shown_text(audit.label), passed=False, found=shown_text(found), rows=shown)


_DECIDE: Mapping[type[audits.Audit], Callable[[Any, Audited], AuditResult]] = {
    audits.NoRows: _no_rows,
    audits.RowCount: _row_count,
    audits.RowCountChange: _row_count_change,
    audits.NullShare: _null_share,
    audits.UniqueShare: _unique_share,
    audits.Freshness: _freshness,
    audits.SchemaUnchanged: _schema_unchanged,
    audits.PythonAudit: _python_audit,
}
