"""Not one call outside of the gate: whatever a table's metadata, the documents in its folder and a server say.

The FileIO under the gate is recorded. An attacker (C) commits to `db.t`, and a server (S) answers; other tables, other
buckets and local files must stay as they are, and nothing of them may be read.
"""

import io
import json
import os
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.load import load_catalog
from airflow_iceberg.catalogs.rest.catalog import RestCatalog
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.format.metadata.updates import Change, SetLocation, SetProperties
from airflow_iceberg.jobs.protocol.plan import InventoryTask, JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.jobs.run_task import open_context
from airflow_iceberg.operations.append import AppendRequest, append
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.delete import DeleteRequest, delete
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.quarantine import quarantines, restore_quarantine
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.gate import GatedFileIO, place_of
from airflow_iceberg.table import Table
from tests.support.append_steps import plan_append
from tests.support.builders import id_rows, job_work, new_table
from tests.support.faults import AgedFileIO
from tests.support.http_server import HttpServer, Reply, Request, document
from tests.support.memory import MemoryCatalog, MemoryFileIO
from tests.support.recording import RecordingFileIO, commit_foreign_file, forged
from tests.support.sampling import examples

T, VICTIM = "memory://warehouse/db/t", "memory://warehouse/db/victim"
SECRET = "memory://secret/a"
SCHEMA = {"id": "long"}
# A file that an append reads: the DAG names it, no metadata does.
LANDED = "memory://warehouse/landing/a.parquet"


@cache
def _parquet() -> bytes:
    with io.BytesIO() as file:
        pq.write_table(id_rows([5, 6]), file)
        return file.getvalue()


class World:
    """A catalog in memory with a victim's table, a file in another bucket, and the attacker's table."""

    def __init__(self) -> None:
        self.inner = MemoryFileIO()
        # Each file looks old: documents are read as those of killed jobs are.
        self.io = RecordingFileIO(AgedFileIO(self.inner))
        self.catalog = MemoryCatalog(io=self.io)
        self.inner.create(SECRET, b"secret")
        self.inner.create(LANDED, _parquet())
        for name in ("db.victim", "db.t"):
            table = Table.create(self.catalog, name, schema=SCHEMA)
            table.append(id_rows([1, 2]))
            table.append(id_rows([3]))
        self.others = self.foreign()
        self.io.calls.clear()

    def foreign(self) -> dict[str, Any]:
        return {path: file for path, file in self.inner.files.items() if not path.startswith("/warehouse/db/t/")}

    def victim_files(self) -> list[str]:
        return [location for location in self.inner.locations(VICTIM) if location.endswith(".parquet")]

    def forge(self, change: Any) -> None:
        """Let the table point to forged metadata."""
        table = TableId.of("db.t")
        state = self.catalog.load(table)
        location = f"{T}/metadata/00099-{len(self.inner.files)}.metadata.json"
        self.inner.create(location, forged(state.metadata, change))
        self.catalog._pointers[table] = location

    def leave_note(self, note: dict[str, Any]) -> None:
        """Leave the note of an expiry, with the truth in the place of None."""
        metadata = self.catalog.load("db.t").metadata
        truth = {
            "table-uuid": metadata.table_uuid,
            "last-updated-ms": metadata.metadata_log[-1][0],
            "snapshot-ids": [snapshot.snapshot_id for snapshot in metadata.snapshots],
        }
        told = {name: truth[name] if value is None else value for name, value in note.items()}
        self.inner.create(f"{T}/.staging/expire-x/y/expired.json", json.dumps(told).encode())

    def check(self) -> None:
        """Nothing but the gate was asked for, and no file of others was changed or removed."""
        created = set()
        for verb, location in self.io.calls:
            place = place_of(location)
            assert (place.store, place.authority) == ("memory", "warehouse"), f"{verb} {location}"
            if verb == "delete":
                # A try deletes what it has just created itself, wherever that is.
                assert place.path.startswith("/db/t/") or place in created, f"{verb} {location}"
            elif verb in ("create", "open"):
                created.add(place)
        now = self.foreign()
        assert {path: now.get(path) for path in self.others} == self.others


