"""Exactly once and clear replaces: each operator that changes or maintains a table, killed at every step of its I/O.

A real process executes the operator and is killed by the kernel at the n-th step, for every n (see `tests.support
.mortal` for what a step is); the next try of the same task has to find what was done and do the rest. Then a person
clears the task. A few steps of five operators and a sixteenth of all steps run with the services, all of
them by `make stress`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.commit.operation_key import OPERATION_KEY
from airflow_iceberg.commit.settings import now_ms
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, known_files, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.airflow.conftest import CONN_ID, Lake
from tests.support.airflow_home import ROOT

DAY_MS = 24 * 60 * 60 * 1000
LITTER = ("data/x.parquet", "data/part=a/y.parquet", "metadata/z.avro")
ROWS = Counter(n for n in range(40) if n != 3)


# -- the program -------------------------------------------------------------------------------------------------------


class Program:
    """Executes operators in processes that may be killed."""

    def __init__(self, lake: Lake) -> None:
        environment = {**os.environ, f"AIRFLOW_CONN_{CONN_ID.upper()}": json.dumps(lake.connection)}
        self._log = (lake.folder.parent / "operators.log").open("wb")
        self._process: Any = subprocess.Popen(
            [sys.executable, "-m", "tests.airflow.killed_operator"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the program died; see operators.log"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=300)
        self._log.close()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("killed") / "lake"
    folder.mkdir()
    return Lake(folder)


@pytest.fixture(scope="module")
def program(lake: Lake) -> Iterator[Program]:
    made = Program(lake)
    yield made
    made.close()


# -- the cases ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An operator and what it has to leave.

    Attributes:
        arguments: of the operator; those with `{folder}` and `{table}` name files.
        after: the ids in the table when it is done.
        after_clear: and when it was cleared and is done again, with the source of the second run; as before if left
            out.
        updated: the ids of rows that get new values.
        commits: snapshots that it makes in the table; None for any number.
        prepare: what is done to the table before.
        finished: what else has to be true.
        cleared: and after a clear.
    """

    operator: str
    arguments: dict[str, Any] = field(default_factory=dict)
    after: Counter[int] = field(default_factory=lambda: ROWS)
    after_clear: Counter[int] | None = None
    updated: tuple[int, ...] = ()
    commits: int | None = 1
    prepare: Callable[[Lake], None] = lambda lake: None
    finished: Callable[[Lake, dict[str, Any]], None] = lambda lake, result: None
    cleared: Callable[[Lake, dict[str, Any]], None] = lambda lake, result: None


def without(*gone: int) -> Counter[int]:
    return Counter(n for n in ROWS if n not in gone)


def litter(lake: Lake) -> None:
    for name in LITTER:
        path = folder_of(lake) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())


def quarantine(lake: Lake) -> None:
    litter(lake)
    age(lake)
    remove_orphan_files(Work(lake.load()), RemoveOrphanFilesRequest())


def overwritten(lake: Lake) -> None:
    """Snapshots to expire: whole files go, and files that hold vectors."""
    table = lake.load()
    for _ in range(2):
        table.overwrite(table.scan("part = 'a'").to_arrow(), "part = 'a'")


def expiry_is_finished(lake: Lake, result: dict[str, Any]) -> None:
    table = lake.load()
    assert len(table.snapshots()) == 1
    there = visible(lake)
    surplus = {path for path in there if known_files(table).classify(path) == "orphan"}
    assert not [path for path in surplus if not path.endswith((".metadata.json", ".tmp"))]


def orphans_are_aside(lake: Lake, result: dict[str, Any]) -> None:
    table, root = lake.load(), folder_of(lake)
    assert not [name for name in LITTER if (root / name).exists()]
    assert result["quarantine"] in quarantines(table)
    assert result["orphan_files"] == len(LITTER)
    for name in quarantines(table):
        restore_quarantine(Work(table), name)
    assert [(root / name).read_bytes() for name in LITTER] == [name.encode() for name in LITTER]
    for name in LITTER:
        (root / name).unlink()


def orphans_are_gone(lake: Lake, result: dict[str, Any]) -> None:
    assert not [name for name in LITTER if (folder_of(lake) / name).exists()]


