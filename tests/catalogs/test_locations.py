"""Where the tables of a catalog may lie: names, places, and the location of a namespace."""

import dataclasses
import json
import logging
import re
import shutil
import uuid
from contextlib import closing, suppress

import pytest

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.load import load_catalog
from airflow_iceberg.catalogs.nessie.catalog import NessieCatalog
from airflow_iceberg.catalogs.rest.catalog import RestCatalog
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.errors import AlreadyExistsError, IcebergError, InvalidInputError, StorageError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.updates import Change, SetProperties
from airflow_iceberg.inventory.reachable_files import find_deletable
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.file_inventory import FileInventory
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.storage.gate import place_of
from airflow_iceberg.table import Table
from tests.catalogs.places import adls, glue, hive, nessie, s3
from tests.support.builders import id_rows
from tests.support.http_server import HttpServer, document
from tests.support.memory import MemoryCatalog, MemoryFileIO
from tests.support.other_programs import table_at
from tests.support.recording import RecordingFileIO, commit_foreign_file
from tests.support.rest_stand_in import RestStandIn

SCHEMA = {"id": "long"}
WAREHOUSE = "memory://warehouse"


def sql(io, tmp_path, **more):
    return SqlCatalog("prod", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": WAREHOUSE, **more}, io=io)


def memory(io, tmp_path, **more):
    return MemoryCatalog(io=io, namespaces=())


def hadoop(io, tmp_path, **more):
    return load_catalog("prod", type="hadoop", warehouse=f"{tmp_path}/wh")


def filled(catalog, name, *, location=None):
    with suppress(AlreadyExistsError):
        catalog.create_namespace(TableId.of(name).namespace)
    table = Table.create(catalog, name, schema=SCHEMA, location=location)
    table.append(id_rows([1, 2]))
    table.overwrite(id_rows([3]))
    return table


def forge(catalog, name, metadata, **fields):
    """Let a table have this metadata, as whoever may commit to it can."""
    table = TableId.of(name)
    path = f"{WAREHOUSE}/evil/t/metadata/00009-{uuid.uuid4()}.metadata.json"
    catalog.io.create(path, _json(dataclasses.replace(metadata, **fields)))
    catalog.swap_pointer(table, expected=catalog.read_pointer(table), new=path)


def files_of(table):
    return {status.location for status in table.io.list(table.location)}


def expire(table):
    return expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))


def remove_orphans(table, action="delete"):
    request = RemoveOrphanFilesRequest(action=action, older_than_ms=2**62, allow_recent=True)
    return remove_orphan_files(Work(table), request)