def _set(*keys: Any) -> Any:
    """Return a change of metadata that sets the value at a path of keys to a location."""

    def change(location: str) -> Any:
        def apply(document: dict[str, Any]) -> None:
            inner: Any = document
            for key in keys[:-1]:
                inner = inner[key]
            inner[keys[-1]] = location

        return apply

    return change


def _statistics(location: str) -> Any:
    def apply(document: dict[str, Any]) -> None:
        snapshot = document["snapshots"][0]["snapshot-id"]
        entry = {"snapshot-id": snapshot, "statistics-path": location, "file-size-in-bytes": 1}
        document["statistics"] = [{**entry, "file-footer-size-in-bytes": 1, "blob-metadata": []}]
        document["partition-statistics"] = [entry]

    return apply


def _log(location: str) -> Any:
    def apply(document: dict[str, Any]) -> None:
        document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": location}, *document["metadata-log"]]
        document["properties"] |= {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        }

    return apply


FORGERIES = {
    "location": _set("location"),
    "data path": _set("properties", "write.data.path"),
    "object storage path": _set("properties", "write.object-storage.path"),
    "folder storage path": _set("properties", "write.folder-storage.path"),
    "metadata path": _set("properties", "write.metadata.path"),
    "first manifest list": _set("snapshots", 0, "manifest-list"),
    "last manifest list": _set("snapshots", -1, "manifest-list"),
    "statistics": _statistics,
    "metadata log": _log,
}
PLACES = (
    SECRET,
    "memory://secret",
    "file:///etc/passwd",
    "/etc",
    "s3://other/a",
    f"{T}/../victim",
    f"{T}/%2e%2e/victim",
    VICTIM,
    f"{VICTIM}/data",
    "memory://warehouse/db",
    "memory://warehouse",
    "memory:///",
    "hdfs://evil:8020/a",
    "not a location",
    f"{T}/elsewhere",
)


def _remove_orphans(table: Table) -> None:
    request = RemoveOrphanFilesRequest(action="delete", older_than_ms=2**62, allow_recent=True)
    remove_orphan_files(Work(table), request)


def _quarantine(table: Table) -> None:
    remove_orphan_files(Work(table), RemoveOrphanFilesRequest(older_than_ms=2**62, allow_recent=True))
    for name in quarantines(table):
        restore_quarantine(Work(table), name)


OPERATIONS = {
    "scan": lambda table: table.scan().to_arrow(),
    "inspect": lambda table: (table.inspect.files(), table.inspect.entries(), table.inspect.manifests()),
    "append": lambda table: table.append(id_rows([7])),
    "delete": lambda table: table.delete("id = 1"),
    "overwrite": lambda table: table.overwrite(id_rows([8])),
    "update": lambda table: table.update({"id": "id + 20"}, where="id = 2"),
    "merge": lambda table: table.upsert(id_rows([2, 9]), ["id"]),
    "compact": lambda table: compact(job_work(table), CompactRequest(options={"rewrite-all": "true"})),
    "expire": lambda table: expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62)),
    "dry expire": lambda table: expire_snapshots(
        Work(table), ExpireSnapshotsRequest(older_than_ms=2**62, dry_run=True)
    ),
    "orphans": _remove_orphans,
    "quarantine": _quarantine,
    "alter": lambda table: table.alter([{"set_properties": {"a": "b"}}]),
    "purge": lambda table: table.catalog.drop_table(table.identifier, purge=True),
}


def run(world: World, operation: str) -> None:
    with suppress(IcebergError):
        OPERATIONS[operation](Table.load(world.catalog, "db.t"))


