"""Appends in a storm: answers are lost, requests repeated, stores out; and somebody expires all but the last snapshot.

    python -m tests.stress.storm --seconds 90 --catalog sqlite|hadoop|s3|rest --seed N

In contrast to `tests.stress` nothing is kept for those who want to look up what became of their commit, and nobody
tries again. So each append is counted by what its caller was told: "landed" is in the table once, "refused" (any error
but an unknown outcome) is not in it, "unknown" is in it once or not at all, and never in part. Actors are processes of
their own, each behind a proxy of its own, so that one is cut off while the others go on.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import CommitUnknownError, IcebergError
from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.operations import append as appends
from airflow_iceberg.operations.append import AppendRequest
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.stress.weather import Climate, Weather
from tests.support import mortal
from tests.support.append_steps import read_result
from tests.support.builders import reachable

ROOT = Path(__file__).parents[2]
NAME = "db.storm"
CATALOGS = ("sqlite", "hadoop", "s3", "rest")
ROLES = {"append": 4, "replace": 1, "compact": 1, "manifests": 1, "expire": 1}
CLIMATES = {
    "lost": Climate(lost=0.04, unsent=0.02),
    "repeated": Climate(repeated=0.3, lost=0.02),
    "outage": Climate(outage_s=30, pause_s=10, lost=0.01),
    "short outages": Climate(outage_s=2, pause_s=3, lost=0.02),
}
SHORT_WAITS = {
    "s3.connect-timeout": "3",
    "s3.request-timeout": "5",
    "rest.client.connection-timeout-ms": "3000",
    "rest.client.socket-timeout-ms": "5000",
}


def main() -> int:
    """Run, print what happened, and return 1 for damage."""
    options = _options()
    if options.actor:
        _act(json.loads(options.actor))
        return 0
    folder = Path(options.folder or tempfile.mkdtemp(prefix="storm-"))
    (folder / "journal").mkdir(parents=True)
    with ExitStack() as stack:
        properties, uri = SERVICES[options.catalog](folder, stack)
        verdict = storm(folder, properties, uri, options)
    (folder / "verdict.json").write_text(json.dumps(verdict, indent=1))
    print(json.dumps({**verdict, "folder": str(folder), "seed": options.seed}, indent=1))
    return 1 if verdict["faults"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stress.storm")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--catalog", choices=CATALOGS, default="sqlite")
    parser.add_argument("--climate", choices=CLIMATES, default="lost", help="of the network, for s3 and rest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="a new one; a temporary one that stays by default")
    parser.add_argument("--actor", help=argparse.SUPPRESS)
    return parser.parse_args()


# -- where it is -------------------------------------------------------------------------------------------------------

Properties = dict[str, str]
MOST_EXTRA_S = 120


def _sqlite(folder: Path, _: ExitStack) -> tuple[Properties, str | None]:
    uri = f"sqlite:///{folder / 'catalog.db'}"
    return {"type": "sql", "uri": uri, "warehouse": (folder / "warehouse").as_uri()}, None


def _hadoop(folder: Path, _: ExitStack) -> tuple[Properties, str | None]:
    return {"type": "hadoop", "warehouse": (folder / "warehouse").as_uri()}, None


def _s3(folder: Path, stack: ExitStack) -> tuple[Properties, str | None]:
    seaweedfs = importlib.import_module("tests.services.seaweedfs")
    server = seaweedfs.SeaweedFS().start()
    stack.callback(server.stop)
    return {"type": "hadoop", "warehouse": f"s3://{seaweedfs.BUCKET}/storm", **server.s3_properties}, "s3.endpoint"


def _rest(folder: Path, stack: ExitStack) -> tuple[Properties, str | None]:
    server = importlib.import_module("tests.services.iceberg_rest").IcebergRest().start()
    stack.callback(server.stop)
    return dict(server.catalog_properties), "uri"


SERVICES: Mapping[str, Callable[[Path, ExitStack], tuple[Properties, str | None]]] = {
    "sqlite": _sqlite,
    "hadoop": _hadoop,
    "s3": _s3,
    "rest": _rest,
}


def storm(folder: Path, properties: Properties, uri: str | None, options: argparse.Namespace) -> dict[str, Any]:
    """Start all actors, each behind its own weather, wait for the end, and judge.

    Args:
        uri: the property with the address that a proxy takes the place of; None for a catalog without a network.
    """
    make_table(properties, options.seed)
    running: dict[str, subprocess.Popen[bytes]] = {}
    weathers: list[Weather] = []
    with ExitStack() as stack:
        for role, count in ROLES.items():
            for number in range(count):
                name, own = f"{role}{number}", dict(properties)
                # Whoever expires is not held up: he is to be quicker than those who look up their commits.
                if uri is not None and role != "expire":
                    climate = CLIMATES[options.climate]
                    weather = stack.enter_context(Weather(own[uri], climate, seed=f"{options.seed}-{name}"))
                    own |= {uri: weather.uri, **SHORT_WAITS}
                    weathers.append(weather)
                running[name] = _start(folder, name, role, own, options.seed)
        # A loaded machine takes many seconds to start them.
        while len(list((folder / "journal").iterdir())) < len(running) and not _ended(running):
            time.sleep(0.1)
        for weather in weathers:
            weather.begin()
        (folder / "curtain").touch()
        time.sleep(options.seconds)
        # On a slow machine a short storm goes on until there was something to judge, but not for ever.
        last = time.monotonic() + MOST_EXTRA_S
        while not (_was_told(folder, "append", "landed") and _was_told(folder, "expire", "committed")):
            if _ended(running) or time.monotonic() > last:
                break
            time.sleep(0.2)
        (folder / "curtain").unlink()
        for weather in weathers:
            weather.clear_up()
        codes = {name: process.wait(300) for name, process in running.items()}
    verdict = judge(folder, properties)
    verdict["faults"] += [f"{name} ended with {code}, see its log" for name, code in codes.items() if code]
    verdict["network"] = dict(sum((weather.counts for weather in weathers), Counter()))
    return verdict


def _ended(running: Mapping[str, "subprocess.Popen[bytes]"]) -> bool:
    return any(process.poll() is not None for process in running.values())


def _was_told(folder: Path, role: str, told: str) -> bool:
    return any(f'"told": "{told}"' in path.read_text() for path in (folder / "journal").glob(f"{role}*"))


def make_table(properties: Properties, seed: int) -> None:
    catalog = load_catalog("storm", **properties)
    catalog.create_namespace("db")
    settings = {
        "commit.manifest.min-count-to-merge": "6",
        "commit.retry.min-wait-ms": "10",
        "commit.retry.max-wait-ms": "300",
        "commit.status-check.num-retries": "2",
        "commit.status-check.min-wait-ms": "100",
        "write.metadata.previous-versions-max": str((1, 3, 20)[seed % 3]),
        "write.metadata.delete-after-commit.enabled": str(seed % 2 == 1).lower(),
    }
    Table.create(catalog, NAME, schema={"tag": "string", "n": "long"}, properties=settings)


def _start(folder: Path, name: str, role: str, properties: Properties, seed: int) -> "subprocess.Popen[bytes]":
    told = {"folder": str(folder), "name": name, "role": role, "properties": properties, "seed": seed}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.stress.storm", "--actor", json.dumps(told)],
            cwd=os.getcwd(),
            stdout=log,
            stderr=log,
        )


# -- who acts ----------------------------------------------------------------------------------------------------------


def _act(told: dict[str, Any]) -> None:
    actor = Actor(
        name=told["name"],
        folder=Path(told["folder"]),
        properties=told["properties"],
        dice=Random(f"{told['seed']}-{told['name']}"),
    )
    actor.load().current_snapshot()
    number, parent = 0, os.getppid()
    (actor.folder / "journal" / actor.name).touch()
    curtain = actor.folder / "curtain"
    while not curtain.exists() and os.getppid() == parent:
        time.sleep(0.02)
    while curtain.exists() and os.getppid() == parent:
        getattr(actor, told["role"])(number)
        number += 1
        time.sleep(actor.dice.uniform(0, 0.05))


@dataclass(kw_only=True)
class Actor:
    """One process; each method with a number is one operation, and writes down what it was told.

    Attributes:
        losses: the share of operations that lose an answer of a catalog without a network.
    """

    name: str
    folder: Path
    properties: Properties
    dice: Random
    losses: float = 0.3

    def load(self) -> Table:
        return Table.load(load_catalog("storm", **self.properties), NAME)

    def append(self, number: int) -> None:
        tag, count = f"{self.name}:{number}", self.dice.randint(1, 20)
        rows = pa.table({"tag": [tag] * count, "n": range(count)})
        way = self.dice.choice((self._plain, self._with_key, self._by_job))
        try:
            table = self.load()
        except IcebergError as error:
            self.note(tag, "not begun", error=_text(error))
            return
        self._do(tag, count, lambda: way(table, tag, rows))

    def replace(self, number: int) -> None:
        """Replace all rows of this actor by others, or delete them."""
        tag, count = f"{self.name}:{number}", self.dice.choice((0, 1, 5, 10))
        rows = pa.table({"tag": [self.name] * count, "n": range(number * 100, number * 100 + count)})
        mine, mode = {"tag": self.name}, self.dice.choice(("copy-on-write", "merge-on-read"))
        try:
            table = self.load()
        except IcebergError as error:
            self.note(tag, "not begun", error=_text(error))
            return
        if count:
            self._do(tag, count, lambda: table.overwrite(rows, "tag = :tag", predicate_params=mine))
        else:
            self._do(tag, count, lambda: table.delete("tag = :tag", predicate_params=mine, mode=mode))
        time.sleep(0.1)

    def _do(self, tag: str, count: int, work: Callable[[], Any]) -> None:
        self._lose_a_reply()
        # Written before it begins: what does not come to its end is unknown, too.
        self.note(tag, "begun", count=count)
        try:
            result = work()
        except CommitUnknownError as error:
            self.note(tag, "unknown", count=count, error=_text(error))
        except IcebergError as error:
            self.note(tag, "refused", count=count, error=_text(error))
        else:
            told = "landed" if result.outcome in ("committed", "found") else str(result.outcome)
            self.note(tag, told, count=count, added=result.added_records)

    def _plain(self, table: Table, tag: str, rows: pa.Table) -> Any:
        return table.append(rows)

    def _with_key(self, table: Table, tag: str, rows: pa.Table) -> Any:
        return table.append(rows, operation_key=_key(tag))

    def _by_job(self, table: Table, tag: str, rows: pa.Table) -> Any:
        path = self.folder / "source" / f"{tag.replace(':', '-')}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(rows, path)
        work = self._work(table, tag)
        return appends.append(work, AppendRequest(rows=Source.from_files(str(path))))

    def _work(self, table: Table, tag: str) -> Work:
        def run(plan: JobPlan) -> JobResult:
            run_local(plan, table.io, threads=1)
            return read_result(table, plan)

        return Work(table, run=run, operation_key=_key(tag))

    def compact(self, number: int) -> None:
        request = CompactRequest(options={"min-input-files": 4})
        self._maintain(number, lambda work: compact(work, request))
        time.sleep(0.2)

    def manifests(self, number: int) -> None:
        self._maintain(number, lambda work: rewrite_manifests(work, RewriteManifestsRequest()))
        time.sleep(0.5)

    def expire(self, number: int) -> None:
        """Expire everything but the last snapshot, whoever may still want to look something up."""
        request = ExpireSnapshotsRequest(
            older_than_ms=time.time_ns() // 1_000_000, retain_last=1, clean_expired_metadata=number % 5 == 0
        )
        self._maintain(number, lambda work: expire_snapshots(work, request))

    def _maintain(self, number: int, work: Callable[[Work], Any]) -> None:
        tag = f"{self.name}:{number}"
        try:
            table = self.load()
            self._lose_a_reply()
            self.note(tag, str(work(self._work(table, tag)).outcome))
        except IcebergError as error:
            self.note(tag, type(error).__name__, error=_text(error))

    def _lose_a_reply(self) -> None:
        """Let a catalog without a network lose an answer, too, but not for whoever expires."""
        is_local = "s3.endpoint" not in self.properties and self.properties["type"] != "rest"
        if is_local and not self.name.startswith("expire"):
            mortal.lose_a_reply(self.dice.choice(("before", "after")) if self.dice.random() < self.losses else None)

    def note(self, tag: str, told: str, **more: Any) -> None:
        line = json.dumps({"tag": tag, "told": told, "at": round(time.time(), 3), **more})
        with (self.folder / "journal" / self.name).open("a") as file:
            file.write(f"{line}\n")


def _key(tag: str) -> OperationKey:
    now = time.time_ns() // 1_000_000
    return OperationKey(dag_id="storm", run_id="r", task_id=tag, run_after_ms=now, started_ms=now)


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


# -- what came of it ---------------------------------------------------------------------------------------------------


def _notes(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((folder / "journal").iterdir()):
        yield from map(json.loads, path.read_text().splitlines())


def judge(folder: Path, properties: Properties) -> dict[str, Any]:
    """Count the rows of each append against what its caller was told."""
    faults: list[str] = []
    told: dict[str, dict[str, Any]] = {}
    for note in _notes(folder):
        if note["tag"].startswith("append"):
            told[note["tag"]] = note
    found: dict[str, Counter[int]] = {}
    rows = 0
    try:
        table = Table.load(load_catalog("storm", **properties), NAME)
        for batch in table.scan().to_arrow_batch_reader():
            rows += batch.num_rows
            for tag, n in zip(batch["tag"].to_pylist(), batch["n"].to_pylist(), strict=True):
                found.setdefault(tag, Counter())[n] += 1
        missing = [path for path in sorted(reachable(table)) if not table.io.exists(path)]
        if missing:
            faults.append(f"{len(missing)} files are missing, such as {missing[0]}")
    except Exception as error:
        faults.append(f"the table cannot be read: {_text(error)}")
        return {"faults": faults, "told": dict(Counter(note["told"] for note in told.values()))}
    for number in range(ROLES["replace"]):
        faults += _faults_of_replacements(folder, f"replace{number}", found.pop(f"replace{number}", Counter()))
    for tag, note in told.items():
        fault = _fault(note, found.pop(tag, Counter()))
        if fault:
            faults.append(f"{tag} was told {note['told']!r} and is {fault}: {note}")
    faults += [f"rows of {tag}, which nobody appended" for tag in found]
    counts: dict[str, Counter[str]] = {}
    for note in _notes(folder):
        if note["told"] != "begun":
            counts.setdefault(note["tag"].partition(":")[0].rstrip("0123456789"), Counter())[note["told"]] += 1
    return {"faults": faults, "told": {role: dict(each) for role, each in counts.items()}, "rows": rows}


def _faults_of_replacements(folder: Path, name: str, rows: Counter[int]) -> Iterator[str]:
    """Hold the rows of an actor that replaces his own against the last that he was told, or that nobody knows."""
    last: dict[str, dict[str, Any]] = {note["tag"]: note for note in _notes(folder) if note["tag"].startswith(name)}
    possible: dict[str, set[int]] = {"at first": set()}
    for tag, note in last.items():
        number = int(tag.partition(":")[2])
        new = {tag: set(range(number * 100, number * 100 + note.get("count", 0)))}
        if note["told"] == "landed":
            possible = new
        elif note["told"] in ("unknown", "begun"):
            possible |= new
        elif note["told"] == "nothing":
            if note["count"] or all(possible.values()):
                yield f"{tag} was told that there is nothing to do, with {note['count']} new rows and {possible}"
            possible = new
    if max(rows.values(), default=0) > 1:
        yield f"rows of {name} are there {max(rows.values())} times"
    if set(rows) not in possible.values():
        yield f"{name} has {sorted(rows)}, expected one of { ({tag: sorted(each) for tag, each in possible.items()}) }"


def _fault(note: dict[str, Any], rows: Counter[int]) -> str | None:
    """Return what is wrong with the rows of an append; None for nothing."""
    if max(rows.values(), default=0) > 1:
        return f"there {max(rows.values())} times"
    is_whole, told = rows.keys() == set(range(note.get("count", 0))), note["told"]
    if rows and not is_whole:
        return f"there in part, with {len(rows)} rows"
    if told == "landed":
        return None if rows else "lost"
    if told in ("refused", "not begun"):
        return "there" if rows else None
    # It had rows, so that there was something to do.
    return None if told in ("unknown", "begun") else "no answer to rows"


if __name__ == "__main__":
    sys.exit(main())
