"""What is right about the outcome of a generated case: SQL's rows, for every reader, and the row ids of version 3.

Where Iceberg Java 1.10.2 departs from SQL, or another reader cannot read what is right, it is said here by a rule, with
the reason. Where a reader "may" fail, it depends on more than the case; else one that reads what it is said not to read
is reported as well.
"""

from __future__ import annotations

import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_iceberg.format.manifests.entries import FileContent, ManifestEntry
from tests.support.case_runs import LINEAGE, Outcome, Texts
from tests.support.cases import Case
from tests.support.changes import live_entries

# What readers cannot, and what they say of it.
READERS_CANNOT = {
    "PyIceberg 0.12 may not read a table with equality deletes": "equality deletes",
    "PyIceberg 0.12 may not read manifests with nanoseconds in the partition": "Unknown logical/physical type",
    "PyIceberg 0.12 may not apply deletes in a partition that is not a number": "(it does not fail)",
    "DuckDB 1.5 does not have the type timestamptz_ns": "Unrecognized primitive type",
    "DuckDB 1.5 may break down on a partition field that has become void, of another type then": "",
    "DuckDB 1.5 may take one deletion vector of a file for another of it": "(it does not fail)",
    "DuckDB 1.5 may break down on equality deletes of a null partition": "Comparison on NULL values",
}
_LEAST = (-(2**63), -(2**31))


def judge(case: Case, outcome: Outcome) -> tuple[list[str], set[str]]:
    """Return what is wrong, and the reasons for which Java's rows are not SQL's."""
    wanted = outcome.expected
    if case.expected() is None:  # a dynamic overwrite is what Java makes of it
        wanted = outcome.ours["us"] if outcome.java is None else outcome.java
    wrong = [f"{left} of Java, {right} of us" for left, right in outcome.survivors if left != right]
    for reader in (*outcome.ours, *outcome.failed):
        wrong += _judge_reader(case, outcome, reader, wanted)
    reasons = {outcome.refused} if outcome.refused else set()
    for row in _difference(case, outcome.java or wanted, wanted, by_java=True):
        reason = _java_departs(case, row)
        if reason is None:
            wrong.append(f"Java has another answer on {row}")
        else:
            reasons.add(reason)
    return wrong + _wrong_lineage(case, outcome), reasons


def _judge_reader(case: Case, outcome: Outcome, reader: str, wanted: Texts) -> list[str]:
    reason = reader_departs(reader, case, outcome)
    if reader in outcome.failed:
        is_known = reason is not None and READERS_CANNOT[reason] in outcome.failed[reader]
        return [] if is_known else [f"{reader} cannot read ours: {outcome.failed[reader]}"]
    by_java = reader == "java" or (case.expected() is None and outcome.java is not None)
    rows = _difference(case, outcome.ours[reader], wanted, by_java=by_java)
    if reason:
        return [] if rows or " may " in reason else [f"{reader} reads this by now, in spite of: {reason}"]
    return [f"{reader} reads another row of ours: {row}" for row in rows]


def _difference(case: Case, found: Texts, wanted: Texts, *, by_java: bool) -> list[str]:
    left, right = (_bag(case, rows, by_java=by_java) for rows in (found, wanted))
    return sorted(((left - right) + (right - left)).elements())


def _bag(case: Case, rows: Iterable[Mapping[str, Any]], *, by_java: bool) -> Counter[str]:
    if by_java and any("st." in term for term in case.base.terms):
        # Java makes a null struct one of nulls when a field of it is a partition, or was.
        rows = [{**row, "st": row["st"] or {"a": None, "b": None}} for row in rows]
    return Counter(json.dumps([row[name] for name in case.base.final], ensure_ascii=False) for row in rows)


# -- who departs -------------------------------------------------------------------------------------------------------


def _java_departs(case: Case, text: str) -> str | None:
    """Return why Java gets a row wrong; None if it should not."""
    predicate = case.statement.predicate
    if predicate is None or case.statement.operation == "compact":
        return None
    number = int(json.loads(text)[0])
    (row,) = [row for row in (*case.base.rows, *case.statement.rows) if row["id"] == number]
    values = [row[name] for name in predicate.columns]
    floats = [value for value in values if isinstance(value, float)]
    is_truncated = any("truncate" in term for term in case.base.terms)
    if "extra" in predicate.columns and case.base.evolution == "default":
        return "default"
    if any(math.isnan(value) for value in floats):
        return "not a number"
    if any(value == 0 for value in floats):
        return "signed zero"
    if "st" in predicate.columns and row["st"] is None:
        return "field of a null struct"
    if is_truncated and any(str(least) in predicate.sql or least in values for least in _LEAST):
        return "truncation of the least number"
    uuids = [row[name] for row in case.base.rows for name in predicate.columns if isinstance(row[name], uuid.UUID)]
    if any(_are_signed_apart(value, predicate.sql) for value in uuids):
        return "uuids in the order of signed numbers"
    return "null partition" if predicate.of(row) is None else None