def litter_is_back(lake: Lake, result: dict[str, Any]) -> None:
    root = folder_of(lake)
    assert [(root / name).read_bytes() for name in LITTER] == [name.encode() for name in LITTER]
    assert quarantines(lake.load()) == ()
    assert (result["restored_files"], result["restored_files_size_bytes"]) == (len(LITTER), sum(map(len, LITTER)))


def old_files(lake: Lake) -> None:
    """A folder of files with a partition, which becomes a table."""
    put_files(lake.folder / "warehouse" / "old")


def landed(lake: Lake) -> None:
    """Files that join the table; below it, so that none of them may be taken for an orphan."""
    put_files(folder_of(lake) / "landing")


def put_files(folder: Path) -> None:
    for part, number in (("a", 200), ("b", 201)):
        path = folder / f"part={part}" / "0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), path)


def changed(lake: Lake) -> None:
    """A table whose changes are read."""
    table = lake.create("s.source", schema={"id": "long", "part": "string"})
    table.append(pa.table({"id": pa.array([100, 101], pa.int64()), "part": ["a", "a"]}))


def dropped(lake: Lake) -> None:
    """A table whose metadata stays, which is registered under another name."""
    lake.create("s.dropped", schema={"id": "long", "part": "string"}).append(rows([200, 201]))
    lake.catalog.drop_table("s.dropped")


def newest_metadata(lake: Lake) -> str:
    """Return the location of the newest metadata of the table that was dropped, or nothing if none was."""
    written = sorted((lake.folder / "warehouse" / "s" / "dropped" / "metadata").glob("*.metadata.json"))
    return written[-1].as_uri() if written else ""


def made_once(lake: Lake, result: dict[str, Any]) -> None:
    there_once(lake, result)
    assert result["added_records"] == 2


def there_once(lake: Lake, result: dict[str, Any]) -> None:
    table = lake.load("s.made")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [200, 201]
    assert len(table.snapshots()) == 1
    # Not `as_uri`, which writes `=` as `%3D`.
    assert reachable(table) <= {f"file://{path}" for path in lake.folder.rglob("*")}


