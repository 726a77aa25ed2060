"""Documents that somebody else has changed: whoever can write below a table's location gets nothing done with them."""

import gzip
import json
import threading
import time
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import FormatError, IcebergError, InvalidInputError, StalePlanError, StorageError
from airflow_iceberg.jobs import compact_sorted, exchange, main
from airflow_iceberg.jobs.protocol import result as result_module
from airflow_iceberg.jobs.protocol.one_time_signature import SIGNATURE_BYTES, SignatureCheck, new_seed, public_key, sign
from airflow_iceberg.jobs.protocol.plan import InventoryTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult, read_result, write_result
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.run_plan import run_job
from airflow_iceberg.operations import staging
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.file_inventory import FileInventory
from airflow_iceberg.operations.overwrite import OverwriteRequest, overwrite
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.row_level.merge import MergeRequest, merge
from airflow_iceberg.operations.row_level.update import UpdateRequest, update
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.stores.fsspec_io import load_file_io
from airflow_iceberg.table import Table
from tests.support.append_steps import plan_append
from tests.support.builders import id_rows, ids
from tests.support.memory import MemoryFileIO

KEY = OperationKey(dag_id="d", run_id="r", task_id="t")
LONG_AGO = 2**62
ATTACKER = load_file_io()
SEED = new_seed()
Forge = Callable[[JobPlan, JobResult, Table], JobResult]


