"""Running generated merges and updates: Java and we each do the statement on a copy of one table, all read both.

Not here: what the cases are (`merge_cases`), how the table is made and copied (`case_runs`).
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.commit.write_result import WriteResult
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.inputs.tables import Input
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.case_judging import READERS_CANNOT, reader_departs
from tests.support.case_runs import JAVA, LINEAGE, Outcome, Runner, Texts, query, read_ours
from tests.support.case_types import arrow_rows, text_of_plain
from tests.support.merge_cases import SPARK, MergeCase

RunJob = Callable[[Table], Callable[[JobPlan], JobResult]]


@dataclass(kw_only=True)
class MergeOutcome:
    """What came of a case.

    Attributes:
        before: rows before; `java`, `ours` are those after, by who reads them, in version 3 with their lineage.
        java_says, we_say: why either did not do the statement.
        again: rows of both copies after Java has done one more statement.
    """

    before: Texts
    next_row_id: int | None
    sequence_number: int
    java: Texts | None = None
    java_says: str | None = None
    we_say: str | None = None
    ours: dict[str, Texts] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    again: list[Texts] = field(default_factory=list)
    table: Table | None = None


class MergeRunner(Runner):
    """Runs merges."""

    _has_picked = False

    def run_merge(
        self, case: MergeCase, dialect: str, run: RunJob | None = None, *, again: bool = False
    ) -> MergeOutcome:
        """Run a case.

        Args:
            run: runs the job of a table's plan; without one DuckDB does, in this process.
            again: whether Java merges once more, into both copies.
        """
        if case.statement.operation == "delete":
            self._make_picked()
        base, made = case.base, self._base(case.base)
        mine, theirs = self._copy(made, case, "ours"), self._copy(made, case, "java")
        outcome = MergeOutcome(
            before=read_ours(made, base),
            next_row_id=made.metadata.next_row_id,
            sequence_number=made.metadata.last_sequence_number,
            table=mine,
        )
        with self._meanwhile(lambda: self._java_merges(theirs, case)) as java:
            try:
                do_ours(mine, case, dialect, run)
            except IcebergError as error:
                outcome.we_say = f"{type(error).__name__}: {error}"
            outcome.java_says = java.result()
        theirs, outcome.table = theirs.refresh(), mine.refresh()
        if outcome.java_says or outcome.we_say:
            return outcome
        with self._meanwhile(lambda: self._read_both(case, theirs, outcome)) as java:
            others = Outcome(expected=[], before=[])
            self._read(outcome.table, base, others)
            java.result()
        outcome.ours |= others.ours
        outcome.failed = others.failed
        if again:
            outcome.again = self._once_more(case, theirs, outcome.table)
        return outcome

    def _java_merges(self, table: Table, case: MergeCase) -> str | None:
        try:
            self._java([java_merge(f"ref.{table.name}", case)])
        except RuntimeError as error:
            return str(error)
        return None

    def _make_picked(self) -> None:
        """Make the table that predicates of deletes read."""
        if not self._has_picked:
            rows = "(1L, 5), (3L, 2), (4L, null), (7L, 1), (null, 3), (3L, 2)"
            name = f"ref.{self.namespace}.picked"
            self._java([f"create table {name} (id bigint, n int) using iceberg", f"insert into {name} values {rows}"])
            self._has_picked = True

    def _read_both(self, case: MergeCase, theirs: Table, outcome: MergeOutcome) -> None:
        assert outcome.table is not None
        outcome.java, outcome.ours["java"] = self._rows_of(case, theirs, outcome.table)

    def _rows_of(self, case: MergeCase, *tables: Table) -> list[Texts]:
        base = case.base
        columns = [*base.final, *(LINEAGE if base.version >= 3 else ())]
        locations = [table.metadata_location for table in tables]
        return [
            [
                {name: text_of_plain(base.final.get(name), value) for name, value in zip(columns, row, strict=True)}
                for row in rows
            ]
            for rows in self.java.call(f"{JAVA}:rows", locations=locations, columns=columns)
        ]

    def _once_more(self, case: MergeCase, *tables: Table) -> list[Texts]:
        """Let Java merge into both copies, and return their rows."""
        text = (
            "merge into ref.{t} as target using (select explode(array(3L, 4L, 5L, 6L, 5000L)) as id) as source "
            "on target.id = source.id when matched and target.id % 2 = 0 then delete "
            "when matched then update set n = 77 when not matched then insert (id, n) values (source.id, 78)"
        )
        for table in tables:
            self._java([text.format(t=table.name)])
        # Loaded anew: what readers cannot is asked of the table as it was.
        return self._rows_of(case, *(Table.load(self.catalog, table.name) for table in tables))


# -- our half ----------------------------------------------------------------------------------------------------------


def do_ours(table: Table, case: MergeCase, dialect: str, run: RunJob | None) -> WriteResult:
    statement = case.statement
    work = Work(table, run=None if run is None else run(table))
    if statement.operation == "delete":
        assert statement.where is not None
        has_subquery = "picked" in statement.where
        namespace = table.name.rpartition(".")[0]
        inputs = {"picked": Input(open=lambda: Table.load(table.catalog, f"{namespace}.picked"))}
        # Without a subquery a column has no name before it, as users write it.
        where = statement.where if has_subquery else statement.where.replace("target.", "")
        request = DeleteRequest(predicate=where, dialect=dialect, inputs=inputs if has_subquery else {})
        return delete(work, request)
    if statement.operation == "update":
        return update(work, UpdateRequest(set=statement.set, where=statement.where, dialect=dialect))
    rows: Any = arrow_rows(statement.columns, statement.rows)
    # Every other case, Spark gets the rows from a file, as DuckDB does.
    if dialect == SPARK and case.number % 2:
        rows = Source.from_sql(query(statement.columns, statement.rows))
    given: dict[str, Any] = {"rows": rows, "on": statement.on, "dialect": dialect}
    if statement.operation == "upsert":
        return merge(work, MergeRequest(**given, upsert=True))
    return merge(work, MergeRequest(**given, clauses=statement.clauses))


def java_merge(name: str, case: MergeCase) -> str:
    statement = case.statement
    if statement.operation == "delete":
        namespace = name.rpartition(".")[0]
        where = str(statement.where).replace("from picked", f"from {namespace}.picked as picked")
        return f"delete from {name} as target where {where}"
    if statement.operation == "update":
        values = ", ".join(f"{column} = {value}" for column, value in statement.set.items())
        return f"update {name} as target set {values} where {statement.where}"
    source = query(statement.columns, statement.rows)
    clauses = "\n".join(statement.clauses)
    return f"merge into {name} as target using ({source}) as source on {statement.condition}\n{clauses}"


# -- what is right -----------------------------------------------------------------------------------------------------


def judge(case: MergeCase, outcome: MergeOutcome) -> tuple[list[str], set[str]]:
    """Return what is wrong, and the reasons for which ours is another answer than Java's."""
    if outcome.java_says or outcome.we_say:
        return _judge_refusal(case, outcome)
    assert outcome.java is not None
    wrong, reasons = [], set()
    rows = _difference(case, outcome.ours["java"], outcome.java)
    reason = _java_departs(case, outcome, rows) if rows else None
    if reason is not None:
        reasons.add(reason)
    elif rows:
        wrong += [f"ours, and not Java's: {row}" if ours else f"Java's, and not ours: {row}" for ours, row in rows]
    for reader in (*outcome.ours, *outcome.failed):
        if reader != "java":
            wrong += _judge_reader(case, outcome, reader)
    if outcome.again and reason is None:
        first, second = outcome.again
        wrong += [f"after one more merge: {row}" for row in _difference(case, second, first)]
    if reason is None:
        wrong += _wrong_lineage(case, outcome)
    return wrong, reasons