APPENDED = Counter({100: 1, 101: 1})
MERGED = {
    "files": "{folder}/merged-{run}.parquet",
    "on": ["id"],
    "clauses": ["when matched then delete", "when not matched then insert *"],
}
CHANGED = {"changes": "s.source", "sql": "select id, part from i"}
ROWS_OF = {"rows_of": "{folder}/source-{run}.parquet"}
NEW_TABLE = {"table": "s.made", "source": "{folder}/warehouse/old"}
ODD = Counter(n for n in ROWS if n % 2)
FILES = {"files": "{folder}/source-{run}.parquet"}
CASES = {
    "append": Case("IcebergAppendOperator", FILES, after=ROWS + APPENDED, after_clear=ROWS + Counter([102])),
    "overwrite matching": Case(
        "IcebergOverwriteOperator",
        {**FILES, "overwrite_filter": "id = 5 or id >= 39 and id < 200"},
        after=without(5, 39) + APPENDED,
        after_clear=without(5, 39) + Counter([102]),
    ),
    "overwrite partitions": Case(
        "IcebergOverwriteOperator",
        {**FILES, "replace": "partitions"},
        after=ODD + APPENDED,
        after_clear=ODD + Counter([102]),
    ),
    "delete, copy-on-write": Case(
        "IcebergDeleteOperator", {"predicate": "id in (1, 12)", "mode": "copy-on-write"}, after=without(1, 12)
    ),
    "delete, merge-on-read": Case(
        "IcebergDeleteOperator", {"predicate": "id in (1, 2, 12)", "mode": "merge-on-read"}, after=without(1, 2, 12)
    ),
    **{
        f"merge, {mode}": Case(
            "IcebergMergeOperator",
            {**MERGED, "mode": mode},
            after=without(5, 38) + Counter([100]),
            after_clear=without(5, 38) + Counter([100, 102]),
        )
        for mode in ("copy-on-write", "merge-on-read")
    },
    **{
        f"update, {mode}": Case(
            "IcebergUpdateOperator",
            {"set": {"id": "id + 300"}, "where": "id in (5, 38)", "mode": mode},
            after=without(5, 38) + Counter([305, 338]),
        )
        for mode in ("copy-on-write", "merge-on-read")
    },
    "upsert": Case(
        "IcebergMergeOperator",
        {"files": MERGED["files"], "on": ["id"], "upsert": True},
        updated=(5, 38),
        after=ROWS + Counter([100]),
        after_clear=ROWS + Counter([100, 102]),
    ),
    "append of changes": Case("IcebergAppendOperator", CHANGED, after=ROWS + APPENDED, prepare=changed),
    "merge of changes": Case(
        "IcebergMergeOperator",
        {**CHANGED, "on": ["id"], "clauses": "when not matched then insert * when matched then delete"},
        after=ROWS + APPENDED,
        # It reads its own rows again, and merges them once more into the table as it is.
        after_clear=ROWS,
        prepare=changed,
    ),
    "append, decorated": Case("_AppendTask", ROWS_OF, after=ROWS + APPENDED, after_clear=ROWS + Counter([102])),
    "overwrite, decorated": Case(
        "_OverwriteTask",
        {**ROWS_OF, "overwrite_filter": "id = 5", "check_filter": False},
        after=without(5) + APPENDED,
        after_clear=without(5) + Counter([102]),
    ),
    "merge, decorated": Case(
        "_MergeTask",
        {"rows_of": MERGED["files"], "on": ["id"], "clauses": MERGED["clauses"]},
        after=without(5, 38) + Counter([100]),
        after_clear=without(5, 38) + Counter([100, 102]),
    ),
    "add files": Case(
        "IcebergAddFilesOperator",
        {"source": "{table}/landing"},
        after=ROWS + Counter([200, 201]),
        prepare=landed,
    ),
    "snapshot table": Case(
        "IcebergSnapshotTableOperator", NEW_TABLE, commits=0, prepare=old_files, finished=made_once, cleared=there_once
    ),
    "migrate table": Case(
        "IcebergMigrateTableOperator", NEW_TABLE, commits=0, prepare=old_files, finished=made_once, cleared=made_once
    ),
    "register table": Case(
        "IcebergRegisterTableOperator",
        {"table": "s.made", "metadata_location": "{registered}"},
        commits=0,
        prepare=dropped,
        finished=there_once,
        cleared=there_once,
    ),
    "delete of whole files": Case("IcebergDeleteOperator", {"predicate": "part = 'a'"}, after=ODD),
    "compact": Case(
        "IcebergCompactOperator", {"options": {"rewrite-all": True, "partial-progress.enabled": True}}, commits=None
    ),
    "compact, sorted": Case(
        "IcebergCompactOperator", {"strategy": "sort", "sort_by": ["id"], "options": {"min-input-files": 2}}
    ),
    "rewrite manifests": Case("IcebergRewriteManifestsOperator"),
    "expire": Case(
        "IcebergExpireSnapshotsOperator",
        {"older_than": "2100-01-01T00:00:00Z", "clean_expired_metadata": True},
        commits=0,
        prepare=overwritten,
        finished=expiry_is_finished,
    ),
    "remove orphans": Case("IcebergRemoveOrphanFilesOperator", commits=0, prepare=litter, finished=orphans_are_aside),
    "remove orphans for good": Case(
        "IcebergRemoveOrphanFilesOperator", {"action": "delete"}, commits=0, prepare=litter, finished=orphans_are_gone
    ),
    "restore": Case(
        "IcebergRestoreOrphanFilesOperator",
        {"quarantine": "{quarantine}"},
        commits=0,
        prepare=quarantine,
        finished=litter_is_back,
    ),
}
# Those whose second try is killed as well.
AGAIN = ("overwrite matching", "compact", "expire")
SPARK_LESS = {"spark_conn_id": None}
WITH_JOBS = {f"Iceberg{verb}Operator" for verb in ("Append", "Overwrite", "Delete", "Compact", "Merge", "Update")}


# -- the table ---------------------------------------------------------------------------------------------------------


def folder_of(lake: Lake) -> Path:
    return Path(lake.load().location.removeprefix("file://"))


def visible(lake: Lake) -> set[str]:
    table = lake.load()
    return {s.location for s in table.io.list(table.location) if "/.quarantine/" not in s.location}