class TestForgedMetadata:
    """C's metadata names other places; no operation goes there."""

    @pytest.mark.costly
    @pytest.mark.sample(6)
    @pytest.mark.parametrize("what", FORGERIES)
    @pytest.mark.parametrize("place", PLACES)
    def test_every_operation(self, what, place):
        world = World()
        world.forge(FORGERIES[what](place))
        for operation in OPERATIONS:
            run(world, operation)
            world.check()

    @pytest.mark.costly
    @pytest.mark.parametrize("path", [SECRET, "/etc/passwd", f"{T}/../victim/data/a.parquet", "victim"])
    def test_files_that_manifests_name(self, path):
        world = World()
        path = world.victim_files()[0] if path == "victim" else path
        commit_foreign_file(world.catalog, "db.t", path)
        for operation in (
            "scan",
            "inspect",
            "compact",
            "delete",
            "append",
            "update",
            "merge",
            "overwrite",
            "expire",
            "orphans",
            "purge",
        ):
            run(world, operation)
            world.check()

    @pytest.mark.costly
    def test_an_honest_table_is_untouched_by_all_this(self):
        world = World()
        for operation in OPERATIONS:
            OPERATIONS[operation](Table.load(world.catalog, "db.t"))
            world.check()
        assert not world.catalog.table_exists("db.t")
        assert not world.inner.locations(f"{T}/data")

    def test_the_error_of_a_moved_table_names_the_setting(self):
        world = World()
        world.forge(FORGERIES["location"](SECRET))
        with pytest.raises(
            InvalidInputError,
            match=r"table db\.t of catalog memory is at memory://secret/a, and the connection trusts memory://warehouse;"
            r" if the table belongs there, add its location or a prefix of it to 'allowed-locations' of the connection",
        ):
            _ = Table.load(world.catalog, "db.t").io
        world.catalog.properties = {**world.catalog.properties, "allowed-locations": "memory://secret/a"}
        assert Table.load(world.catalog, "db.t").io.exists(SECRET)

    def test_a_table_is_not_moved_out_by_a_commit(self):
        world = World()
        state = world.catalog.load("db.t")
        for update in (SetLocation(location=SECRET), SetProperties(updates={"write.metadata.path": "/tmp/x"})):
            with pytest.raises(InvalidInputError, match="'allowed-locations'"):
                world.catalog.commit(state, Change(updates=(update,), requirements=()))
        assert world.catalog.load("db.t") == state


class TestWhatAnExpiryKeeps:
    """Files outside of the table's own locations may be another table's: they are kept and counted."""

    def expire(self, world: World) -> Any:
        return expire_snapshots(Work(Table.load(world.catalog, "db.t")), ExpireSnapshotsRequest(older_than_ms=2**62))

    def test_files_of_a_migrated_table(self):
        world = World()
        old = "memory://warehouse/hive/t/a.parquet"
        source = next(path for path in world.inner.locations(T) if path.endswith(".parquet"))
        world.inner.create(old, world.inner.read(source))
        commit_foreign_file(world.catalog, "db.t", old)
        assert len(Table.load(world.catalog, "db.t").scan().to_arrow()) > 3
        run(world, "overwrite")
        result = self.expire(world)
        assert (result.kept_files, result.deleted_data_files) == (1, 2)
        assert "1 files are kept: they are outside of the table's own locations" in list(result.lines())
        assert world.inner.exists(old)

    @pytest.mark.parametrize("path", [f"{VICTIM}/data", VICTIM, "memory://warehouse/db"])
    def test_files_of_another_table_whose_folder_the_metadata_calls_its_own(self, path, caplog):
        world = World()
        victims = world.victim_files()[0]
        commit_foreign_file(world.catalog, "db.t", victims)
        world.forge(FORGERIES["data path"](path))
        Table.load(world.catalog, "db.t").delete("id > 0")
        result = self.expire(world)
        assert result.kept_files >= 1
        assert world.inner.exists(victims)
        assert "nothing is deleted below" in caplog.text
        assert "is of a table with uuid" in caplog.text

    def test_a_data_path_of_its_own_is_cleaned(self):
        world = World()
        table = Table.load(world.catalog, "db.t")
        table.alter([{"set_properties": {"write.data.path": "memory://warehouse/fast/t"}}])
        table.overwrite(id_rows([1]))
        table.overwrite(id_rows([2]))
        result = self.expire(world)
        assert (result.kept_files, result.deleted_data_files) == (0, 3)
        assert len(world.inner.locations("memory://warehouse/fast/t")) == 1

    def test_a_renamed_table_is_cleaned(self):
        world = World()
        world.catalog.rename_table("db.t", "db.renamed")
        table = Table.load(world.catalog, "db.renamed")
        table.overwrite(id_rows([1]))
        result = expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))
        assert (result.kept_files, result.deleted_data_files) == (0, 2)


