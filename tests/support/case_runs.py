"""Running generated cases: Java makes the table, Java and we each do the statement on a copy of it, all read both.

A copy shares the files of the table and has a metadata file of its own in a folder of its own, so that what the table
is before the statement is the same to the last byte, row ids included, and neither sees what the other does. Not so for
expiry, which deletes files: there the table is made twice.

Not here: what the cases are (`cases`), what is right (the test).
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.actions.row_delta import RowDelta
from airflow_iceberg.expressions.binding import parse_filter
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.support.append_steps import commit_append, plan_append
from tests.support.case_types import Kind, arrow_rows, literal, text_of, text_of_generic, text_of_plain, texts
from tests.support.cases import Base, Case, Row, Statement, Step
from tests.support.changes import equality_deletes, live_entries, parquet_bytes
from tests.support.iceberg_java import IcebergJava

JAVA = "tests.support.java_cases"
LINEAGE = ("_row_id", "_last_updated_sequence_number")
Texts = list[dict[str, Any]]
# Java says no where SQL has an answer.
JAVA_REFUSES = {
    "whole files": "Cannot delete file where some, but not all, rows match",
    "filter": "Cannot convert filter to Iceberg",
    "not a number in a list": "Cannot create expression literal from NaN",
    "where of a compaction": "Cannot parse predicates in where option",
    "where of a compaction, too": "Cannot convert Spark filter",
}


@dataclass(kw_only=True)
class Outcome:
    """What came of a case.

    Attributes:
        before: rows before, as we read them, in version 3 with their lineage.
        java: rows of Java's copy, as Java reads them; None where Java cannot.
        refused: why Java did not do the statement as it is.
        ours: rows of our copy, by who reads them.
        failed: why a reader could not, by its name.
        survivors: of an expiry: rows of each snapshot that is left, of Java's table and of ours.
        next_row_id, sequence_number: of the table before.
        table: our copy, as it is then.
    """

    expected: Texts
    before: Texts
    java: Texts | None = None
    refused: str | None = None
    ours: dict[str, Texts] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    survivors: list[tuple[list[str], list[str]]] = field(default_factory=list)
    next_row_id: int | None = None
    sequence_number: int = 0
    table: Table | None = None


def _start(table: Table, base: Base, expected: Sequence[Row]) -> Outcome:
    return Outcome(
        expected=[{name: text_of(kind, row[name]) for name, kind in base.final.items()} for row in expected],
        before=read_ours(table, base),
        next_row_id=table.metadata.next_row_id,
        sequence_number=table.metadata.last_sequence_number,
    )


class Runner:
    """Runs cases with one Java, in one warehouse.

    Args:
        java: whose catalog `ref` is at the warehouse.
        readers: others that read a table by its metadata file into Arrow, by their names.
    """

    def __init__(
        self, java: IcebergJava, warehouse: str, readers: Mapping[str, Callable[[str], Any]], namespace: str
    ) -> None:
        self.java = java
        self.readers = readers
        self.namespace = namespace
        self.catalog = load_catalog("ref", type="hadoop", warehouse=warehouse)
        self.catalog.create_namespace(namespace, if_not_exists=True)
        self._made: tuple[Base, Table] | None = None
        self._count = 0

    def run(self, case: Case) -> Outcome:
        if case.statement.operation == "expire":
            return self._expire(case)
        base, made = case.base, self._base(case.base)
        outcome = _start(made, base, case.expected() or ())
        mine = self._copy(made, case, "ours")
        theirs = self._copy(made, case, "java")
        with self._meanwhile(lambda: self._java_does(theirs, case) if base.is_for_spark else None) as java:
            do_ours(mine, case)
            outcome.refused = java.result()
        self._read_by_all(theirs.refresh(), mine.refresh(), base, outcome)
        if outcome.refused and case.statement.operation in ("delete", "overwrite partitions"):
            outcome.java = None  # it has done nothing
        return outcome

    @staticmethod
    @contextlib.contextmanager
    def _meanwhile(do: Callable[[], Any]) -> Iterator[Future[Any]]:
        """Let Java work while we do: that is half of the time."""
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(do)

    # -- the table before ----------------------------------------------------------------------------------------------

    def _base(self, base: Base) -> Table:
        if self._made is None or self._made[0] is not base:
            self._made = (base, self.make(base, self._name(f"b{base.number}")))
        return self._made[1]

    def _name(self, what: str) -> str:
        self._count += 1
        return f"{self.namespace}.{what}_{self._count}"

    def make(self, base: Base, name: str) -> Table:
        """Make the table, by Java as far as it goes."""
        schema = schema_from_shorthand({column: kind.type for column, kind in base.columns.items()})
        spec = spec_from_shorthand(base.partition_by, schema)
        self.java.call(
            f"{JAVA}:create", table=name, schema=schema.to_dict(), spec=spec.to_dict(), properties=dict(base.properties)
        )
        table = Table.load(self.catalog, name)
        columns = dict(base.columns)
        waiting: list[str] = []
        for step in base.steps:
            if step.do in ("insert", "sql") and base.is_for_spark:
                waiting.append(self._statement(table, step, columns))
            else:
                self._java(waiting)
                waiting = []
                self._ours(table.refresh(), step, base)
            columns = _columns_after(columns, step, base)
        self._java(waiting)
        return table.refresh()

    def _statement(self, table: Table, step: Step, columns: Mapping[str, Kind]) -> str:
        name = f"ref.{table.name}"
        if step.do == "sql":
            return step.sql.format(t=name)
        return f"insert into {name} {query(columns, step.rows)}"

    def _java(self, statements: Sequence[str], **conf: str) -> None:
        if statements:
            self.java.call(f"{JAVA}:run", statements=list(statements), conf=conf)

    def _ours(self, table: Table, step: Step, base: Base) -> None:
        match step.do:
            case "insert":
                table.append(arrow_rows({name: base.final[name] for name in step.rows[0]}, step.rows))
            case "sql":
                table.delete(step.sql.partition(" where ")[2])
            case "equality":
                delete_by_equality(table, step.ids)
            case "default":
                table.alter([{"add_column": {"name": "extra", "type": "int", "default": 7}}])

    def _copy(self, made: Table, case: Any, who: str) -> Table:
        """Return a table that begins where another stands, in a folder of its own."""
        name = self._name(f"c{case.number}_{who}")
        last = name.rpartition(".")[2]
        location = made.location.rpartition("/")[0] + f"/{last}"
        document = json.loads(made.io.read(made.metadata_location))
        document["location"] = location
        for command in ("delete", "update", "merge"):
            document["properties"][f"write.{command}.mode"] = case.statement.mode
        made.io.create(f"{location}/metadata/v1.metadata.json", json.dumps(document).encode())
        return Table.load(self.catalog, name)

    # -- Java's half ---------------------------------------------------------------------------------------------------

    def _java_does(self, table: Table, case: Case) -> str | None:
        name, statement = f"ref.{table.name}", case.statement
        try:
            if statement.operation == "overwrite where":
                rows = query(case.base.final, statement.rows)
                self.java.call(f"{JAVA}:overwrite", table=name, rows=rows, condition=statement.where)
            else:
                dynamic = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
                conf = dynamic if statement.operation == "overwrite partitions" else {}
                self._java([java_statement(name, case)], **conf)
            return None
        except RuntimeError as error:
            reason = _refusal(str(error))
            if reason is None:
                raise
            self._java_does_otherwise(name, case)
            return reason

    def _java_does_otherwise(self, name: str, case: Case) -> None:
        """Delete and append, where Java does not overwrite what files hold beside other rows."""
        if case.statement.operation == "overwrite where":
            more = [f"insert into {name} {query(case.base.final, case.statement.rows)}"] if case.statement.rows else []
            self._java([f"delete from {name} where {case.statement.where}", *more])

    def _read_by_java(self, theirs: Table, mine: Table, base: Base, outcome: Outcome) -> None:
        columns = [*base.final, *(LINEAGE if base.version >= 3 else ())]
        locations = [theirs.metadata_location, mine.metadata_location]
        found = self.java.call(f"{JAVA}:rows", locations=locations, columns=columns)
        outcome.java, outcome.ours["java"] = (
            [
                {name: text_of_plain(base.final.get(name), value) for name, value in zip(columns, row, strict=True)}
                for row in rows
            ]
            for rows in found
        )

    def _read_by_generic_java(self, mine: Table, base: Base, outcome: Outcome) -> None:
        try:
            (found,) = self.java.call(f"{JAVA}:generic_rows", locations=[mine.metadata_location])
        except RuntimeError as error:
            outcome.failed["java"] = str(error)
            return
        # What follows the columns is what its reader needed to apply deletes.
        outcome.ours["java"] = [
            {name: text_of_generic(base.final[name], value) for name, value in zip(base.final, row, strict=False)}
            for row in found
        ]

    # -- readers -------------------------------------------------------------------------------------------------------

    def _read_by_all(self, theirs: Table, mine: Table, base: Base, outcome: Outcome) -> None:
        outcome.table = mine

        def by_java() -> None:
            if base.is_for_spark:
                self._read_by_java(theirs, mine, base, outcome)
            else:
                self._read_by_generic_java(mine, base, outcome)

        with self._meanwhile(by_java) as java:
            self._read(mine, base, outcome)
            java.result()

    def _read(self, mine: Table, base: Base, outcome: Outcome) -> None:
        outcome.ours["us"] = read_ours(mine, base)
        for name, reader in self.readers.items():
            try:
                outcome.ours[name] = texts(base.final, reader(mine.metadata_location))
            except Exception as error:
                outcome.failed[name] = f"{type(error).__name__}: {error}"

    # -- expiry --------------------------------------------------------------------------------------------------------

    def _expire(self, case: Case) -> Outcome:
        base = case.base
        mine = self.make(base, self._name(f"c{case.number}_ours"))
        outcome = _start(mine, base, base.rows)
        do_ours(mine, case)
        theirs = mine
        if base.is_for_spark:
            theirs = self.make(base, self._name(f"c{case.number}_java"))
            self._java([java_statement(f"ref.{theirs.name}", case)])
            survivors = zip(theirs.refresh().snapshots(), mine.refresh().snapshots(), strict=True)
            for left, right in survivors:
                rows = [read_ours(table, base, s.snapshot_id) for table, s in ((theirs, left), (mine, right))]
                outcome.survivors.append((in_order(rows[0]), in_order(rows[1])))
        self._read_by_all(theirs, mine.refresh(), base, outcome)
        return outcome


# -- our half ----------------------------------------------------------------------------------------------------------


def do_ours(table: Table, case: Case) -> None:
    """Do the statement, through Table or through a job in this process."""
    statement = case.statement

    def run(plan: JobPlan) -> JobResult:
        return run_local(plan, table.io, threads=1)

    match statement.operation:
        case "append" | "overwrite" | "overwrite partitions" | "overwrite where":
            write_ours(table, case, run)
        case "delete":
            request = DeleteRequest(predicate=str(statement.where), mode=statement.mode)
            delete(Work(table, run=run if statement.through == "job" else None), request)
        case "compact":
            options = {"strategy": statement.strategy, "sort_by": statement.sort_by, "options": statement.options}
            compact(Work(table, run=run), CompactRequest(where=statement.where, **options))
        case "rewrite manifests":
            rewrite_manifests(Work(table), RewriteManifestsRequest())
        case "expire":
            expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=_LATER_MS, retain_last=2))


def write_ours(table: Table, case: Case, run: Callable[[JobPlan], JobResult]) -> None:
    statement = case.statement
    rows = arrow_rows(case.base.final, statement.rows)
    if statement.through == "table":
        match statement.operation:
            case "append":
                table.append(rows)
            case "overwrite partitions":
                table.dynamic_partition_overwrite(rows)
            case _:
                table.overwrite(rows, statement.where)
        return
    path = f"{table.location}/rows.parquet"
    table.io.create(path, parquet_bytes(rows))
    source = Source.from_files(path)
    if statement.operation == "append":
        plan = plan_append(table, source)
        commit_append(table, plan, run(plan))
        return
    replaces = {"overwrite": "table", "overwrite partitions": "partitions", "overwrite where": "matching"}
    request = OverwriteRequest(
        rows=source,
        replace=replaces[statement.operation],
        overwrite_filter=statement.where,
        deletes_when_empty=not statement.rows,
    )
    overwrite(Work(table, run=run), request)


_LATER_MS = 4_000_000_000_000


def delete_by_equality(table: Table, ids: Sequence[int]) -> None:
    """Delete rows by their ids in a file of equality deletes for each partition that there is."""
    places = {(e.data_file.spec_id, e.data_file.partition) for e in live_entries(table) if e.data_file.content == 0}
    head = table.current_snapshot()
    action = RowDelta(
        table.io,
        table.commit_settings(),
        added_deletes=[equality_deletes(table, ids, *place) for place in sorted(places, key=repr)],
        conflict_filter=parse_filter("false", table.schema()),
        written_schema=table.schema(),
        starting_snapshot_id=None if head is None else head.snapshot_id,
    )
    table.commit(action)


def _refusal(text: str) -> str | None:
    """Return why Java does not do a statement; None if the statement is not SQL, which is a fault of the case."""
    for reason, known in JAVA_REFUSES.items():
        if known in text:
            return reason
    return None if "ParseException" in text or "AnalysisException" in text else "an error of Java's own"


def in_order(rows: Texts) -> list[str]:
    return sorted(json.dumps(row, ensure_ascii=False, sort_keys=True) for row in rows)


def read_ours(table: Table, base: Base, snapshot_id: int | None = None) -> Texts:
    fields = ("*", *LINEAGE) if base.version >= 3 and snapshot_id is None else ("*",)
    return texts(base.final, table.scan(selected_fields=fields, snapshot_id=snapshot_id).to_arrow())


# -- Java's statements -------------------------------------------------------------------------------------------------


def query(columns: Mapping[str, Kind], rows: Sequence[Row]) -> str:
    if not rows:
        nothing = ", ".join(f"cast(null as {kind.sql}) as `{name}`" for name, kind in columns.items())
        return f"select {nothing} where false"
    lines = ["(" + ", ".join(literal(columns[name], row[name]) for name in columns) + ")" for row in rows]
    return f"select * from values {', '.join(lines)} as v({', '.join(columns)})"


def java_statement(name: str, case: Case) -> str:
    statement = case.statement
    table = name.removeprefix("ref.")
    match statement.operation:
        case "append":
            return f"insert into {name} {query(case.base.final, statement.rows)}"
        case "overwrite" | "overwrite partitions":
            return f"insert overwrite {name} {query(case.base.final, statement.rows)}"
        case "delete":
            return f"delete from {name} where {statement.where}"
        case "rewrite manifests":
            return f"call ref.system.rewrite_manifests(table => '{table}', use_caching => false)"
        case "expire":
            when = "timestamp '2096-10-02 00:00:00'"
            return f"call ref.system.expire_snapshots(table => '{table}', older_than => {when}, retain_last => 2)"
    return _java_compaction(table, statement)


def _java_compaction(table: str, statement: Statement) -> str:
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in statement.options.items())
    arguments = [f"table => '{table}'", f"options => map({pairs})"]
    if statement.strategy != "binpack":
        orders = {"sort": ", ".join, "zorder": lambda names: f"zorder({', '.join(names)})"}
        arguments += ["strategy => 'sort'", f"sort_order => '{orders[statement.strategy](statement.sort_by)}'"]
    if statement.where is not None:
        text = statement.where.replace("\\", "\\\\").replace("'", "\\'")
        arguments.append(f"where => '{text}'")
    return f"call ref.system.rewrite_data_files({', '.join(arguments)})"


# -- one form ----------------------------------------------------------------------------------------------------------


def _columns_after(columns: Mapping[str, Kind], step: Step, base: Base) -> dict[str, Kind]:
    """Return the columns that the table has after a step, as the rows of later steps have them."""
    if step.do == "default" or " add column extra" in step.sql:
        return {**columns, "extra": base.final["extra"]}
    if " rename column note" in step.sql:
        return {("remark" if name == "note" else name): kind for name, kind in columns.items()}
    if " alter column n " in step.sql:
        return {**columns, "n": base.final["n"]}
    return dict(columns)