@pytest.fixture(params=["file", "memory"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A warehouse on the disk, and one in memory."""
    return (tmp_path / "lake").as_uri() if request.param == "file" else f"memory://lake-{uuid.uuid4().hex}/w"


@pytest.fixture
def catalog(warehouse: str) -> Any:
    catalog = load_catalog("test", type="hadoop", warehouse=warehouse)
    catalog.create_namespace("db")
    return catalog


@pytest.fixture
def table(catalog: Any) -> Table:
    """The attacked table: partitioned, two snapshots, a value with a slash in its partition."""
    table = Table.create(
        catalog, "db.mine", schema={"id": "long", "part": "string"}, partition_by=["part"], properties=SMALL
    )
    for start in (0, 10):
        table.append(rows(start))
    return table


@pytest.fixture
def victim(catalog: Any) -> Iterator[Table]:
    """Another table, every file of which is still there after the test."""
    table = Table.create(catalog, "db.theirs", schema={"id": "long"})
    table.append(id_rows(range(5)))
    before = files(table)
    yield table
    assert files(table) == before
    assert ids(Table.load(table.catalog, "db.theirs")) == list(range(5))


@pytest.fixture
def source(tmp_path: Path) -> Source:
    pq.write_table(rows(100), tmp_path / "source.parquet")
    return Source.from_files([str(tmp_path / "source.parquet")])


SMALL = {"write.distribution-mode": "none"}


def rows(start: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + 4), pa.int64()), "part": ["a/b", "c", "a/b", "c"]})


def files(table: Table) -> dict[str, bytes]:
    return {status.location: table.io.read(status.location) for status in table.io.list(table.location)}


def put(table: Table, location: str, data: bytes) -> None:
    """Write as somebody else does, who can write below the table's location."""
    ATTACKER.delete([location])
    ATTACKER.create(location, data)


def foreign_file(table: Table) -> str:
    return next(task.file.file_path for task in table.scan().plan_files())


# -- plan and work -----------------------------------------------------------------------------------------------------

OTHER_PLANS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "code": lambda plan: {
        **plan,
        "task": {**plan["task"], "source": {**plan["task"]["source"], "kind": "callable", "callable": "os:system"}},
    },
    "of the same size": lambda plan: {**plan, "table": plan["table"][::-1]},
    "of another version": lambda plan: {**plan, "version": 2},
    "no object": lambda plan: [plan],
}


class TestPlan:
    """The driver runs the plan whose seal it was started with, and no other."""

    def start(self, plan: JobPlan, *arguments: str) -> int:
        return main.main([plan.location, *arguments])

    @pytest.mark.parametrize("name", OTHER_PLANS)
    def test_another_plan_is_refused(self, name: str, table: Table, source: Source, capsys: Any) -> None:
        plan = plan_append(table, source)
        forged = json.dumps(OTHER_PLANS[name](json.loads(plan.to_json())), ensure_ascii=False).encode()
        put(table, plan.location, forged)
        assert self.start(plan, str(plan.seal)) == 2
        assert "the job plan is not the one that was written: it was replaced or changed" in capsys.readouterr().out
        assert not table.io.exists(plan.result_location)

    @pytest.mark.parametrize("data", [b"", b"[" * 1_000_000, b" " * 50_000_000], ids=["empty", "nested", "huge"])
    def test_so_is_anything_else(self, data: bytes, table: Table, source: Source, capsys: Any) -> None:
        plan = plan_append(table, source)
        put(table, plan.location, data)
        assert self.start(plan, str(plan.seal)) == 2
        assert "is not the one that was written" in capsys.readouterr().out

    def test_the_plan_of_another_job_is_refused_in_its_place(self, table: Table, source: Source, capsys: Any) -> None:
        plan, other = plan_append(table, source), plan_append(table, source)
        put(table, plan.location, other.to_json())
        assert self.start(plan, str(other.seal)) == 2
        assert f"the plan is one for {other.location}" in capsys.readouterr().out

    @pytest.mark.parametrize("arguments", [(), ("",), ("12-abc",), ("a", "b")])
    def test_without_a_seal_nothing_is_read(
        self, arguments: tuple[str, ...], table: Table, source: Source, capsys: Any
    ) -> None:
        assert self.start(plan_append(table, source), *arguments) == 2
        assert "seal" in capsys.readouterr().out.lower()


class TestWork:
    """The files that a job reads are those of the plan."""

    def test_another_work_document_is_refused(self, table: Table, victim: Table) -> None:
        before = files(table)
        theirs = foreign_file(victim)

        def run(plan: JobPlan) -> JobResult:
            work = getattr(plan.task, "table").work.location  # noqa: B009
            document = gzip.decompress(table.io.read(work)).decode()
            mine = json.loads(document.split("\n")[0])["units"][0]["file"]["file-path"]
            put(table, work, gzip.compress(document.replace(mine, theirs).encode()))
            return run_local(plan, table.io)

        for operation, request in ((compact, CompactRequest(options={"rewrite-all": True})), DELETE):
            with pytest.raises(FormatError, match="work document of a job is not the one that was written"):
                operation(Work(table, run=run), request)  # type: ignore[operator]
        assert files(table) == before

    @pytest.mark.parametrize("kind", ["expire", "orphans"])
    def test_another_unit_of_an_inventory_is_refused(self, kind: str, table: Table) -> None:
        def run(plan: JobPlan) -> JobResult:
            assert isinstance(plan.task, InventoryTask)
            for unit in plan.task.units:
                document = json.loads(gzip.decompress(table.io.read(unit.location)))
                document |= {"manifests": []} if document["kind"] == "manifests" else {"root": "file:///"}
                put(table, unit.location, gzip.compress(json.dumps(document).encode()))
            return run_local(plan, table.io)

        table.overwrite(rows(20))
        before = files(table)
        inventory = FileInventory(Work(table, run=run), spark_from_files=0)
        operation, request = {
            "expire": (expire_snapshots, ExpireSnapshotsRequest(older_than_ms=LONG_AGO)),
            "orphans": (remove_orphan_files, RemoveOrphanFilesRequest(action="delete")),
        }[kind]
        with pytest.raises(FormatError, match="document of a unit of an inventory is not the one that was written"):
            operation(Work(table), request, inventory=inventory)  # type: ignore[operator]
        assert {path for path in files(table) if ".staging" not in path} >= {p for p in before if "/data/" in p}

    def test_another_result_of_a_unit_is_refused(self, table: Table) -> None:
        """Without the row of a file it would look like an orphan."""

        def run(plan: JobPlan) -> JobResult:
            result = run_local(plan, table.io)
            for unit in result.units:
                data = table.io.read(unit.file.location)
                put(table, unit.file.location, data[:-1] + bytes([data[-1] ^ 1]))
            return result

        before = files(table)
        inventory = FileInventory(Work(table, run=run), spark_from_files=0)
        with pytest.raises(FormatError, match="result of a unit of an inventory is not the one that was written"):
            remove_orphan_files(Work(table), RemoveOrphanFilesRequest(action="delete"), inventory=inventory)
        assert files(table) == before

    def test_files_of_others_among_the_results_are_not_counted(self, table: Table, monkeypatch: Any) -> None:
        errors: list[Any] = []
        monkeypatch.setattr(threading, "excepthook", errors.append)
        monkeypatch.setattr("airflow_iceberg.operations.file_inventory.EVERY_SECONDS", 0.01)

        def run(plan: JobPlan) -> JobResult:
            for name in ("evil", "x-1.arrow", "-1-aaaaaaaaaaaa.arrow", "999999-aaaaaaaaaaaa.arrow"):
                put(table, f"{plan.inventory_location}/{name}", b"")
            result = run_local(plan, table.io)
            time.sleep(0.2)
            return result

        inventory = FileInventory(Work(table, run=run), spark_from_files=0)
        request = RemoveOrphanFilesRequest(action="dry_run")
        assert remove_orphan_files(Work(table), request, inventory=inventory).outcome == "dry_run"
        assert not errors


class TestExchange:
    """Rows that tasks pass to each other are checked before Arrow, which trusts its input, reads them."""

    def test_changed_rows(self, warehouse: str) -> None:
        io, path = load_file_io(), f"{warehouse}/exchange/0.arrow"
        spill = exchange.Spill(io, path, cut=lambda rows: iter([(0, rows)]))
        spill.write(id_rows(range(1000)))
        slices = spill.close()
        assert sum(table.num_rows for table in exchange.read_slices(io, slices)) == 1000
        data = io.read(path)
        io.delete([path])
        io.create(path, data[:200] + bytes([data[200] ^ 1]) + data[201:])
        with pytest.raises(FormatError, match="file of an exchange is not the one that was written"):
            list(exchange.read_slices(io, slices))

    def test_changed_keys(self, warehouse: str) -> None:
        io = load_file_io()
        keys = compact_sorted.write_keys(io, f"{warehouse}/exchange/keys.arrow", id_rows(range(3)))
        assert compact_sorted.read_keys(io, keys).num_rows == 3
        other = compact_sorted.write_keys(io, f"{warehouse}/exchange/other.arrow", id_rows(range(4)))
        with pytest.raises(FormatError, match="file of an exchange is not the one that was written"):
            compact_sorted.read_keys(io, replace(keys, location=other.location))


# -- results -----------------------------------------------------------------------------------------------------------

DELETE = (delete, DeleteRequest(predicate="id = 1"))


def write_operations(source: Source) -> dict[str, tuple[Any, Any]]:
    return {
        "append": (append, AppendRequest(rows=source)),
        "overwrite": (overwrite, OverwriteRequest(rows=source, overwrite_filter="id < 200")),
        "delete": DELETE,
        "merge-on-read": (delete, DeleteRequest(predicate="id = 1", mode="merge-on-read")),
        "compact": (compact, CompactRequest(options={"rewrite-all": True})),
        "merge": (merge, MergeRequest(rows=source, on=["id"], upsert=True, dialect="duckdb")),
        "update": (update, UpdateRequest(set={"part": "'c'"}, where="id = 2", dialect="duckdb", mode="merge-on-read")),
    }


OPERATIONS = ("append", "overwrite", "delete", "merge-on-read", "compact", "merge", "update")

# From the location that the job wrote to a forged one; {theirs} is a file of another table, {prefix} the job's own.
PATHS: dict[str, Callable[[str, str, str], str]] = {
    "of another table": lambda mine, prefix, theirs: theirs,
    "with the prefix in a folder": lambda mine, prefix, theirs: f"{theirs.rpartition('/')[0]}/{prefix}/x.parquet",
    "of another table by its name": lambda mine, prefix, theirs: (
        f"{theirs.rpartition('/')[0]}/{mine.rpartition('/')[2]}"
    ),
    "with the prefix within the name": lambda mine, prefix, theirs: mine.replace(prefix, f"x-{prefix}"),
    "upwards": lambda mine, prefix, theirs: mine.replace("/data/", "/data/../data/"),
    "upwards, encoded": lambda mine, prefix, theirs: mine.replace("/data/", "/data/%2e%2e/data/"),
    "encoded slash": lambda mine, prefix, theirs: mine.replace("/data/", "/data%2F"),
    "same folder": lambda mine, prefix, theirs: mine.replace("/data/", "/data/./"),
    "empty folder": lambda mine, prefix, theirs: mine.replace("/data/", "/data//"),
    "backslash": lambda mine, prefix, theirs: mine.replace("/data/", "/data\\"),
    "of another partition": lambda mine, prefix, theirs: mine.replace("part=c", "part=d").replace("a%2Fb", "a%252Fb"),
    "below its folder": lambda mine, prefix, theirs: mine.replace(f"/{prefix}", f"/more/{prefix}"),
    "of the metadata": lambda mine, prefix, theirs: mine.replace("/data/", "/metadata/"),
    "another scheme": lambda mine, prefix, theirs: f"s3:{mine.partition(':')[2]}",
    "a query": lambda mine, prefix, theirs: f"{mine}?x=.parquet",
}


def forge_file(result: JobResult, change: Callable[[dict[str, Any]], dict[str, Any]]) -> JobResult:
    """Change the first file that a result names."""
    if result.groups:
        first = result.groups[0]
        forged = replace(first, data_files=(change(dict(first.data_files[0])), *first.data_files[1:]))
        return replace(result, groups=(forged, *result.groups[1:]))
    return replace(result, data_files=(change(dict(result.data_files[0])), *result.data_files[1:]))


def work_with(table: Table, forge: Forge) -> Work:
    return Work(table, run=lambda plan: forge(plan, run_local(plan, table.io), table))


class TestResult:
    """A result may name the files of its job, each in the place where the job writes it."""

    @pytest.mark.sample(5)
    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_another_file(self, name: str, path: str, table: Table, victim: Table, source: Source) -> None:
        theirs = foreign_file(victim)

        def forge(plan: JobPlan, result: JobResult, table: Table) -> JobResult:
            def change(file: dict[str, Any]) -> dict[str, Any]:
                forged = PATHS[path](file["file-path"], plan.file_prefix, theirs)
                assert forged != file["file-path"]
                return {**file, "file-path": forged}

            return forge_file(result, change)

        before, snapshot = files(table), table.current_snapshot()
        operation, request = write_operations(source)[name]
        with pytest.raises(FormatError, match=r"is not one of job|is not there"):
            operation(work_with(table, forge), request)
        assert table.refresh().current_snapshot() == snapshot
        after = files(table)
        assert {path: after.get(path) for path in before} == before

    @pytest.mark.sample(5)
    @pytest.mark.parametrize(
        "change",
        [
            {"file-size-in-bytes": 10},
            {"file-size-in-bytes": 10**12},
            {"file-size-in-bytes": -1},
            {"record-count": -4},
            {"file-format": "orc"},
            {"file-format": "puffin"},
            {"content": "equality-deletes"},
            {"spec-id": 3},
            {"partition": ["elsewhere"]},
            {"partition": []},
        ],
        ids=str,
    )
    @pytest.mark.parametrize("name", OPERATIONS)
    def test_another_description(self, name: str, change: dict[str, Any], table: Table, source: Source) -> None:
        snapshot = table.current_snapshot()
        operation, request = write_operations(source)[name]
        with pytest.raises(FormatError):
            operation(work_with(table, lambda plan, result, _: forge_file(result, lambda f: {**f, **change})), request)
        assert table.refresh().current_snapshot() == snapshot

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_a_file_that_is_gone_or_named_twice(self, name: str, table: Table, source: Source) -> None:
        def without(plan: JobPlan, result: JobResult, table: Table) -> JobResult:
            files = [*result.data_files, *(file for group in result.groups for file in group.data_files)]
            table.io.delete([files[0]["file-path"]])
            return result

        def twice(plan: JobPlan, result: JobResult, table: Table) -> JobResult:
            if result.groups:
                return replace(result, groups=(result.groups[0], *result.groups))
            return replace(result, data_files=(result.data_files[0], *result.data_files))

        operation, request = write_operations(source)[name]
        with pytest.raises(StalePlanError, match="are gone before their commit"):
            operation(work_with(table, without), request)
        with pytest.raises(FormatError, match="it is named twice"):
            operation(work_with(table, twice), request)

    @pytest.mark.parametrize("name", ["delete", "merge-on-read", "update"])
    def test_a_change_of_a_file_that_was_not_planned(
        self, name: str, table: Table, victim: Table, source: Source
    ) -> None:
        theirs = foreign_file(victim)

        def forge(plan: JobPlan, result: JobResult, table: Table) -> JobResult:
            return replace(result, changes=(*result.changes, replace(result.changes[0], file_path=theirs)))

        operation, request = write_operations(source)[name]
        with pytest.raises(FormatError, match=f"the job changed {theirs}, which is not a file of its"):
            operation(work_with(table, forge), request)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"inserted_count": 5}, "5 of its rows are new, and 0 have new values, of 4 in its files"),
            ({"inserted_count": 1 << 62}, "of its rows are new"),
            ({"conflict_filter": {"is": "maybe"}}, "maybe"),
            ({"conflict_filter": {"column": "nope", "is": "null"}}, "result.json"),
        ],
    )
    def test_other_counts_of_a_merge(self, change: dict[str, Any], message: str, table: Table, source: Source) -> None:
        operation, request = write_operations(source)["merge"]
        with pytest.raises(FormatError, match=message):
            operation(work_with(table, lambda plan, result, _: replace(result, **change)), request)

    @pytest.mark.parametrize("change", [{"updated_count": 5}, {"deleted_count": 3}, None])
    def test_other_changes_of_an_update(self, change: dict[str, Any] | None, table: Table, source: Source) -> None:
        def forge(plan: JobPlan, result: JobResult, table: Table) -> JobResult:
            first = result.changes[0]
            forged = (first, first) if change is None else (replace(first, **change),)
            return replace(result, changes=(*forged, *result.changes[1:]))

        operation, request = write_operations(source)["update"]
        with pytest.raises(FormatError, match=r"twice|rows of a file of 2"):
            operation(work_with(table, forge), request)

    @pytest.mark.parametrize("name", OPERATIONS)
    def test_an_honest_one_is_committed(self, name: str, table: Table, source: Source) -> None:
        operation, request = write_operations(source)[name]
        assert operation(work_with(table, lambda plan, result, _: result), request).outcome == "committed"

    @pytest.mark.parametrize("partitioned", ["true", "false"])
    def test_so_is_one_of_an_object_store_layout_elsewhere(
        self, partitioned: str, catalog: Any, warehouse: str, source: Source
    ) -> None:
        properties = {
            "write.object-storage.enabled": "true",
            "write.object-storage.partitioned-paths": partitioned,
            "write.data.path": f"{warehouse}/else where/%25/ä/",
        }
        table = Table.create(
            catalog,
            "db.hashed",
            schema={"id": "long", "part": "string"},
            partition_by=["part", "bucket(3, id)"],
            properties=properties,
        )
        append(work_with(table, lambda plan, result, _: result), AppendRequest(rows=source))
        assert ids(table) == [100, 101, 102, 103]