def _judge_refusal(case: MergeCase, outcome: MergeOutcome) -> tuple[list[str], set[str]]:
    if outcome.java_says and outcome.we_say:
        return [], {"refused"}
    if outcome.java_says:
        return [f"Java refuses what we do: {outcome.java_says[:600]}"], set()
    if case.statement.operation == "upsert" and re.search("null key|same key", outcome.we_say or ""):
        return [], {"an upsert needs a key in each row"}
    return [f"we refuse what Java does: {outcome.we_say}"], set()


def _judge_reader(case: MergeCase, outcome: MergeOutcome, reader: str) -> list[str]:
    reason = reader_departs(reader, case, outcome)  # type: ignore[arg-type]
    if reader in outcome.failed:
        is_known = reason is not None and READERS_CANNOT[reason] in outcome.failed[reader]
        return [] if is_known else [f"{reader} cannot read ours: {outcome.failed[reader]}"]
    if reason is not None:
        return []
    rows = _difference(case, outcome.ours[reader], outcome.ours["java"])
    return [f"{reader} reads another row of ours: {row}" for row in rows]


def _difference(case: MergeCase, ours: Texts, theirs: Texts) -> list[tuple[bool, str]]:
    """Return the rows that only one has, and whether they are ours."""
    left, right = _bag(case, ours), _bag(case, theirs)
    return sorted([(True, row) for row in (left - right).elements()] + [(False, r) for r in (right - left).elements()])


