"""What must hold when the n-th answer of a service is lost, or the writer is killed at it: a drill for every catalog.

    drill = Drill(properties, proxy)         # the properties lead through the proxy
    drill.run("append", "lose", numbers)

For each number a change is made whose answer of that number gets lost; then the table must read, hold the change once
or not at all, and once when the task is tried again. No file may be gone. Here: the changes and the checks. Not here:
the proxy (`tests.services.tcp_proxy`) and the services (the tests).
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.commit.operation_key import OperationKey, find_landed
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.errors import CommitUnknownError, IcebergError, NotFoundError
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.services.tcp_proxy import TcpProxy
from tests.support.changes import Rows, arrow, rows_in

CHANGES = ("append", "overwrite", "delete", "expire", "alter")
# Waits that are made for a network are too long for a hundred of them.
HASTE = {
    "commit.status-check.min-wait-ms": "10",
    "commit.status-check.max-wait-ms": "50",
    "commit.retry.min-wait-ms": "10",
    "commit.retry.max-wait-ms": "50",
}
# What a writer needs, imported once by what the writers fork from.
_NEEDED = (
    *(f"airflow_iceberg.catalogs.{name}.catalog" for name in ("hadoop", "sql", "rest", "hive", "nessie", "glue")),
    *(f"airflow_iceberg.storage.stores.{name}" for name in ("s3", "gcs", "adls", "hdfs", "webhdfs")),
    *("airflow_iceberg.table", "airflow_iceberg.operations.expire_snapshots", "airflow_iceberg.jobs.run_local"),
    *("boto3", "sqlalchemy.dialects.postgresql.psycopg2", "pyarrow.dataset", "pyarrow.parquet", "fastavro"),
)


def make(catalog: Catalog, name: str) -> Table:
    """Make the table of a drill, with rows in two partitions."""
    columns = {"part": "string", "id": "long"}
    table = Table.create(catalog, name, schema=columns, partition_by=["part"], properties=HASTE)
    table.append(arrow([("a", 1), ("b", 2)]))
    return table


def change(table: Table, what: str, number: int, key: OperationKey | None) -> object:
    """Make the change that a task makes; the number makes its rows and names its own."""
    if what == "append":
        return table.append(arrow([("a", 1000 + number)]), operation_key=key)
    if what == "overwrite":
        return table.overwrite(arrow([("a", 2000 + number)]), "part = 'a'", operation_key=key)
    if what == "delete":
        return table.delete("part = 'a' and id >= 3000", operation_key=key)
    if what == "expire":
        return expire_snapshots(
            Work(table, operation_key=key), ExpireSnapshotsRequest(older_than_ms=now_ms() + 60_000, retain_last=1)
        )
    return table.alter([{"add_column": {"name": f"c{number}", "type": "long"}}])


def prepare(table: Table, what: str, number: int) -> None:
    if what in ("delete", "expire"):
        table.append(arrow([("a", 3000 + number), ("a", number)]))


def meaning(what: str, number: int, rows: Rows) -> Rows:
    if what == "append":
        return rows + Counter({("a", 1000 + number): 1})
    if what == "overwrite":
        kept = {row: count for row, count in rows.items() if row[0] != "a"}
        return Counter({**kept, ("a", 2000 + number): 1})
    if what == "delete":
        return Counter({row: count for row, count in rows.items() if row[0] != "a" or row[1] < 3000})
    return rows


def write(properties: Mapping[str, str], name: str, what: str, number: int, key: OperationKey) -> None:
    """Be the task, in this process or in one of its own."""
    change(Table.load(load_catalog("prod", **properties), name), what, number, key)


class Drill:
    """The drill on one catalog.

    Args:
        properties: of the catalog, through the proxy.
    """

    def __init__(self, properties: Mapping[str, str], proxy: TcpProxy, writers: Writers) -> None:
        self.properties = dict(properties)
        self.proxy = proxy
        self.writers = writers
        self.catalog = load_catalog("prod", **properties)
        self.catalog.create_namespace("db", if_not_exists=True)
        self.outcomes: Counter[str] = Counter()

    def run(self, what: str, fault: str, *, stride: int = 1) -> int:
        """Let every n-th answer of a change get lost ("lose") or be the writer's last ("kill").

        Returns:
            How many faults hit.
        """
        name = f"db.t{uuid.uuid4().hex[:12]}"
        make(self.catalog, name)
        # Another stride at each change and fault begins elsewhere, so that together they meet most of the steps.
        number = 1 + (CHANGES.index(what) + (fault == "kill")) % stride
        hits = 0
        while self._once(name, what, fault, number):
            number, hits = number + stride, hits + 1
            assert number < 1000
        check_whole(Table.load(self.catalog, name))
        return hits

    def _once(self, name: str, what: str, fault: str, number: int) -> bool:
        """Let one answer get lost; False when the change has fewer."""
        table = Table.load(self.catalog, name)
        prepare(table, what, number)
        before = rows_in(table)
        after = meaning(what, number, before)
        key = OperationKey(dag_id="drill", run_id=f"{what}-{fault}", task_id=f"n{number}")
        outcome = self._lose(name, what, number, key) if fault == "lose" else self._kill(name, what, number, key)
        has_hit = self.proxy.has_hit
        self.proxy.arm(None)
        self.outcomes[outcome] += 1
        table = Table.load(self.catalog, name)
        found = rows_in(table)
        where = (what, fault, number, outcome)
        assert found in {"done": (after,), "failed": (before,), "unknown": (before, after)}[outcome], where
        check_once(table, what, number, key, outcome)
        change(table, what, number, key)
        table = Table.load(self.catalog, name)
        assert rows_in(table) == after, where
        check_once(table, what, number, key, "done")
        return has_hit

    def _lose(self, name: str, what: str, number: int, key: OperationKey) -> str:
        self.proxy.arm(number)
        try:
            write(self.properties, name, what, number, key)
        except CommitUnknownError:
            return "unknown"
        except (IcebergError, OSError):
            # The rows of a write may fail to be written or read by the driver's own error.
            return "failed"
        return "done"

    def _kill(self, name: str, what: str, number: int, key: OperationKey) -> str:
        def kill() -> None:
            with suppress(ProcessLookupError):
                os.kill(self.writers.pid(), signal.SIGKILL)

        self.proxy.arm(number, kill)
        status = self.writers.run((self.properties, name, what, number, dataclasses.asdict(key)))
        assert status in (0, -signal.SIGKILL), (what, number, status)
        return "done" if status == 0 else "unknown"


class Writers:
    """A process that has imported everything and opened nothing; each writer is a child that it forks."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.catalogs.drill"]
        root = Path(__file__).parents[2]
        self._parent = subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._child: queue.Queue[int] = queue.Queue()

    def run(self, work: object) -> int:
        """Let one writer do the work; return how it ended, a signal as a negative number."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(f"{json.dumps(work)}\n")
        self._parent.stdin.flush()
        self._child.put(self._answer())
        status = self._answer()
        while not self._child.empty():
            self._child.get()
        return status

    def pid(self) -> int:
        """Return the process id of the writer that is at work."""
        return self._child.get(timeout=300)

    def close(self) -> None:
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(60)

    def _answer(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())


def be_the_parent_of_writers() -> None:
    for name in _NEEDED:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            properties, name, what, number, key = json.loads(line)
            try:
                write(properties, name, what, number, OperationKey(**key))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def check_once(table: Table, what: str, number: int, key: OperationKey, outcome: str) -> None:
    """The change is in the history once, or, unless it is done, not at all."""
    if what == "alter":
        count = [field.name for field in table.schema().fields].count(f"c{number}")
    elif what == "expire":
        count = int(len(table.snapshots()) == 1)
    else:
        keys = [snapshot.summary.get("airflow.operation-key") for snapshot in table.snapshots()]
        count = keys.count(str(key))
        assert bool(find_landed(table.metadata, key, "main")) == (count == 1)
    # An expiry that has landed may fail at the files that it deletes, which the next try goes on with.
    failed = (0, 1) if what == "expire" else (0,)
    assert count in {"done": (1,), "failed": failed, "unknown": (0, 1)}[outcome], (what, number, outcome)


def check_whole(table: Table) -> None:
    named: set[str] = set()
    for snapshot in table.snapshots():
        for manifest in read_manifests(table.io, snapshot):
            named |= {each.data_file.file_path for each in read_entries(table.io, manifest) if each.is_live}
    for location in named:
        assert table.io.exists(location), location


# -- whole tables ------------------------------------------------------------------------------------------------------


WHOLE_TABLES = ("create", "rename", "drop", "purge")


class TableDrill(Drill):
    """The same for what a catalog does with whole tables."""

    def run(self, what: str, fault: str = "lose", *, stride: int = 1) -> int:
        """Let every n-th answer to what is asked of the catalog get lost; return how many were."""
        steps = {"create": self._create, "rename": self._rename, "drop": self._drop, "purge": self._purge}
        number, hits = 1, 0
        while steps[what](number):
            number, hits = number + stride, hits + 1
            assert number < 1000
        return hits

    def _create(self, number: int) -> bool:
        """A table whose creation lost an answer is there whole or not; who asks for it again has it."""
        name = f"db.n{uuid.uuid4().hex[:12]}"
        outcome, has_hit = self._try(number, lambda catalog: make_empty(catalog, name))
        is_there = self.catalog.table_exists(name)
        assert is_there in {"done": (True,), "failed": (False,), "unknown": (True, False)}[outcome], (number, outcome)
        made = self.catalog.load(name).metadata.table_uuid if is_there else None
        table = make_empty(self.catalog, name)
        assert made in (None, table.metadata.table_uuid)
        table.append(arrow([("a", 1)]))
        return has_hit

    def _rename(self, number: int) -> bool:
        """A table has the old name or the new one, and all its rows."""
        old, new = (f"db.{letter}{uuid.uuid4().hex[:12]}" for letter in "on")
        rows = rows_in(make(self.catalog, old))
        outcome, has_hit = self._try(number, lambda catalog: catalog.rename_table(old, new))
        names = [name for name in (old, new) if self.catalog.table_exists(name)]
        assert names in {"done": ([new],), "failed": ([old],), "unknown": ([old], [new])}[outcome], (number, outcome)
        assert rows_in(Table.load(self.catalog, names[0])) == rows
        return has_hit

    def _drop(self, number: int, *, purge: bool = False) -> bool:
        name = f"db.d{uuid.uuid4().hex[:12]}"
        rows = rows_in(make(self.catalog, name))
        outcome, has_hit = self._try(number, lambda catalog: catalog.drop_table(name, purge=purge))
        is_there = self.catalog.table_exists(name)
        assert is_there in {"done": (False,), "failed": (True,), "unknown": (True, False)}[outcome], (number, outcome)
        if is_there:
            assert rows_in(Table.load(self.catalog, name)) == rows
            with suppress(NotFoundError):
                self.catalog.drop_table(name, purge=purge)
            assert not self.catalog.table_exists(name)
        return has_hit

    def _purge(self, number: int) -> bool:
        return self._drop(number, purge=True)

    def _try(self, number: int, do: Callable[[Catalog], object]) -> tuple[str, bool]:
        catalog = load_catalog("prod", **self.properties)
        self.proxy.arm(number)
        try:
            do(catalog)
            outcome = "done"
        except CommitUnknownError:
            outcome = "unknown"
        except IcebergError:
            outcome = "failed"
        has_hit = self.proxy.has_hit
        self.proxy.arm(None)
        self.outcomes[outcome] += 1
        return outcome, has_hit


def make_empty(catalog: Catalog, name: str) -> Table:
    columns = {"part": "string", "id": "long"}
    return Table.create(catalog, name, schema=columns, partition_by=["part"], properties=HASTE, if_not_exists=True)


if __name__ == "__main__":
    be_the_parent_of_writers()