class TestLocalTables:
    """A local table stays within its warehouse, also behind links that were planted below its location."""

    @pytest.fixture(params=["hadoop", "sql"])
    def catalog(self, request, tmp_path):
        (tmp_path / "dags").mkdir()
        (tmp_path / "dags" / "a.py").write_text("untouched")
        options = {"uri": f"sqlite:///{tmp_path}/c.db"} if request.param == "sql" else {}
        catalog = load_catalog("test", type=request.param, warehouse=f"{tmp_path}/wh", **options)
        catalog.create_namespace("db")
        for name in ("db.t", "db.victim"):
            table = Table.create(catalog, name, schema=SCHEMA)
            table.append(id_rows([1]))
            table.append(id_rows([2]))
        catalog.io = RecordingFileIO(load_file_io())
        return catalog

    def check(self, catalog: Any, tmp_path: Any) -> None:
        outside = [
            call
            for call in catalog.io.calls
            if not os.path.realpath(place_of(call[1]).path).startswith(f"{tmp_path}/wh")
        ]
        assert outside == []
        assert [path.name for path in (tmp_path / "dags").iterdir()] == ["a.py"]
        assert (tmp_path / "dags" / "a.py").read_text() == "untouched"
        assert len(Table.load(catalog, "db.victim").scan().to_arrow()) == 2

    def forge(self, catalog: Any, change: Any) -> None:
        state = catalog.load("db.t")
        if catalog.properties["type"] == "hadoop":
            folder, _, name = state.metadata_location.rpartition("/")
            new = f"{folder}/v{int(name[1:].partition('.')[0]) + 1}.metadata.json"
        else:
            new = f"{state.metadata.location}/metadata/00099-forged.metadata.json"
        load_file_io().create(new, forged(state.metadata, change))
        if catalog.properties["type"] == "sql":
            catalog.drop_table("db.t")
            catalog.swap_pointer(TableId.of("db.t"), expected=None, new=new)

    @pytest.mark.costly
    @pytest.mark.sample(6)
    @pytest.mark.parametrize("what", FORGERIES)
    @pytest.mark.parametrize(
        "place", ["{}/dags", "file://{}/dags/a.py", "{}/wh/../dags", "/", "{}/wh/db/victim", "{}/wh"]
    )
    def test_every_operation(self, catalog, tmp_path, what, place):
        catalog.properties = {"type": "hadoop", **catalog.properties}
        self.forge(catalog, FORGERIES[what](place.format(tmp_path)))
        for operation in ("scan", "append", "expire", "orphans", "alter", "purge"):
            with suppress(IcebergError):
                OPERATIONS[operation](Table.load(catalog, "db.t"))
            self.check(catalog, tmp_path)

    @pytest.mark.costly
    @pytest.mark.parametrize("folder", ["data", "metadata", ".staging"])
    def test_a_folder_that_became_a_link(self, catalog, tmp_path, folder):
        home = tmp_path / "wh" / "db" / "t" / folder
        if home.exists():
            home.rename(tmp_path / "wh" / "db" / "t" / "old")
        home.symlink_to(tmp_path / "dags")
        for operation in ("scan", "append", "expire", "orphans", "compact", "purge"):
            with suppress(IcebergError):
                OPERATIONS[operation](Table.load(catalog, "db.t"))
        assert [path.name for path in (tmp_path / "dags").iterdir()] == ["a.py"]
        assert (tmp_path / "dags" / "a.py").read_text() == "untouched"

    @pytest.mark.costly
    def test_metadata_without_a_catalog(self, catalog, tmp_path):
        location = Table.load(catalog, "db.t").metadata_location
        assert len(Table.from_metadata(location).scan().to_arrow()) == 2
        state = catalog.load("db.t")
        forgery = FORGERIES["last manifest list"](f"{tmp_path}/dags/a.py")
        (tmp_path / "copy" / "metadata").mkdir(parents=True)
        path = tmp_path / "copy" / "metadata" / "v9.metadata.json"
        path.write_bytes(forged(state.metadata, forgery))
        with pytest.raises(InvalidInputError, match=r"cannot read .*/dags/a\.py: it is outside"):
            Table.from_metadata(str(path)).scan().to_arrow()
        with pytest.raises(IcebergError, match="Avro"):
            Table.from_metadata(str(path), {"allowed-locations": f"{tmp_path}/dags"}).scan().to_arrow()