def age(lake: Lake) -> None:
    for path in folder_of(lake).rglob("*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))


def rows(numbers: list[int]) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "part": ["ab"[n % 2] for n in numbers]})


def state(lake: Lake) -> Counter[int]:
    return Counter(lake.load().scan().to_arrow()["id"].to_pylist())


def lineage(lake: Lake) -> dict[int, tuple[int, int]]:
    columns = ("id", "_row_id", "_last_updated_sequence_number")
    found = lake.load().scan(selected_fields=columns).to_arrow().to_pylist()
    return {row["id"]: (row["_row_id"], row["_last_updated_sequence_number"]) for row in found}


def reachable(table: Table) -> set[str]:
    found = {table.metadata_location}
    for snapshot in table.snapshots():
        found.add(snapshot.manifest_list or "")
        for manifest in read_manifests(table.io, snapshot):
            found.add(manifest.manifest_path)
            found |= {e.data_file.file_path for e in read_entries(table.io, manifest) if e.is_live}
    return found


class Scene:
    """One case: its table as it was before, and the program that works on it."""

    def __init__(self, lake: Lake, program: Program, name: str) -> None:
        self.lake, self.program, self.name, self.case = lake, program, name, CASES[name]
        self._template = lake.folder.with_name("template")
        for folder in (lake.folder, self._template):
            shutil.rmtree(folder, ignore_errors=True)
        lake.folder.mkdir()
        self._make()
        self.lineage = lineage(lake)
        shutil.copytree(lake.folder, self._template)

    def _make(self) -> None:
        table = self.lake.create(
            schema={"id": "long", "part": "string"},
            partition_by=["part"],
            properties={"format-version": "3", "commit.manifest-merge.enabled": "false"},
        )
        for start in (0, 10, 20, 30):
            table.append(rows(list(range(start, start + 10))))
        table.delete("id = 3", mode="merge-on-read")
        # Ids of a single part: an overwrite of partitions replaces that one.
        pq.write_table(pa.table({"id": pa.array([100, 101], pa.int64()), "part": ["a", "a"]}), self._source("first"))
        pq.write_table(pa.table({"id": pa.array([102], pa.int64()), "part": ["a"]}), self._source("second"))
        pq.write_table(rows([5, 38, 100]), self.lake.folder / "merged-first.parquet")
        pq.write_table(rows([102]), self.lake.folder / "merged-second.parquet")
        self.case.prepare(self.lake)
        age(self.lake)

    def _source(self, run: str) -> Path:
        return self.lake.folder / f"source-{run}.parquet"

    def begin(self) -> None:
        shutil.rmtree(self.lake.folder)
        shutil.copytree(self._template, self.lake.folder)

    def execute(self, *, try_number: int, epoch: int = 0, die_at: int | None = None, **more: Any) -> dict[str, Any]:
        case, run = self.case, "first" if epoch == 0 else "second"
        words = {"{folder}": str(self.lake.folder), "{table}": str(folder_of(self.lake)), "{run}": run}
        words["{registered}"] = newest_metadata(self.lake)
        if "quarantine" in case.arguments:
            words["{quarantine}"] = self._quarantine()
        text = json.dumps({**case.arguments, **(SPARK_LESS if case.operator in WITH_JOBS else {})})
        for word, meaning in words.items():
            text = text.replace(word, meaning)
        order = {"operator": case.operator, "arguments": {"table": "s.t", **json.loads(text)}}
        return self.program.ask({**order, "try": try_number, "epoch": epoch, "die_at": die_at, **more})

    def _quarantine(self) -> str:
        (name,) = os.listdir(self._template / folder_of(self.lake).relative_to(self.lake.folder) / ".quarantine")
        return name

    # -- what has to be true -------------------------------------------------------------------------------------------

    def check_after_a_kill(self) -> None:
        """Whatever was done or not: the table is as before or as after, and whole."""
        assert state(self.lake) in (ROWS, self.case.after)
        assert reachable(self.lake.load()) <= visible(self.lake)

    def check_done(self, result: dict[str, Any]) -> None:
        assert state(self.lake) == self.case.after
        table = self.lake.load()
        own = [s for s in table.snapshots() if s.summary.get(OPERATION_KEY, "").startswith("killed/")]
        assert self.case.commits in (None, len(own)), [s.summary for s in own]
        found = {n: line for n, line in lineage(self.lake).items() if n in ROWS}
        for n in self.case.updated:
            assert found.pop(n)[0] == self.lineage[n][0]
        assert found == {n: self.lineage[n] for n in ROWS & self.case.after if n not in self.case.updated}
        self.case.finished(self.lake, result)

    def check_clean(self, wanted: Counter[int]) -> None:
        """The rows are those; once what it has left is cleaned up nothing is there but the table."""
        assert state(self.lake) == wanted
        age(self.lake)
        table = self.lake.load()
        remove_orphan_files(
            Work(table), RemoveOrphanFilesRequest(action="delete", older_than_ms=now_ms() + DAY_MS, allow_recent=True)
        )
        known = known_files(table)
        assert not [path for path in visible(self.lake) if known.classify(path) == "orphan"]
        assert reachable(table) <= visible(self.lake)
        assert state(self.lake) == wanted