def _bag(case: MergeCase, rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    if any("st." in term for term in case.base.terms):
        # Java makes a null struct one of nulls when a field of it is a partition, or was.
        rows = [{**row, "st": row["st"] or {"a": None, "b": None}} for row in rows]
    return Counter(json.dumps([row[name] for name in case.base.final], ensure_ascii=False) for row in rows)


def _java_departs(case: MergeCase, outcome: MergeOutcome, rows: list[tuple[bool, str]]) -> str | None:
    """Return why Java 1.10.2 gets rows wrong; None if it should not."""
    statement, base = case.statement, case.base
    if any("st." in term for term in base.terms) and re.search(r"\bst\b", statement.text):
        return "a null struct is one of nulls when a field of it is a partition"
    if base.evolution == "default" and any("insert (" in text and "extra" not in text for text in statement.clauses):
        # The default of a write is of version 3, and Spark 3.5 does not have it.
        at = list(base.final).index("extra")
        without = [(ours, json.loads(row)) for ours, row in rows]
        mine, theirs = (Counter(str(r[:at] + r[at + 1 :]) for ours, r in without if ours is w) for w in (True, False))
        return "default" if mine == theirs else None
    places = {json.loads(row)[list(base.final).index("p")] for _, row in rows}
    if statement.where and "target.p" in statement.where and places <= {"nan", "0.0", "-0.0"}:
        return "not a number, or signed zero, in a filter"
    kinds = {text.partition(" then ")[0].partition(" and ")[0] for text in statement.clauses}
    held = _bag(case, outcome.ours["java"])
    if kinds and "when matched" not in kinds and all(not ours and row in held for ours, row in rows):
        return "a row that several rows of the source match is doubled"
    return None


def _wrong_lineage(case: MergeCase, outcome: MergeOutcome) -> list[str]:
    """Return what is wrong with the row ids: rows keep theirs, with the number of their change."""
    if case.base.version < 3 or not outcome.ours["us"]:
        return []
    wrong = []
    mine, theirs = (_lineage(case, outcome, rows) for rows in (outcome.ours["us"], outcome.java or []))
    if mine == _lineage(case, outcome, outcome.before):
        # Java commits rows with the values that they have, as changed ones; ours commits nothing.
        theirs = mine if _bag(case, outcome.before) == _bag(case, outcome.java or []) else theirs
    for what, rows in (("ours", mine - theirs), ("Java's", theirs - mine)):
        wrong += [f"lineage {what}: {row}" for row in rows.elements()]
    ids = [row["_row_id"] for row in outcome.ours["us"]]
    if len(set(ids)) < len(ids) or None in ids:
        wrong.append(f"row ids are doubled or missing: {sorted(ids, key=str)}")
    if _lineage(case, outcome, outcome.ours["java"]) != mine:
        wrong.append("Java reads other row ids of ours")
    return wrong


def _lineage(case: MergeCase, outcome: MergeOutcome, rows: Texts) -> Counter[str]:
    """Return rows with their ids; which id a new row gets is chance."""
    assert outcome.next_row_id is not None
    found = []
    for row in rows:
        row_id, number = (row[name] for name in LINEAGE)
        is_new = row_id is None or row_id >= outcome.next_row_id
        values = dict(row)
        if any("st." in term for term in case.base.terms):
            values["st"] = row["st"] or {"a": None, "b": None}
        shown = [values[name] for name in case.base.final]
        found.append(json.dumps([*shown, "new" if is_new else row_id, number], ensure_ascii=False))
    return Counter(found)