def _are_signed_apart(value: uuid.UUID, sql: str) -> bool:
    """Whether a uuid is compared with one whose first bit differs: java.util.UUID takes that for a sign.

    The order of bounds is that of the bytes; Java 1.10.2 drops and keeps whole files by its own, so that a row fares as
    the others of its file (apache/iceberg#14216).
    """
    others = [uuid.UUID(text) for text in re.findall(r"'([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})'", sql)]
    return re.search(r"[<>=]|between|\bin\b", sql) is not None and any(
        value.int >> 127 != other.int >> 127 for other in others
    )


def reader_departs(reader: str, case: Case, outcome: Outcome) -> str | None:
    """Return why a reader does not read ours as it is, one of READERS_CANNOT; None if it does."""
    assert outcome.table is not None
    live = live_entries(outcome.table)
    equality = [entry for entry in live if entry.data_file.content is FileContent.EQUALITY_DELETES]
    kinds = {kind.type for kind in case.base.final.values()}
    if reader == "pyiceberg" and any(
        case.base.final[name].type.endswith("_ns") and case.base.terms & {name, f"void({name})"} for name in ("p", "q")
    ):
        return "PyIceberg 0.12 may not read manifests with nanoseconds in the partition"
    if reader == "pyiceberg" and equality:
        return "PyIceberg 0.12 may not read a table with equality deletes"
    if reader == "pyiceberg" and any(_is_of_nan(entry) for entry in live):
        return "PyIceberg 0.12 may not apply deletes in a partition that is not a number"
    if reader == "duckdb" and "timestamptz_ns" in kinds:
        return "DuckDB 1.5 does not have the type timestamptz_ns"
    if reader == "duckdb" and any(_is_asked_of_null(entry, live) for entry in equality):
        return "DuckDB 1.5 may break down on equality deletes of a null partition"
    if (
        reader == "duckdb"
        and case.base.version == 1
        and any("drop" in s.sql or "replace" in s.sql for s in case.base.steps)
    ):
        return "DuckDB 1.5 may break down on a partition field that has become void, of another type then"
    if reader == "duckdb" and _share_a_file(live):
        return "DuckDB 1.5 may take one deletion vector of a file for another of it"
    return None


def _share_a_file(live: Iterable[ManifestEntry]) -> bool:
    paths = [entry.data_file.file_path for entry in live if entry.data_file.is_deletion_vector]
    return len(set(paths)) < len(paths)


def _is_of_nan(entry: ManifestEntry) -> bool:
    file = entry.data_file
    values = [value for value in file.partition if isinstance(value, float)]
    return file.content is not FileContent.DATA and any(map(math.isnan, values))


def _is_asked_of_null(delete: ManifestEntry, live: Iterable[ManifestEntry]) -> bool:
    """Whether a delete has a null in its partition, and there is a data file that is older."""
    older = (entry.data_file for entry in live if (entry.sequence_number or 0) < (delete.sequence_number or 0))
    return None in delete.data_file.partition and any(
        file.content is FileContent.DATA and file.spec_id == delete.data_file.spec_id for file in older
    )


# -- version 3 ---------------------------------------------------------------------------------------------------------


def _wrong_lineage(case: Case, outcome: Outcome) -> list[str]:
    """Return what is wrong with the row ids: rows that stay keep theirs, new ones have new ones."""
    wrong = []
    for reader in ("us", "java"):
        rows = outcome.ours.get(reader, [])
        if not rows or LINEAGE[0] not in rows[0]:
            continue
        if len({row["_row_id"] for row in rows}) < len(rows):
            wrong.append(f"row ids are doubled: {[(row['id'], row['_row_id']) for row in rows]}")
        wrong += [f"{text}, as {reader} reads it" for row in rows if (text := _wrong_row(row, outcome)) is not None]
    return wrong


def _wrong_row(row: Mapping[str, Any], outcome: Outcome) -> str | None:
    row_id, updated = (row[name] for name in LINEAGE)
    for old in outcome.before:
        if old["id"] == row["id"]:
            kept = tuple(old[name] for name in LINEAGE)
            return None if (row_id, updated) == kept else f"kept row {row['id']} is {row_id, updated}, was {kept}"
    assert outcome.next_row_id is not None
    if row_id is None or row_id < outcome.next_row_id or updated != outcome.sequence_number + 1:
        return f"new row {row['id']} is {row_id, updated}"
    return None