class TestJobs:
    """A job on another machine gets the gate with its plan."""

    def test_a_plan_brings_the_gate(self, tmp_path):
        work = job_work(new_table(tmp_path))
        plan = work.write_plan(InventoryTask(units=()), work.new_staging())
        there = JobPlan.from_json(load_file_io().read(plan.location))
        io = open_context(there, load_file_io()).io
        assert isinstance(io, GatedFileIO)
        assert io.gate == work.table.io.gate
        with pytest.raises(InvalidInputError, match="cannot read /etc/passwd: it is outside"):
            io.read("/etc/passwd")


class TestTheSetting:
    """`allowed-locations` of a catalog without Airflow."""

    @pytest.mark.costly
    def test_a_list_or_a_text(self, tmp_path):
        for listed in ([str(tmp_path / "a")], f"{tmp_path}/a", json.dumps([f"{tmp_path}/a"])):
            options = {"allowed-locations": listed, "uri": f"sqlite:///{tmp_path}/c.db"}
            catalog = load_catalog("test", type="sql", warehouse=f"{tmp_path}/wh", **options)
            catalog.create_namespace("db", if_not_exists=True)
            with pytest.raises(InvalidInputError, match="'allowed-locations'"):
                Table.create(catalog, "db.t", schema=SCHEMA, location=f"{tmp_path}/b/t")
            Table.create(catalog, "db.t", schema=SCHEMA, location=f"{tmp_path}/a/t").append(id_rows([1]))
            catalog.drop_table("db.t", purge=True)
            assert not [path for path in (tmp_path / "a").rglob("*") if path.is_file()]


class TestAServersAnswers:
    """S names locations; what the connection does not trust is refused, and local files always."""

    def gate(self, location: str, metadata_location: str = "", **properties: str) -> Any:
        catalog = RestCatalog("prod", {"uri": "https://catalog.example.com", **properties})
        metadata = World().catalog.load("db.t").metadata
        return catalog.gate(TableId.of("db.t"), replace(metadata, location=location), metadata_location)

    def test_without_a_location_in_the_connection_a_remote_table_has_its_own_bucket(self):
        gate = self.gate("s3://lake/db/t", "s3://lake/db/t/metadata/a.metadata.json", warehouse="prod")
        io = gate.around(MemoryFileIO())
        io.check("s3://lake/x", "read")
        for other in ("s3://other/x", "/etc/passwd"):
            with pytest.raises(InvalidInputError):
                io.check(other, "read")

    @pytest.mark.parametrize("location", ["/etc", "file:///home/airflow/dags", "file:/", "s3://../x", ""])
    @pytest.mark.parametrize("warehouse", ["prod", "s3://lake/wh"])
    def test_a_local_table_is_refused(self, location, warehouse):
        with pytest.raises(InvalidInputError):
            self.gate(location, "s3://lake/db/t/metadata/a.metadata.json", warehouse=warehouse)

    def test_a_location_in_the_connection_binds_the_server(self):
        with pytest.raises(InvalidInputError, match="the connection trusts s3://lake"):
            self.gate("s3://other/db/t", warehouse="s3://lake/wh")
        with pytest.raises(InvalidInputError, match="the connection trusts s3://lake/sales"):
            self.gate("s3://lake/hr/t", warehouse="prod", **{"allowed-locations": "s3://lake/sales"})

    def test_a_local_server_needs_its_folder_in_the_connection(self, tmp_path):
        found = self.gate(f"{tmp_path}/db/t", warehouse=str(tmp_path)).around(MemoryFileIO())
        found.check(f"{tmp_path}/db/t/a", "read")