class TestANamespaceCalledLikeATable:
    """Its tables would lie in the folder of that table."""

    @pytest.mark.parametrize("make", [sql, memory, hadoop])
    @pytest.mark.parametrize("name", ["hr.salaries", "hr.salaries.data", "hr.salaries.x.y"])
    def test_a_new_namespace_is_refused(self, make, name, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        filled(catalog, "hr.salaries")
        for if_not_exists in (False, True):
            with pytest.raises(AlreadyExistsError, match=r"table hr\.salaries exists already in catalog"):
                catalog.create_namespace(name, if_not_exists=if_not_exists)

    @pytest.mark.parametrize("make", [sql, memory])
    def test_a_table_with_the_name_of_a_namespace_is_refused(self, make, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        catalog.create_namespace("hr")
        filled(catalog, "hr.salaries.may")
        other = filled(catalog, "hr.other")
        for create in (
            lambda: Table.create(catalog, "hr.salaries", schema=SCHEMA),
            lambda: Table.create(catalog, "hr.salaries", schema=SCHEMA, location=f"{WAREHOUSE}/elsewhere"),
            lambda: catalog.register_table("hr.salaries", other.metadata_location),
            lambda: catalog.rename_table("hr.other", "hr.salaries") if make is sql else catalog.create_namespace("hr"),
        ):
            with pytest.raises(AlreadyExistsError):
                create()

    def test_a_directory_with_a_table_called_data_becomes_no_table(self, tmp_path):
        catalog = hadoop(None, tmp_path)
        filled(catalog, "hr.salaries.data")
        with pytest.raises(IcebergError, match=r"another table has its metadata|it is a namespace"):
            Table.create(catalog, "hr.salaries", schema=SCHEMA)

    @pytest.mark.parametrize("level", ["data", "_x", "metadata", "x"])
    def test_nor_one_with_a_namespace_that_is_called_so(self, level, tmp_path):
        catalog = hadoop(None, tmp_path)
        filled(catalog, f"hr.salaries.{level}.t")
        with pytest.raises(IcebergError, match=r"another table has its metadata|it is a namespace"):
            Table.create(catalog, "hr.salaries", schema=SCHEMA)

    @pytest.mark.parametrize("level", ["data", "_x", "day=1", "0101", "deadbeef"])
    def test_a_directory_is_not_dropped_with_a_table_deep_in_it(self, level, tmp_path):
        catalog = hadoop(None, tmp_path)
        above = filled(catalog, "hr.salaries")
        inner = filled(hadoop(None, tmp_path / "other"), "x.t")
        place = tmp_path / "wh" / "hr" / "salaries" / level / "deeper" / "t"
        shutil.copytree(tmp_path / "other" / "wh" / "x" / "t", place)
        before = files_of(inner)
        for purge in (False, True):
            with pytest.raises(InvalidInputError, match="another table has its metadata at"):
                catalog.drop_table("hr.salaries", purge=purge)
        assert before == files_of(inner)
        assert above.scan().to_arrow()["id"].to_pylist() == [3]
        shutil.rmtree(place)
        catalog.drop_table("hr.salaries")
        assert not catalog.table_exists("hr.salaries")

    @pytest.mark.parametrize("name", ["data", "metadata", "t", "_t"])
    def test_what_another_engine_has_made_deletes_nothing_of_the_table_above(self, name, tmp_path):
        """The table and the namespace are there; without any enemy a search for orphans took the live files."""
        io = MemoryFileIO()
        catalog = sql(io, tmp_path)
        above = filled(catalog, "hr.salaries")
        before = files_of(above)
        inner = _made_by_others(catalog, f"hr.salaries.{name}", f"{above.location}/{name}")
        for action in ("delete", "quarantine"):
            with pytest.raises(IcebergError, match=r"outside of the table's own|shares its location"):
                remove_orphans(Table.load(catalog, str(inner)), action)
        catalog.drop_table(inner, purge=True)
        assert files_of(above) >= before
        assert Table.load(catalog, "hr.salaries").scan().to_arrow()["id"].to_pylist() == [3]

    @pytest.mark.parametrize("name", ["data", "metadata", "t", "_t"])
    def test_nor_of_the_table_below(self, name, tmp_path):
        io = MemoryFileIO()
        catalog = sql(io, tmp_path)
        above = filled(catalog, "hr.salaries")
        inner = _made_by_others(catalog, f"hr.salaries.{name}", f"{above.location}/{name}")
        live = {status.location for status in io.list(f"{above.location}/{name}")}
        victim = next(path for path in live if path.endswith(".json"))
        commit_foreign_file(catalog, "hr.salaries", victim)
        with suppress(IcebergError):
            Table.load(catalog, "hr.salaries").overwrite(id_rows([9]))
        expire(Table.load(catalog, "hr.salaries"))
        catalog.drop_table("hr.salaries", purge=True)
        assert {status.location for status in io.list(f"{above.location}/{name}")} >= live
        assert catalog.table_exists(inner)


def _made_by_others(catalog, name, location):
    table = table_at(catalog, name, location)
    table.append(id_rows([1, 2]))
    return table.identifier


def _json(metadata):
    return json.dumps(metadata_json.to_dict(metadata)).encode()


class TestANamespaceInTheFolderOfATable:
    """Whoever creates a namespace chooses its location: it proves nothing of the place of a table."""

    @pytest.mark.parametrize("below", ["", "/data", "/data/x"])
    def test_no_table_is_made_there(self, below, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path)
        victim = filled(catalog, "hr.salaries")
        catalog.create_namespace("evil", {"location": f"{victim.location}{below}"})
        with pytest.raises(
            InvalidInputError, match=r"table evil\.data cannot lie at .*: another table has its metadata at"
        ):
            Table.create(catalog, "evil.data", schema=SCHEMA)
        with pytest.raises(InvalidInputError, match="cannot lie at"):
            Table.create(catalog, "evil.data", schema=SCHEMA, location=f"{WAREHOUSE}/hr")
        with pytest.raises(InvalidInputError, match="cannot lie at"):
            Table.create(catalog, "evil.data", schema=SCHEMA, location=victim.location)
        assert not catalog.table_exists("evil.data")

    @pytest.mark.parametrize("place", ["{}/data", "{}/data/x", "{}", "memory://warehouse/hr"])
    def test_a_table_that_is_there_deletes_nothing(self, place, tmp_path, caplog):
        io = MemoryFileIO()
        catalog = sql(io, tmp_path)
        victim = filled(catalog, "hr.salaries")
        before = files_of(victim)
        location = place.format(victim.location)
        catalog.create_namespace("evil", {"location": location.rpartition("/")[0]})
        evil = _made_by_others(catalog, f"evil.{location.rpartition('/')[2]}", location)
        for path in sorted(before):
            with suppress(IcebergError):
                commit_foreign_file(catalog, str(evil), path)
        for work in (expire, remove_orphans):
            with suppress(IcebergError):
                table = Table.load(catalog, str(evil))
                table.delete("id > 0") if work is expire else None
                work(table)
        with suppress(IcebergError):
            catalog.drop_table(evil, purge=True)
        assert files_of(victim) >= before
        assert "nothing is deleted below" in caplog.text or "is where table hr.salaries is" in caplog.text

    def test_a_registered_table_in_another_ones_folder_is_refused(self, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path)
        victim = filled(catalog, "hr.salaries")
        metadata = dataclasses.replace(victim.metadata, location=f"{victim.location}/x", table_uuid=str(uuid.uuid4()))
        catalog.io.create(f"{WAREHOUSE}/a/metadata/00001-a.metadata.json", _json(metadata))
        with pytest.raises(InvalidInputError, match="cannot lie at"):
            catalog.register_table("hr.other", f"{WAREHOUSE}/a/metadata/00001-a.metadata.json")

    def test_a_try_that_died_keeps_nobody_from_the_next_one(self, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path)
        catalog.create_namespace("db")
        metadata = filled(catalog, "db.tmp").metadata
        place = f"{WAREHOUSE}/chosen/t"
        catalog.io.create(f"{place}/metadata/00000-{uuid.uuid4()}.metadata.json", _json(metadata))
        assert Table.create(catalog, "db.t", schema=SCHEMA, location=place).location == place


class TestATableThatPretendsToBeAnother:
    """Its uuid and its location are those of the other one."""

    @pytest.mark.parametrize("is_copy", [True, False], ids=["a-copy-of-its-metadata", "its-very-file"])
    @pytest.mark.parametrize("make", [sql, memory])
    def test_it_deletes_nothing(self, make, is_copy, tmp_path, caplog):
        catalog = make(MemoryFileIO(), tmp_path)
        victim = filled(catalog, "hr.salaries")
        before = files_of(victim)
        catalog.create_namespace("evil")
        pointer = victim.metadata_location
        if is_copy:
            pointer = f"{WAREHOUSE}/evil/t/metadata/00001-a.metadata.json"
            catalog.io.create(pointer, catalog.io.read(victim.metadata_location))
        catalog.swap_pointer(TableId.of("evil.t"), expected=None, new=pointer)
        expire(Table.load(catalog, "evil.t"))
        with suppress(IcebergError):
            remove_orphans(Table.load(catalog, "evil.t"))
        catalog.drop_table("evil.t", purge=True)
        assert files_of(victim) >= before
        assert "is where table hr.salaries is" in caplog.text

    def test_nor_where_no_name_leads_to_the_other_one(self, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path)
        victim = filled(catalog, "hr.salaries", location=f"{WAREHOUSE}/far/away/it/is")
        before = files_of(victim)
        pointer = f"{WAREHOUSE}/evil/t/metadata/00001-a.metadata.json"
        catalog.io.create(pointer, catalog.io.read(victim.metadata_location))
        catalog.swap_pointer(TableId.of("evil.t"), expected=None, new=pointer)
        expire(Table.load(catalog, "evil.t"))
        catalog.drop_table("evil.t", purge=True)
        assert files_of(victim) >= before

    def test_nor_where_the_other_one_is_found_by_its_folder(self, tmp_path, caplog):
        catalog = memory(MemoryFileIO(), tmp_path)
        victim = filled(catalog, "hr.salaries", location=f"{WAREHOUSE}/far/away/salaries")
        before = files_of(victim)
        catalog.create_namespace("evil")
        catalog.swap_pointer(TableId.of("evil.t"), expected=None, new=victim.metadata_location)
        expire(Table.load(catalog, "evil.t"))
        catalog.drop_table("evil.t", purge=True)
        assert files_of(victim) >= before
        assert "is where table hr.salaries is" in caplog.text

    def test_nor_at_the_place_of_its_own_name(self, tmp_path, caplog):
        catalog = sql(MemoryFileIO(), tmp_path)
        first = filled(catalog, "hr.salaries")
        before = files_of(first)
        catalog.create_namespace("other")
        catalog.rename_table("hr.salaries", "other.paid")
        catalog.swap_pointer(TableId.of("hr.salaries"), expected=None, new=first.metadata_location)
        expire(Table.load(catalog, "hr.salaries"))
        catalog.drop_table("hr.salaries", purge=True)
        assert files_of(first) >= before
        assert "is where table other.paid is" in caplog.text

    def test_a_second_name_of_the_same_state_counts_when_one_is_dropped(self, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path)
        table = filled(catalog, "hr.salaries")
        catalog.register_table("hr.again", table.metadata_location)
        litter = f"{table.location}/data/litter.parquet"
        catalog.io.create(litter, b"x")
        assert remove_orphans(table).orphan_files == 1
        before = files_of(table)
        catalog.drop_table("hr.salaries", purge=True)
        assert files_of(table) == before

    @pytest.mark.parametrize("make", [sql, memory])
    def test_nor_with_metadata_elsewhere_at_the_place_of_its_name_where_a_renamed_table_is(self, make, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        catalog.create_namespace("other")
        first = filled(catalog, "hr.salaries")
        before = files_of(first)
        catalog.rename_table("hr.salaries", "other.paid")
        evil = filled(catalog, "hr.salaries")
        assert evil.location != first.location
        places = {"write.metadata.path": f"{evil.location}/metadata", "write.data.path": f"{evil.location}/data"}
        names = {"table_uuid": first.metadata.table_uuid, "location": first.location, "properties": places}
        forge(catalog, "hr.salaries", evil.metadata, **names)
        for path in before:
            commit_foreign_file(catalog, "hr.salaries", path)
        table = Table.load(catalog, "hr.salaries")
        table.rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id)
        expire(Table.load(catalog, "hr.salaries"))
        catalog.drop_table("hr.salaries", purge=True)
        assert files_of(first) >= before

    @pytest.mark.parametrize("make", [sql, memory])
    def test_a_table_at_home_that_has_moved_its_metadata_is_cleaned(self, make, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        table = filled(catalog, "db.t")
        table.alter([{"set_properties": {"write.metadata.path": f"{WAREHOUSE}/db/metadata_of_t"}}])
        table.overwrite(id_rows([4]))
        assert expire(table).deleted_data_files == 2

    @pytest.mark.parametrize("make", [sql, memory])
    def test_nobody_registers_the_metadata_of_a_renamed_table_under_its_old_name(self, make, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        first = filled(catalog, "hr.salaries")
        catalog.create_namespace("other")
        catalog.rename_table("hr.salaries", "other.salaries")
        with pytest.raises(InvalidInputError, match=r"hr.salaries cannot lie at .*: table other.salaries is there"):
            catalog.register_table("hr.salaries", first.metadata_location)

    @pytest.mark.parametrize("folder", ["far/o", "far/o%20é_/metadata"])
    @pytest.mark.parametrize("spelled", ["memory:///warehouse", "MEMORY://warehouse", WAREHOUSE])
    def test_nor_where_its_pointer_is_spelled_otherwise_than_its_location(self, spelled, folder, tmp_path, caplog):
        catalog = sql(MemoryFileIO(), tmp_path)
        catalog.create_namespace("hr")
        moved = {"write.metadata.path": f"{WAREHOUSE}/elsewhere/m"} if spelled == WAREHOUSE else {}
        victim = TableId.of("hr.salaries")
        table = Table.create(catalog, victim, schema=SCHEMA, location=f"{WAREHOUSE}/{folder}", properties=moved)
        table.append(id_rows([1]))
        pointer = table.metadata_location
        now = catalog.read_pointer(victim)
        catalog.swap_pointer(victim, expected=now, new=pointer.replace(WAREHOUSE, spelled))
        before = files_of(table)
        catalog.create_namespace("evil")
        catalog.swap_pointer(TableId.of("evil.t"), expected=None, new=pointer)
        expire(Table.load(catalog, "evil.t"))
        catalog.drop_table("evil.t", purge=True)
        assert files_of(table) >= before
        assert "is where table hr.salaries is" in caplog.text

    @pytest.mark.parametrize("make", [sql, memory])
    def test_nor_where_it_has_moved_its_own_metadata_beside_that_of_the_other_one(self, make, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        victim = filled(catalog, "hr.salaries")
        before = files_of(victim)
        places = {"write.data.path": victim.location, "write.metadata.path": f"{victim.location}/metadata"}
        evil = filled(catalog, "evil.t")
        forge(catalog, "evil.t", evil.metadata, table_uuid=victim.metadata.table_uuid, properties=places)
        Table.load(catalog, "evil.t").append(id_rows([1]))
        for path in before:
            commit_foreign_file(catalog, "evil.t", path)
        Table.load(catalog, "evil.t").delete("id > 0")
        expire(Table.load(catalog, "evil.t"))
        catalog.drop_table("evil.t", purge=True)
        assert files_of(victim) >= before

    @pytest.mark.parametrize("is_beside", [True, False])
    @pytest.mark.parametrize("make", [sql, memory])
    def test_nor_are_its_metadata_files_the_old_ones_of_a_commit(self, make, is_beside, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        victim = filled(catalog, "hr.salaries")
        before = files_of(victim)
        evil = filled(catalog, "evil.t")
        properties = {"write.metadata.path": f"{evil.location}/metadata", "write.data.path": f"{evil.location}/data"}
        forge(
            catalog,
            "evil.t",
            victim.metadata,
            metadata_log=((1, victim.metadata_location),),
            properties={**({} if is_beside else properties), **TestForgottenMetadata.PROPERTIES},
        )
        for number in range(3):
            Table.load(catalog, "evil.t").append(id_rows([number]))
        assert files_of(victim) >= before


class TestANameInRest:
    """A second name of a table, which a server has registered; its warehouse may be a name, and its folders are not."""

    FOLDER = "lake/cat/hr/victim"

    @pytest.mark.parametrize("status", [404, 403], ids=["unknown", "denied"])
    @pytest.mark.parametrize("asked", ["evil.t", "hr.victim"])
    @pytest.mark.parametrize("real", ["hr.victim", "cat.hr.victim", "lake.cat.hr.victim"])
    def test_nothing_is_deleted_where_the_last_folders_are_another_ones_name(self, real, asked, status):
        assert self.own(real, asked, status) == ([self.FOLDER] if asked == real else [])

    def test_the_table_itself_may_have_a_name_that_leads_nowhere(self):
        assert self.own("evil.t", "evil.t", 404) == [self.FOLDER]
        assert self.own("evil.t", "evil.t", 403) == []
        assert self.own("evil.t", "evil.t", 400) == [self.FOLDER]  # no such name, say of two levels

    def own(self, real, asked, status):
        """Return what `asked` may delete, if `real` is at the folder, too, and other names are answered by a status."""
        catalog = MemoryCatalog()
        there = filled(catalog, "db.t", location=f"{WAREHOUSE}/{self.FOLDER}").state
        names = [each.rpartition(".")[::2] for each in (real, asked)]
        paths = [f"/v1/namespaces/{space.replace('.', '%1F')}/tables/{name}" for space, name in names]
        answer = {"metadata-location": there.metadata_location, "metadata": metadata_json.to_dict(there.metadata)}

        def handle(request):
            path = request.path.partition("?")[0]
            if path == "/v1/config":
                return document({"defaults": {}, "overrides": {}})
            refusal = {"error": {"message": "not here", "type": "NoSuchTableException", "code": status}}
            return document(answer) if path in paths else document(refusal, status)

        with HttpServer(handle) as server:
            rest = RestCatalog("rest", {"uri": f"http://127.0.0.1:{server.port}", "warehouse": "prod"}, io=catalog.io)
            gate = rest.deleting_io(rest.load(asked)).gate
        return [each.removeprefix(f"{WAREHOUSE}/") for each in gate.own]


class TestAPurgeByAServer:
    def test_metadata_within_the_location_may_be_the_tables_own(self, tmp_path):
        catalog = load_catalog("prod", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/wh")
        table = filled(catalog, "db.t")
        place = {"write.metadata.path": f"{table.location}/iceberg/metadata"}
        catalog.commit(table.state, Change(updates=(SetProperties(updates=place),), requirements=()))
        state = catalog.load("db.t")
        assert "/iceberg/metadata/" in state.metadata_location
        with closing(RestStandIn()) as server:
            rest = load_catalog("rest", type="rest", uri=server.uri, warehouse=f"{tmp_path}/wh")
            server.tables["db.t"] = (state.metadata_location, metadata_json.to_dict(state.metadata))
            catalog.io.create(f"{table.location}/inner/metadata/v1.metadata.json", b"{}")
            with pytest.raises(InvalidInputError, match="another table is in its place"):
                rest.drop_table("db.t", purge=True)
            catalog.io.delete([f"{table.location}/inner/metadata/v1.metadata.json"])
            rest.drop_table("db.t", purge=True)
            assert not rest.table_exists("db.t")


class TestWhatARestServerSays:
    """Its word about a table is that of the table's metadata file, or no file is deleted."""

    def test_a_table_of_another_catalog_is_not_its_own(self, tmp_path, caplog):
        """The server cannot write there; the metadata in its answer lets a live file look like an expired one."""
        catalog = load_catalog("prod", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"{tmp_path}/wh")
        victim = filled(catalog, "hr.salaries")
        before = files_of(victim)
        told = metadata_json.to_dict(victim.metadata)
        first = told["snapshots"][0]["snapshot-id"]
        told["refs"]["main"]["snapshot-id"] = told["current-snapshot-id"] = first
        older = victim.metadata.metadata_log[-1][1]
        for pointer in (victim.metadata_location, older, f"{victim.location}/metadata/none.metadata.json"):
            with closing(RestStandIn()) as server:
                server.tables["db.evil"] = (pointer, told)
                rest = load_catalog("rest", type="rest", uri=server.uri, warehouse=f"{tmp_path}/wh")
                with suppress(IcebergError):
                    expire(Table.load(rest, "db.evil"))
                with suppress(IcebergError):
                    remove_orphans(Table.load(rest, "db.evil"))
        assert files_of(victim) >= before
        assert "it cannot be checked what its server says about it" in caplog.text

    def test_nor_is_a_state_of_it_that_was_before_the_removed_snapshots(self, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path)
        table = filled(catalog, "db.t")
        table.append(id_rows([4]))
        states = [table.state.metadata.metadata_log[0][1]]
        older = metadata_json.read(catalog.io.read(states[0]), path=states[0])
        with pytest.raises(InvalidInputError, match="it was set back to an older state; no file is deleted"):
            find_deletable(catalog.io, table.metadata.snapshots, older, (), inventory=FileInventory(Work(table)))


class TestWhatADroppedTableHasLeft:
    """Other programs make a new table in the folder of one that was dropped without its files, or renamed."""

    @pytest.mark.parametrize("make", [sql, memory])
    def test_it_does_not_keep_the_new_one_from_being_cleaned(self, make, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        first = filled(catalog, "db.t")
        catalog.drop_table("db.t")
        new = table_at(catalog, "db.t", first.location)
        new.append(id_rows([1]))
        new.overwrite(id_rows([2]))
        result = expire(new)
        assert (result.deleted_data_files, result.kept_files) == (1, 0)
        catalog.drop_table("db.t", purge=True)
        assert files_of(first) >= {task.file.file_path for task in first.scan().plan_files()}

    @pytest.mark.parametrize("make", [sql, memory])
    def test_what_a_renamed_table_has_there_is_its_own(self, make, tmp_path):
        catalog = make(MemoryFileIO(), tmp_path)
        first = filled(catalog, "db.t")
        before = files_of(first)
        catalog.create_namespace("other")
        catalog.rename_table("db.t", "other.u")
        new = table_at(catalog, "db.t", first.location)
        new.append(id_rows([1]))
        for path in before:
            commit_foreign_file(catalog, "db.t", path)
        new.refresh().delete("id > 0")
        expire(new)
        catalog.drop_table("db.t", purge=True)
        assert files_of(first) >= before


class TestTheLocationOfANamespace:
    """It is no root of trust: it counts below the warehouse, and below the prefixes that the connection allows."""

    @pytest.mark.parametrize(
        "location", ["memory://other/db", "file:///etc", "/etc", "s3://other/db", "memory://warehouse/../other"]
    )
    def test_outside_it_counts_for_nothing(self, location, tmp_path):
        io = RecordingFileIO(MemoryFileIO())
        catalog = sql(io, tmp_path)
        catalog.create_namespace("db", {"location": location})
        with pytest.raises(InvalidInputError, match=r"'allowed-locations'|local files need a local warehouse|'\.\.'"):
            Table.create(catalog, "db.t", schema=SCHEMA)
        assert io.calls == []

    def test_a_prefix_of_the_connection_opts_in(self, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path, **{"allowed-locations": "memory://other/db"})
        catalog.create_namespace("db", {"location": "memory://other/db"})
        assert filled(catalog, "db.t").location == "memory://other/db/t"
        catalog.create_namespace("no", {"location": "memory://other/dbs"})
        with pytest.raises(InvalidInputError, match="'allowed-locations'"):
            Table.create(catalog, "no.t", schema=SCHEMA)

    def test_local_files_need_a_local_warehouse(self, tmp_path):
        catalog = sql(MemoryFileIO(), tmp_path, **{"allowed-locations": f"{tmp_path}/data"})
        catalog.create_namespace("db", {"location": f"file://{tmp_path}/data"})
        with pytest.raises(InvalidInputError, match=r"local files need a local warehouse$"):
            Table.create(catalog, "db.t", schema=SCHEMA)

    def test_without_a_warehouse_a_local_one_counts_for_nothing(self, tmp_path):
        catalog = SqlCatalog("prod", {"uri": f"sqlite:///{tmp_path}/c.db"}, io=MemoryFileIO())
        catalog.create_namespace("db", {"location": f"file://{tmp_path}/data"})
        with pytest.raises(InvalidInputError, match="no warehouse and no other location"):
            Table.create(catalog, "db.t", schema=SCHEMA)


A_UUID = "a82e62c3-7f04-4e29-a31a-e1bc273870b2"


class TestNessie:
    """A location ends with a uuid, and nothing else that is as long."""

    CATALOG = NessieCatalog(
        "prod", {"uri": "http://127.0.0.1:1/api/v2", "warehouse": WAREHOUSE, "ref": "main"}, io=None
    )

    @pytest.mark.parametrize(
        ("location", "is_home"),
        [
            (f"{WAREHOUSE}/hr/t_{A_UUID}", True),
            (f"{WAREHOUSE}/hr/t_{'x' * 36}", False),
            (f"{WAREHOUSE}/hr/t_/salaries_{'-' * 20}/data1", False),
            (f"{WAREHOUSE}/hr/t_", False),
            (f"{WAREHOUSE}/hr/u_{A_UUID}", False),
            (f"memory://other/hr/t_{A_UUID}", False),
        ],
    )
    def test_the_end_is_a_uuid(self, location, is_home):
        assert self.CATALOG._is_home(TableId.of("hr.t"), location) is is_home


class TestForgottenMetadata:
    """A commit deletes metadata files that its table's log has dropped, if they tell that they are this table's."""

    PROPERTIES = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}

    def commit(self, catalog, log):
        state = catalog.load("db.t")
        metadata = dataclasses.replace(state.metadata, properties=self.PROPERTIES, metadata_log=log)
        path = f"{metadata.location}/metadata/00007-{uuid.uuid4()}.metadata.json"
        catalog.io.create(path, _json(metadata))
        catalog._pointers[TableId.of("db.t")] = path
        base = catalog.load("db.t")
        catalog.commit(base, Change(updates=(SetProperties(updates={"a": "b"}),), requirements=()))

    def test_its_own_is_deleted_and_others_stay(self, caplog):
        catalog = MemoryCatalog()
        old = filled(catalog, "db.t").metadata_location
        victim = filled(catalog, "db.victim")
        foreign = [victim.metadata_location, *(path for path in files_of(victim) if path.endswith(".parquet"))]
        moved = f"{WAREHOUSE}/db/t/metadata/00003-victims.metadata.json"
        catalog.io.create(moved, catalog.io.read(victim.metadata_location))
        named = [*foreign, moved, f"{WAREHOUSE}/db/t/metadata/gone.metadata.json", old]
        self.commit(catalog, tuple((number, path) for number, path in enumerate(named)))
        assert not catalog.io.exists(old)
        assert all(map(catalog.io.exists, (*foreign, moved)))
        assert "kept" in caplog.text

    def test_a_commit_lists_no_tables(self, monkeypatch):
        """Each commit deletes one: a catalog that is no database would be read as a whole each time."""
        catalog = MemoryCatalog()
        old = filled(catalog, "db.t", location=f"{WAREHOUSE}/far/away/t").metadata_location
        for method in ("list_namespaces", "list_tables", "other_pointers"):
            monkeypatch.setattr(MemoryCatalog, method, None)
        self.commit(catalog, ((1, old), (2, f"{WAREHOUSE}/far/away/t/metadata/x.metadata.json")))
        assert not catalog.io.exists(old)

    def test_a_compressed_one_is_read_by_its_beginning(self):
        catalog = MemoryCatalog()
        table = Table.create(catalog, "db.t", schema=SCHEMA, properties={"write.metadata.compression-codec": "gzip"})
        old = table.metadata_location
        catalog.io = RecordingFileIO(catalog.io)
        self.commit(catalog, ((1, old), (2, f"{table.location}/metadata/x.metadata.json")))
        assert ("delete", old) in catalog.io.calls


class TestWhatALookCosts:
    """Deletions look at the place, above and below it: a few small listings, and the beginnings of metadata files."""

    def calls(self, catalog, work):
        catalog.io.calls.clear()
        catalog._proven.clear()
        work()
        return [verb for verb, _ in catalog.io.calls]

    def test_loads_and_commits_do_not_look(self):
        catalog = MemoryCatalog(io=RecordingFileIO(MemoryFileIO()))
        filled(catalog, "db.t")
        assert self.calls(catalog, lambda: catalog.load("db.t")) == ["read"]
        state = catalog.load("db.t")
        change = Change(updates=(SetProperties(updates={"a": "b"}),), requirements=())
        assert self.calls(catalog, lambda: catalog.commit(state, change)) == ["create"]

    def test_a_look_is_remembered_for_a_minute(self):
        catalog = MemoryCatalog(io=RecordingFileIO(MemoryFileIO()))
        state = filled(catalog, "db.t").state
        calls = self.calls(catalog, lambda: [catalog.deleting_io(state) for _ in range(3)])
        versions = len(state.metadata.metadata_log) + 1
        # <table>/metadata and that above; <table>, data/metadata and metadata/metadata.
        assert (calls.count("open"), calls.count("read"), len(calls)) == (5, versions, 5 + versions)

    def test_a_list_that_is_denied_above_stops_all_but_lent_credentials(self, caplog):
        catalog = MemoryCatalog()
        state = filled(catalog, "db.t").state
        catalog.io = _OnlyBelow(catalog.io, state.metadata.location)
        with caplog.at_level(logging.WARNING):
            assert catalog.deleting_io(state).gate.own == ()
        assert "it cannot be checked whether it is another table's: " in caplog.text
        rest = RestCatalog("rest", {"uri": "http://127.0.0.1:1", "warehouse": WAREHOUSE}, io=catalog.io)
        rest._states._lent.add(catalog.io)
        lent = dataclasses.replace(state, io=catalog.io)
        assert rest.deleting_io(lent).gate.own == (state.metadata.location,)

    def test_lent_credentials_may_be_for_more_than_a_table(self):
        """A place with more folders than are looked at is not its own, though a server has lent credentials for it."""
        catalog = MemoryCatalog()
        many = f"{WAREHOUSE}/lake/many"
        victim = filled(catalog, "hr.salaries", location=f"{many}/z/hr/salaries")
        state = filled(catalog, "db.t", location=f"{WAREHOUSE}/lake/db/t").state
        for number in range(201):
            catalog.io.create(f"{many}/n{number:03}/x/file", b"")
        rest = RestCatalog("rest", {"uri": "http://127.0.0.1:1", "warehouse": f"{WAREHOUSE}/lake"}, io=catalog.io)
        rest._states._lent.add(catalog.io)
        metadata = dataclasses.replace(state.metadata, properties={"write.data.path": many})
        pointer = f"{state.metadata.location}/metadata/00009-{uuid.uuid4()}.metadata.json"
        catalog.io.create(pointer, _json(metadata))
        forged = dataclasses.replace(state, metadata=metadata, metadata_location=pointer, io=catalog.io)
        io = rest.deleting_io(forged)
        assert io.gate.own == (state.metadata.location,)
        assert not io.owns(f"{victim.location}/data/a.parquet")


class _OnlyBelow(RecordingFileIO):
    """A store that shows nothing but what is below a location."""

    def __init__(self, inner, location):
        super().__init__(inner)
        self.location = location

    def filesystem(self, location):
        if not location.startswith(self.location):
            error = StorageError(f"cannot list {location}: access denied", is_refused=True)
            error.is_denied = True
            raise error
        return super().filesystem(location)


class _CarelessFileIO(MemoryFileIO):
    """A store that takes a backslash, and slashes one after the other, for one slash, but in listings."""

    def read(self, location, **part):
        return super().read(self._plain(location), **part)

    def create(self, location, data):
        super().create(self._plain(location), data)

    def exists(self, location):
        return super().exists(self._plain(location))

    def delete(self, locations):
        super().delete(map(self._plain, locations))

    def _plain(self, location):
        scheme, _, path = location.partition("://")
        plain = re.sub(r"[/\\]+", "/", path)
        return f"{scheme}://{plain}"


# Other names of <folder of the table>/data, in the parts of which a slash is spelled otherwise.
SPELLED = (r"//db/victim/data", r"/db//victim/data", r"/db/victim//data", r"/db\victim/data", r"/db/victim\data")


class TestStoresWithSeveralNamesOfAFile:
    """What is listed nowhere is read and deleted all the same."""

    @pytest.mark.parametrize("what", ["location", "write.data.path"])
    @pytest.mark.parametrize("spelled", SPELLED)
    def test_nothing_of_another_table_is_deleted_by_another_name(self, spelled, what, tmp_path):
        catalog = sql(_CarelessFileIO(), tmp_path)
        for name in ("db.victim", "db.t"):
            live = next(task.file.file_path for task in filled(catalog, name).scan().plan_files())
        live = live.replace("/db/t/", "/db/victim/")
        place = f"{WAREHOUSE}{spelled}"
        state = Table.load(catalog, "db.t").state
        fields = {"location": place} if what == "location" else {"properties": {what: place}}
        forged = dataclasses.replace(state, metadata=dataclasses.replace(state.metadata, **fields))
        assert not catalog.deleting_io(forged).owns(f"{place}/{live.rpartition('/')[2]}")

    @pytest.mark.parametrize("io", [MemoryFileIO, _CarelessFileIO])
    def test_a_table_whose_own_location_is_spelled_so_is_cleaned(self, io, tmp_path):
        catalog = sql(io(), tmp_path)
        table = filled(catalog, "db.t", location=f"{WAREHOUSE}/far//away/t")
        assert catalog.deleting_io(table.state).gate.own == (table.location,)

    @pytest.mark.services
    @pytest.mark.parametrize("place", [s3, adls])
    def test_on_a_server(self, place, request, tmp_path):
        properties = {**place(request, tmp_path), "type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"}
        catalog = load_catalog("prod", **properties)
        victim = filled(catalog, "db.victim")
        filled(catalog, "db.t")
        (live,) = (task.file.file_path for task in victim.scan().plan_files())
        other_names = 0
        for spelled in SPELLED:
            folder = f"{properties['warehouse']}{spelled}"
            path = f"{folder}/{live.rpartition('/')[2]}"
            other_names += catalog.io.exists(path)
            change = Change(updates=(SetProperties(updates={"write.data.path": folder}),), requirements=())
            catalog.commit(catalog.load("db.t"), change)
            commit_foreign_file(catalog, "db.t", path)
            table = Table.load(catalog, "db.t")
            table.rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id)
            expire(Table.load(load_catalog("prod", **properties), "db.t"))
            assert catalog.io.exists(live), spelled
        assert other_names, "the server has no file under two names, so that this proves nothing"


@pytest.mark.services
@pytest.mark.parametrize("place_in", [hive("2_3_10", {}), glue, nessie], ids=["hive", "glue", "nessie"])
class TestWithServers:
    """A namespace in the folder of a table, of which the server knows nothing."""

    def test_nothing_of_the_table_above_is_deleted(self, place_in, request, tmp_path):
        catalog = load_catalog("prod", **place_in(request, tmp_path))
        catalog.io = RecordingFileIO(catalog.io)
        for name in ("hr", "evil"):
            with suppress(IcebergError):
                catalog.create_namespace(name)
        victim = Table.create(catalog, "hr.salaries", schema=SCHEMA, properties={"gc.enabled": "true"})
        victim.append(id_rows([3]))
        before = files_of(victim)
        inside = f"{victim.location}/data"
        catalog.create_namespace("inside", {"location": victim.location})
        with pytest.raises(InvalidInputError, match="cannot lie at"):
            Table.create(catalog, "inside.data", schema=SCHEMA)
        evil = table_at(catalog, "inside.data", inside, properties={"gc.enabled": "true"})
        evil.append(id_rows([1]))
        for path in before:
            commit_foreign_file(catalog, "inside.data", path)
        evil.refresh().delete("id > 0")
        expire(evil)
        with pytest.raises(IcebergError, match=r"outside of the table's own|shares its location"):
            remove_orphans(evil)
        catalog.drop_table("inside.data", purge=True)
        assert files_of(victim) >= before
        assert [
            call for call in catalog.io.calls if not place_of(call[1]).path.startswith(f"{tmp_path}/warehouse")
        ] == []

    @pytest.mark.parametrize("is_copy", [True, False], ids=["a-copy-of-its-metadata", "its-very-file"])
    def test_nor_of_one_whose_folder_no_name_leads_to(self, place_in, is_copy, request, tmp_path, caplog):
        """A second name for its metadata: the lists of the catalog have the pointers of both."""
        catalog = load_catalog("prod", **place_in(request, tmp_path))
        for name in ("hr", "evil"):
            with suppress(IcebergError):
                catalog.create_namespace(name)
        place, properties = f"file://{tmp_path}/warehouse/far/away", {"gc.enabled": "true"}
        with suppress(IcebergError):
            catalog.drop_table("evil.t")
        victim = Table.create(catalog, "hr.salaries2", schema=SCHEMA, location=place, properties=properties)
        victim.append(id_rows([3]))
        victim.overwrite(id_rows([4]))
        before, pointer = files_of(victim), victim.metadata_location
        if is_copy:
            pointer = f"file://{tmp_path}/warehouse/evil/t/metadata/00001-{uuid.uuid4()}.metadata.json"
            catalog.io.create(pointer, catalog.io.read(victim.metadata_location))
        catalog.swap_metadata(TableId.of("evil.t"), base=None, new=pointer, metadata=victim.metadata)
        assert "salaries2" in [name for _, name, *_ in catalog.other_pointers(TableId.of("evil.t"))]
        expire(Table.load(catalog, "evil.t"))
        catalog.drop_table("evil.t", purge=True)
        assert files_of(victim) >= before
        assert "is where table hr.salaries2 is" in caplog.text

    def test_a_location_elsewhere_counts_for_nothing(self, place_in, request, tmp_path):
        catalog = load_catalog("prod", **place_in(request, tmp_path))
        catalog.io = RecordingFileIO(catalog.io)
        catalog.create_namespace("away", {"location": f"{tmp_path.as_uri()}/elsewhere"})
        with pytest.raises(InvalidInputError, match="'allowed-locations'"):
            Table.create(catalog, "away.t", schema=SCHEMA)
        assert catalog.io.calls == []