def step_through(scene: Scene, steps: range) -> None:
    for number, step in enumerate(steps):
        scene.begin()
        killed = scene.execute(try_number=1, die_at=step)
        assert killed == {"killed": True}, (step, killed.get("error"))
        scene.check_after_a_kill()
        result = scene.execute(try_number=2)
        assert "error" not in result, (step, result["error"], result["trace"])
        scene.check_done(result["result"])
        if number % 4 or scene.case.operator == "IcebergRestoreOrphanFilesOperator":
            continue  # what was restored is litter again
        cleared = scene.execute(try_number=3, epoch=2)
        assert "error" not in cleared, (step, cleared["error"], cleared["trace"])
        scene.case.cleared(scene.lake, cleared["result"])
        scene.check_clean(scene.case.after if scene.case.after_clear is None else scene.case.after_clear)


def count_steps(scene: Scene) -> int:
    """Return the number of steps of a run that nobody kills, which is one that does the work."""
    first = scene.execute(try_number=1, names_modules=True)
    assert "error" not in first, first["trace"]
    scene.program.ask({"modules": first["modules"]})
    scene.check_done(first["result"])
    scene.begin()
    steps = scene.execute(try_number=1)["steps"]
    assert steps > 2
    return int(steps)


@pytest.fixture
def scene(request: pytest.FixtureRequest, lake: Lake, program: Program) -> Scene:
    return Scene(lake, program, request.param)


class TestAnOperatorThatIsKilled:
    """Its next try finishes what it has begun; the work is done once, and no row of it is doubled by a clear."""

    @pytest.mark.services
    @pytest.mark.parametrize(
        "scene",
        ["overwrite matching", "expire", "merge, merge-on-read", "update, copy-on-write", "migrate table"],
        indirect=True,
    )
    def test_at_some_steps(self, scene):
        steps = count_steps(scene)
        step_through(scene, range(steps // 3, steps + 1, max(1, steps // 3)))

    @pytest.mark.parametrize("scene", CASES, indirect=True)
    @pytest.mark.parametrize(
        "every",
        [
            pytest.param(1, id="every step", marks=pytest.mark.long),
            pytest.param(16, id="every sixteenth step", marks=pytest.mark.services),
        ],
    )
    def test_at_each_of_its_steps(self, scene, every):
        step_through(scene, range(1 + list(CASES).index(scene.name) % every, count_steps(scene) + 1, every))

    @pytest.mark.parametrize(
        ("scene", "every"),
        [
            *(pytest.param(name, 3, marks=pytest.mark.long) for name in CASES),
            *(pytest.param(name, 20, marks=pytest.mark.services) for name in AGAIN),
        ],
        indirect=["scene"],
    )
    def test_and_killed_again(self, scene, every):
        steps = count_steps(scene)
        for step in range(2, steps, every):
            scene.begin()
            scene.execute(try_number=1, die_at=step)
            scene.execute(try_number=2, die_at=steps - step)
            scene.check_after_a_kill()
            result = scene.execute(try_number=3)
            assert "error" not in result, (step, result["error"], result["trace"])
            scene.check_done(result["result"])
            scene.check_clean(scene.case.after)