# -- generated ---------------------------------------------------------------------------------------------------------

_parts = st.sampled_from(
    [
        "warehouse",
        "db",
        "t",
        "victim",
        "data",
        "metadata",
        "secret",
        "a",
        "..",
        ".",
        "",
        "%2e%2e",
        "..%2f",
        "\\..",
        "x=1",
    ]
)
_paths = st.lists(_parts, min_size=0, max_size=6).map("/".join)
_schemes = st.sampled_from(
    ["memory://", "memory:///", "memory:/", "MEMORY://", "file://", "file:", "/", "", "s3://", "hdfs://warehouse@evil/"]
)
locations = st.one_of(st.sampled_from(PLACES), st.builds(lambda scheme, path: scheme + path, _schemes, _paths))
forgeries = st.lists(st.tuples(st.sampled_from(sorted(FORGERIES)), locations), max_size=3)
# What is None is the truth of the table, which an attacker can read.
notes = st.fixed_dictionaries(
    {
        "version": st.sampled_from([1, 2]),
        "table-uuid": st.none(),
        "last-updated-ms": st.none() | st.integers(0, 2**62),
        "snapshot-ids": st.none() | st.lists(st.integers(1, 9), max_size=2),
    },
    optional={"statistics": st.lists(locations, max_size=2), "manifests": st.lists(locations, max_size=2)},
)
lists = st.lists(
    st.fixed_dictionaries({"location": locations, "quarantined": locations, "size-bytes": st.integers(0, 9)}),
    max_size=3,
)