class TestSignature:
    """A result that another process reads is signed with what only the task and its job know."""

    @pytest.fixture
    def plan(self, table: Table, source: Source) -> JobPlan:
        return plan_append(table, source)

    def test_it_is_read_with_the_secret(self, plan: JobPlan, table: Table) -> None:
        written = write_result(plan, table.io, JobResult(status="succeeded", record_count=4), secret=SEED)
        assert staging.read_result(table.io, plan, key=public_key(SEED)) == written

    @pytest.mark.parametrize("forged", ["by another secret", "unsigned", "changed", "empty"])
    def test_another_one_is_refused(self, forged: str, plan: JobPlan, table: Table) -> None:
        result = JobResult(status="succeeded", record_count=4)
        if forged == "by another secret":
            write_result(plan, table.io, result, secret=new_seed())
        elif forged == "unsigned":
            write_result(plan, table.io, result)
        else:
            write_result(plan, table.io, result, secret=SEED)
            data = table.io.read(plan.result_location)
            put(table, plan.result_location, data.replace(b": 4", b": 5") if forged == "changed" else b"")
        with pytest.raises(FormatError, match="the job result is not the one that was written"):
            staging.read_result(table.io, plan, key=public_key(SEED))

    def test_a_large_one_is_read_in_parts_and_a_second_time(
        self, plan: JobPlan, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever made it larger does not fill the memory before the signature is checked."""
        monkeypatch.setattr(result_module, "_CHUNK_BYTES", 5000)
        monkeypatch.setattr(result_module, "_KEPT_BYTES", 12_000)
        for count in (1, 100, 500):
            written = JobResult(status="succeeded", warnings=("some words",) * count)
            table.io.delete([plan.result_location])
            write_result(plan, table.io, written, secret=SEED)
            assert read_result(plan, table.io, key=public_key(SEED)) == written
        put(table, plan.result_location, table.io.read(plan.result_location) + b" ")
        with pytest.raises(FormatError, match="is not the one that was written"):
            read_result(plan, table.io, key=public_key(SEED))

    def test_a_huge_one_is_not_held(self, plan: JobPlan, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(result_module, "_CHUNK_BYTES", 1 << 20)
        monkeypatch.setattr(result_module, "_KEPT_BYTES", 4 << 20)
        for first in (b"", b"0" * SIGNATURE_BYTES + b"\n"):

            class Huge(MemoryFileIO):
                def read(
                    self, location: str, *, offset: int = 0, length: int | None = None, first: Any = first
                ) -> bytes:
                    assert length is not None
                    left = min(length, (40 << 20) - offset)
                    return (first if offset == 0 else b"").ljust(left, b" ")[:left]

            tracemalloc.start()
            with pytest.raises(FormatError, match="is not the one that was written"):
                read_result(plan, Huge(), key=public_key(SEED))
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 16 << 20

    def test_one_that_is_exchanged_after_the_check(
        self, plan: JobPlan, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(result_module, "_KEPT_BYTES", 10)
        write_result(plan, table.io, JobResult(status="succeeded", record_count=4), secret=SEED)
        signed = table.io.read(plan.result_location)
        holds = SignatureCheck.holds

        def exchanged(check: SignatureCheck) -> bool:
            put(table, plan.result_location, signed.replace(b": 4", b": 5"))
            return holds(check)

        monkeypatch.setattr(SignatureCheck, "holds", exchanged)
        with pytest.raises(FormatError, match="is not the one that was written"):
            read_result(plan, table.io, key=public_key(SEED))

    def test_one_of_another_job_is_refused(self, plan: JobPlan, table: Table, source: Source) -> None:
        other = plan_append(table, source)
        write_result(other, table.io, JobResult(status="succeeded"), secret=SEED)
        put(table, plan.result_location, table.io.read(other.result_location))
        with pytest.raises(FormatError, match="is not the one that was written"):
            read_result(plan, table.io, key=public_key(SEED))

    def test_one_that_was_there_before_is_not_taken_for_the_own(self, plan: JobPlan, table: Table) -> None:
        put(table, plan.result_location, JobResult(status="succeeded", record_count=999).to_json())
        own = JobResult(status="succeeded", record_count=4)
        with pytest.raises(FormatError, match="is not the one that was written"):
            write_result(plan, table.io, own, secret=SEED)
        assert write_result(plan, table.io, own) == own  # a job of this process does not need the document

    def test_a_seed_signs_one_document_also_if_the_answer_of_the_store_is_lost(
        self, plan: JobPlan, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        signed, create = [], type(table.io).create

        def signing(data: bytes, seed: str) -> bytes:
            signed.append(data)
            return sign(data, seed)

        def lose(io: Any, location: str, data: bytes) -> None:
            create(io, location, data)
            raise StorageError("the answer is lost")

        def start(_: Any) -> Any:
            raise InvalidInputError("no engine")

        monkeypatch.setattr(result_module, "sign", signing)
        monkeypatch.setattr(type(table.io), "create", lose)
        with pytest.raises(StorageError, match="the answer is lost"):
            run_job(plan, table.io, start, engine="none", secret=SEED)
        assert len(signed) == 1
        with pytest.raises(InvalidInputError, match="no engine"):
            read_result(plan, table.io, key=public_key(SEED)).raise_for_error()

    def test_without_one_the_job_died(self, plan: JobPlan, table: Table) -> None:
        with pytest.raises(StalePlanError, match="ended without a result"):
            staging.read_result(table.io, plan, key=public_key(SEED))


# -- notes of expiries -------------------------------------------------------------------------------------------------


class TestNote:
    """A note names no file, and only what the metadata log proves."""

    def note(self, table: Table, document: Any, *, token: str = KEY.file_token) -> str:
        location = f"{table.location}/.staging/expire-{token}/{uuid.uuid4().hex[:12]}/expired.json"
        data = document if isinstance(document, bytes) else json.dumps(document).encode()
        table.io.create(location, data)
        return location

    def expire(self, table: Table) -> Any:
        return expire_snapshots(Work(table, operation_key=KEY), ExpireSnapshotsRequest())

    def forged(self, table: Table, victim: Table) -> list[dict[str, Any]]:
        theirs = victim.current_snapshot()
        assert theirs is not None
        statistics = [foreign_file(victim), victim.metadata_location]
        head = {"table-uuid": table.metadata.table_uuid}
        named = [{"snapshot-id": 7, "manifest-list": theirs.manifest_list, "manifests": None}]
        version_2 = {**head, "version": 2, "last-updated-ms": 1, "snapshot-ids": [theirs.snapshot_id]}
        (logged_ms, _), *_ = table.metadata.metadata_log
        return [
            {**head, "version": 1, "snapshots": named, "statistics": statistics},
            {"version": 1, "snapshots": named, "statistics": statistics},
            {**version_2, "snapshots": named, "statistics": statistics},
            {**version_2, "last-updated-ms": logged_ms},
            {**version_2, "last-updated-ms": victim.metadata.last_updated_ms},
            {**version_2, "last-updated-ms": -1, "snapshot-ids": [s.snapshot_id for s in table.snapshots()]},
        ]

    def test_files_of_another_table_are_not_deleted(self, table: Table, victim: Table) -> None:
        before = files(table)
        for document in self.forged(table, victim):
            location = self.note(table, document)
            assert self.expire(table).outcome == "nothing"
            table.io.delete([location])
        assert files(table) == before

    def test_nor_live_files_of_the_own(self, table: Table) -> None:
        before = files(table)
        logged_ms = table.metadata.metadata_log[-1][0]
        live = [snapshot.snapshot_id for snapshot in table.snapshots()]
        location = self.note(
            table,
            {
                "version": 2,
                "table-uuid": table.metadata.table_uuid,
                "last-updated-ms": logged_ms,
                "snapshot-ids": live,
            },
        )
        self.expire(table)
        table.io.delete([location])
        assert files(table) == before

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[]",
            b"[" * 500_000,
            b'{"a":' * 100_000,
            b'{"version": 99}',
            b'{"version": 1e400}',
            b'{"version": 2}',
            b'{"version": 2, "table-uuid": "\\ud800", "last-updated-ms": 1, "snapshot-ids": [1]}',
            b'{"version": 2, "table-uuid": 3}',
        ],
        ids=lambda data: data[:12].decode(),
    )
    def test_one_that_is_none_stops_no_expiry(self, data: bytes, table: Table, caplog: Any) -> None:
        self.note(table, data)
        assert self.expire(table).outcome == "nothing"

    @pytest.mark.parametrize("content", [None, b"", b"Obj\x01nonsense"], ids=["elsewhere", "empty", "damaged"])
    @pytest.mark.parametrize("is_old", [False, True], ids=["of a try", "of another task"])
    def test_one_that_leads_to_another_list_stops_no_expiry(
        self, content: bytes | None, is_old: bool, table: Table, caplog: Any, monkeypatch: Any
    ) -> None:
        """Whoever writes to the folder has changed the older metadata file as well."""
        logged_ms, older = table.metadata.metadata_log[-1]
        manifest_list = f"{table.location}/metadata/forged.avro" if content is not None else "s3://elsewhere/list.avro"
        if content is not None:
            table.io.create(manifest_list, content)
        document = json.loads(table.io.read(older))
        document["snapshots"].append({**document["snapshots"][-1], "snapshot-id": 77, "manifest-list": manifest_list})
        table.io.delete([older])
        table.io.create(older, json.dumps(document).encode())
        head = {"version": 2, "table-uuid": table.metadata.table_uuid}
        note = {**head, "last-updated-ms": logged_ms, "snapshot-ids": [77]}
        self.note(table, note, token="other" if is_old else KEY.file_token)
        if is_old:
            monkeypatch.setattr("airflow_iceberg.operations.expire_snapshots.DEFAULT_AGE_MS", -60_000)
        table.append(id_rows([77]))
        result = expire_snapshots(Work(table, operation_key=KEY), ExpireSnapshotsRequest(older_than_ms=2**60))
        assert result.outcome == "committed"
        assert result.expired_snapshots > 0
        assert "cannot be used" in caplog.text
        assert self.expire(table).outcome in ("nothing", "finished")

    def test_a_huge_one_is_not_read_to_its_end(self, table: Table, monkeypatch: Any, caplog: Any) -> None:
        monkeypatch.setattr("airflow_iceberg.operations.removal.expiry_notes.MOST_BYTES", 1000)
        self.note(table, b" " * 1001)
        assert self.expire(table).outcome == "nothing"
        assert "note of an expiry has more than 1000 bytes" in caplog.text

    def test_what_the_log_does_not_prove_is_left_to_the_removal_of_orphan_files(
        self, table: Table, monkeypatch: Any, caplog: Any
    ) -> None:
        """A killed expiry, and so many commits after it that the log has forgotten what it removed."""
        with monkeypatch.context() as patch:
            patch.setattr("airflow_iceberg.operations.expire_snapshots._delete_files", _die)
            with pytest.raises(KeyboardInterrupt):
                expire_snapshots(Work(table, operation_key=KEY), ExpireSnapshotsRequest(older_than_ms=LONG_AGO))
        for value in "123":
            table.refresh().alter([{"set_properties": {"write.metadata.previous-versions-max": "1", "a": value}}])
        before = files(table)
        assert expire_snapshots(Work(table, operation_key=KEY), ExpireSnapshotsRequest()).outcome == "nothing"
        assert files(table) == before
        assert "a version of the table that its metadata log does not name" in caplog.text

    def test_an_expiry_that_lives_needs_no_log(self, table: Table, monkeypatch: Any) -> None:
        monkeypatch.setattr("airflow_iceberg.operations.removal.expiry_notes.Notes._proved", _die)
        table.overwrite(rows(50), overwrite_filter="true")
        result = expire_snapshots(Work(table, operation_key=KEY), ExpireSnapshotsRequest(older_than_ms=LONG_AGO))
        assert result.deleted_data_files == 4


def _die(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


class TestPlace:
    """What a DAG's parameter names as the place of orphan files is below the table."""

    @pytest.mark.parametrize(
        "path", ["../theirs", "data/../../theirs", "%2e%2e/theirs", "..%2ftheirs", "../theirs/data/"]
    )
    def test_another_tables_folder_is_refused(self, path: str, table: Table, victim: Table) -> None:
        request = RemoveOrphanFilesRequest(
            action="delete", location=f"{table.location}/{path}", older_than_ms=LONG_AGO, allow_recent=True
        )
        with pytest.raises(InvalidInputError, match="is not below the table's"):
            remove_orphan_files(Work(table), request)


# -- quarantine --------------------------------------------------------------------------------------------------------

NAME = "20260101T000000.000-abc"


class TestQuarantine:
    """A restored file goes to the place that follows from its path in the quarantine."""

    def quarantine(self, table: Table, *lines: Any, name: str = NAME) -> str:
        home = f"{table.location}/.quarantine/{name}"
        head = {"version": 1, "moved-at-ms": 1, "table-uuid": table.metadata.table_uuid}
        put(table, f"{home}/list.jsonl", "\n".join(map(json.dumps, [head, *lines])).encode())
        return home

    @pytest.mark.parametrize(
        ("location", "quarantined"),
        [
            ("{lake}/dags/evil.py", "{home}/files/data/evil.py"),
            ("{root}/../../dags/evil.py", "{home}/files/../../dags/evil.py"),
            ("{root}/%2e%2e/dags/evil.py", "{home}/files/%2e%2e/dags/evil.py"),
            ("{root}/..%2fdags/evil.py", "{home}/files/..%2fdags/evil.py"),
            ("{root}/%252e%252e/evil.py", "{home}/files/%252e%252e/evil.py"),
            ("{root}/..\\dags\\evil.py", "{home}/files/..\\dags\\evil.py"),
            ("{root}//evil.py", "{home}/files//evil.py"),
            ("{root}/data/evil.py", "{home}/files/other/evil.py"),
            ("{root}/data/evil.py", "{theirs}"),
            ("{root}/data/evil.py", "{home}/evil.py"),
            ("{theirs}", "{home}/files/evil.py"),
        ],
    )
    def test_another_place_is_refused(self, location: str, quarantined: str, table: Table, victim: Table) -> None:
        home = self.quarantine(table)
        words = {
            "home": home,
            "root": table.location,
            "lake": table.location.rpartition("/")[0],
            "theirs": foreign_file(victim),
        }
        table.io.create(f"{home}/files/data/evil.py", b"evil")
        line = {"location": location.format(**words), "quarantined": quarantined.format(**words), "size-bytes": 4}
        self.quarantine(table, line)
        before = files(table)
        with pytest.raises(FormatError, match="the list was changed, or the table was moved; nothing was restored"):
            restore_quarantine(Work(table), NAME)
        assert files(table) == before
        assert not table.io.exists(f"{words['lake']}/dags/evil.py")

    def test_an_honest_one_is_restored(self, table: Table) -> None:
        place = f"{table.location}/data/part=a%2Fb/ä b.parquet"
        home = self.quarantine(table)
        line = {"location": place, "quarantined": f"{home}/files/data/part=a%2Fb/ä b.parquet", "size-bytes": 4}
        table.io.create(line["quarantined"], b"file")
        self.quarantine(table, line)
        assert restore_quarantine(Work(table), NAME).restored_files == 1
        assert table.io.read(place) == b"file"

    @pytest.mark.parametrize("data", [b"", b"[]", b"[" * 500_000, b'{"moved-at-ms": "x"}', b"{}"])
    def test_a_damaged_list_is_not_touched_and_stops_nobody(self, data: bytes, table: Table) -> None:
        location = f"{table.location}/.quarantine/{NAME}/list.jsonl"
        table.io.create(location, data)
        request = RemoveOrphanFilesRequest(purge_older_than_ms=LONG_AGO)
        assert remove_orphan_files(Work(table, operation_key=KEY), request).purged_quarantines == ()
        assert table.io.read(location) == data
        if data[:1] != b"{":
            with pytest.raises(FormatError, match="list of a quarantine is"):
                restore_quarantine(Work(table), NAME)

    def test_names_of_quarantines_are_names(self, table: Table) -> None:
        for name in ("..", ".hidden", "a/b"):
            put(table, f"{table.location}/.quarantine/{name}/list.jsonl", b"{}")
        assert not {"..", ".hidden", "a/b"} & set(quarantines(table))
        for name in ("..", ".", "", "a/b", "../x"):
            with pytest.raises(IcebergError, match="is not the name of a quarantine"):
                restore_quarantine(Work(table), name)