class TestWhateverIsForged:
    """Generated metadata, manifests and documents in the table's folder."""

    @pytest.mark.costly
    @examples(300, suppress_health_check=[HealthCheck.too_slow])
    @given(
        forgeries=forgeries,
        files=st.lists(locations, max_size=2),
        note=notes,
        moved=lists,
        operations=st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=4),
    )
    def test_no_call_is_outside(self, forgeries, files, note, moved, operations):
        world = World()
        for path in files:
            with suppress(IcebergError):
                commit_foreign_file(world.catalog, "db.t", path)
        world.leave_note(note)
        head = {"version": 1, "moved-at-ms": 1}
        home = f"{T}/.quarantine/20200101T000000.000-x"
        world.inner.create(f"{home}/list.jsonl", "\n".join(map(json.dumps, [head, *moved])).encode())
        for what, place in forgeries:
            with suppress(IcebergError):
                world.forge(FORGERIES[what](place))
        for operation in operations:
            run(world, operation)
            world.check()

    @pytest.mark.costly
    @examples(200, suppress_health_check=[HealthCheck.too_slow])
    @given(
        named=st.lists(locations, min_size=1, max_size=3),
        verb=st.sampled_from(["append", "compact", "copy-on-write", "merge-on-read"]),
        keeps_name=st.booleans(),
    )
    def test_no_result_of_a_job_leads_outside(self, named, verb, keeps_name):
        """Whatever files a result names, alone or behind the job's own; they are neither committed nor deleted."""
        world = World()
        table = Table.load(world.catalog, "db.t")
        before = {task.file.file_path for task in table.scan().plan_files()}

        def forge(plan: JobPlan) -> JobResult:
            result = run_local(plan, table.io)
            paths = iter(named)

            def other(path: str) -> str:
                place = next(paths, None)
                if place is None:
                    return path
                return f"{place}/{path.rpartition('/')[2]}" if keeps_name else place

            def files(documents: Any) -> Any:
                return tuple({**one, "file-path": other(one["file-path"])} for one in documents)

            groups = tuple(replace(group, data_files=files(group.data_files)) for group in result.groups)
            changes = tuple(replace(change, file_path=other(change.file_path)) for change in result.changes)
            return replace(result, data_files=files(result.data_files), groups=groups, changes=changes)

        with suppress(IcebergError):
            VERBS[verb](Work(table, run=forge))
        world.check()
        live = {task.file.file_path for task in Table.load(world.catalog, "db.t").scan().plan_files()}
        assert all(path in before or path.startswith(f"{T}/data/") for path in live)
        assert not live & {*world.victim_files(), *named}

    @pytest.mark.costly
    @examples(100, suppress_health_check=[HealthCheck.too_slow])
    @given(place=locations, name=st.sampled_from(["staging_location", "table", "task", "locations"]))
    def test_no_other_plan_is_run(self, place, name):
        """The job reads its plan, and nothing that another one names."""
        world = World()
        table = Table.load(world.catalog, "db.t")
        plan = plan_append(table, Source.from_files(["file:///a.parquet"]))
        forged_plan = json.dumps(_with_place(json.loads(plan.to_json()), name, place)).encode()
        world.inner.delete([plan.location])
        world.inner.create(plan.location, forged_plan)
        world.io.calls.clear()
        if forged_plan != plan.to_json():
            with pytest.raises(IcebergError):
                JobPlan.open(table.io, plan.location, str(plan.seal))
        assert {location for _, location in world.io.calls} <= {plan.location}

    @pytest.mark.costly
    @examples(150, suppress_health_check=[HealthCheck.too_slow])
    @given(
        forgeries=forgeries,
        pointer=locations,
        config=st.dictionaries(
            st.sampled_from(["warehouse", "allowed-locations", "s3.endpoint", "write.data.path", "prefix", "uri"]),
            locations,
            max_size=3,
        ),
        is_pointer_forged=st.booleans(),
        operations=st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=3),
    )
    def test_no_answer_of_a_server_leads_outside(self, forgeries, pointer, config, is_pointer_forged, operations):
        """The connection trusts the warehouse, whatever the server says of it, of the table and of its properties."""
        world = World()
        for what, place in forgeries:
            with suppress(IcebergError):
                world.forge(FORGERIES[what](place))
        state = world.catalog._pointers[TableId.of("db.t")]
        table = {
            "metadata-location": pointer if is_pointer_forged else state,
            "metadata": json.loads(world.inner.read(state)),
            "config": config,
        }

        def answer(request: Request) -> Reply:
            return document({"defaults": config, "overrides": config} if "/config" in request.path else table)

        with HttpServer(answer) as server:
            properties = {"uri": server.uri, "warehouse": "memory://warehouse"}
            catalog = RestCatalog("prod", properties, io=world.io)
            for operation in operations:
                with suppress(IcebergError):
                    OPERATIONS[operation](Table.load(catalog, "db.t"))
                world.check()


VERBS = {
    "append": lambda work: append(work, AppendRequest(rows=Source.from_files([LANDED]))),
    "compact": lambda work: compact(work, CompactRequest(options={"rewrite-all": "true"})),
    "copy-on-write": lambda work: delete(work, DeleteRequest(predicate="id = 1")),
    "merge-on-read": lambda work: delete(work, DeleteRequest(predicate="id = 1", mode="merge-on-read")),
}


def _with_place(plan: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    """Return a plan with a location in one of its fields."""
    if name == "task":
        return {**plan, "task": {**plan["task"], "write": {**plan["task"]["write"], "data-location": place}}}
    if name == "locations":
        return {**plan, "locations": {"allowed": [place], "own": [place]}}
    return {**plan, name.replace("_", "-"): place}
