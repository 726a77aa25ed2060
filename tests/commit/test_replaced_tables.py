"""A table is its uuid: what was loaded never changes another table that has got its name meanwhile.

Each operation × each way to another table of the name × a handle of this moment and an old one, which is loaded again
before it commits. Not here: catalogs on servers (`catalogs/test_replaced_tables.py`).
"""

import dataclasses
import itertools

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import TableReplacedError
from airflow_iceberg.operations.compact import CompactRequest, compact
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.rewrite_manifests import RewriteManifestsRequest, rewrite_manifests
from airflow_iceberg.operations.work import Work
from airflow_iceberg.retries import advice, is_final
from airflow_iceberg.table import Table
from tests.support.builders import id_rows, ids, job_work

OLD_S = -3600.0
LATER_MS = 9_000_000_000_000


def compact_all(table):
    compact(job_work(table), CompactRequest(options={"rewrite-all": "true"}))


OPERATIONS = {
    "append": lambda table: table.append(id_rows([7])),
    "overwrite": lambda table: table.overwrite(id_rows([7])),
    "delete of rows": lambda table: table.delete("id = 1"),
    "delete of all": lambda table: table.delete("true"),
    "update": lambda table: table.update({"id": "id + 10"}, where="id = 1"),
    "upsert": lambda table: table.upsert(id_rows([1, 7]), join_cols=["id"]),
    "merge": lambda table: table.merge(id_rows([1]), on="target.id = source.id", clauses="when matched then delete"),
    "compaction": compact_all,
    "alter": lambda table: table.alter([{"set_properties": {"a": "b"}}]),
    "branch": lambda table: table.create_branch("audit"),
    "tag": lambda table: table.create_tag("daily"),
    "rollback": lambda table: table.rollback_to_snapshot(table.current_snapshot().parent_snapshot_id),
    "rewrite of manifests": lambda table: rewrite_manifests(Work(table), RewriteManifestsRequest()),
    "expiry": lambda table: expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=LATER_MS)),
    "orphans": lambda table: remove_orphan_files(Work(table), RemoveOrphanFilesRequest()),
    "refresh": lambda table: table.refresh(),
}
# Of the ways to change rows, one for each kind runs with `make test`; all of them with the services.
QUICK = {"append", "delete of rows", "compaction", "alter", "branch", "rollback", "expiry", "refresh"}


def fill(catalog, name="db.t", first=1):
    """Make a table of three versions and two snapshots: a nightly rebuild has as many again."""
    table = Table.create(catalog, name, schema={"id": "long"})
    table.append(id_rows([first, first + 1]))
    table.append(id_rows([first + 2]))
    return table


def made_anew(catalog):
    catalog.drop_table("db.t")
    fill(catalog, first=1)


def purged_and_made_anew(catalog):
    catalog.drop_table("db.t", purge=True)
    fill(catalog, first=1)


def renamed_and_another_in_its_place(catalog):
    catalog.rename_table("db.t", "db.kept")
    fill(catalog, "db.other", first=1)
    catalog.rename_table("db.other", "db.t")


CATALOGS = {
    "hadoop": (made_anew, purged_and_made_anew),
    "sql": (made_anew, purged_and_made_anew, renamed_and_another_in_its_place),
}
CASES = [
    pytest.param(catalog, way, operation, id=f"{catalog}, {way.__name__}, {operation}", marks=marks)
    for catalog, ways in CATALOGS.items()
    for way, operation in itertools.product(ways, OPERATIONS)
    for marks in [[] if operation in QUICK and way is not purged_and_made_anew else [pytest.mark.costly]]
]


@pytest.fixture
def open_catalog(tmp_path):
    def opened(kind):
        more = {"uri": f"sqlite:///{tmp_path}/c.db"} if kind == "sql" else {}
        catalog = load_catalog(kind, type=kind, warehouse=(tmp_path / kind).as_uri(), **more)
        catalog.create_namespace("db", if_not_exists=True)
        return catalog

    return opened


def aged(catalog, table):
    """Return the table as a process has it that loaded it an hour ago."""
    return Table(dataclasses.replace(table.state, loaded_s=OLD_S), io=table.io, catalog=catalog)


class TestAnotherTable:
    """An error says that the table was replaced, and neither table is changed."""

    @pytest.mark.parametrize("is_old", [False, True], ids=["at once", "an hour later"])
    @pytest.mark.parametrize(("kind", "way", "operation"), CASES)
    def test_is_never_changed(self, open_catalog, kind, way, operation, is_old):
        catalog = open_catalog(kind)
        table = fill(catalog)
        if is_old:
            table = aged(catalog, table)
        way(catalog)
        now = Table.load(catalog, "db.t")
        with pytest.raises(
            TableReplacedError, match=rf"table \S*db/?\.?t\b.* was replaced: .*{now.metadata.table_uuid}"
        ):
            OPERATIONS[operation](table)
        after = Table.load(catalog, "db.t")
        assert (after.metadata_location, after.metadata) == (now.metadata_location, now.metadata)
        assert ids(after) == [1, 2, 3]
        if way is renamed_and_another_in_its_place:
            assert ids(Table.load(catalog, "db.kept")) == [1, 2, 3]

    def test_the_next_try_loads_it_by_name(self, open_catalog):
        catalog = open_catalog("sql")
        table = fill(catalog)
        made_anew(catalog)
        with pytest.raises(TableReplacedError) as raised:
            table.append(id_rows([4]))
        assert not is_final(raised.value)
        assert "the next try loads the table by its name" in advice(raised.value)
        Table.load(catalog, "db.t").append(id_rows([4]))
        assert ids(Table.load(catalog, "db.t")) == [1, 2, 3, 4]


class TestOneFileNameOfTwoTables:
    """In a Hadoop catalog the new table's version has the name of the old one's, or another codec in it."""

    @pytest.mark.parametrize("codec", ["none", "gzip"])
    def test_the_codec_changes_nothing(self, open_catalog, codec):
        catalog = open_catalog("hadoop")
        gzip = {"write.metadata.compression-codec": "gzip"}
        table = Table.create(catalog, "db.t", schema={"id": "long"}, properties=gzip if codec == "none" else {})
        table.append(id_rows([1]))
        catalog.drop_table("db.t")
        new = Table.create(catalog, "db.t", schema={"id": "long"}, properties={} if codec == "none" else gzip)
        new.append(id_rows([2]))
        with pytest.raises(TableReplacedError):
            table.create_branch("audit")
        assert ids(Table.load(catalog, "db.t")) == [2]
        assert "audit" not in Table.load(catalog, "db.t").refs

    def test_a_table_of_another_writer_has_its_uuid_anywhere(self, open_catalog):
        """The first bytes are no proof then, and the whole file is read."""
        catalog = open_catalog("hadoop")
        table = fill(catalog)
        path = table.metadata_location.removeprefix("file://")
        with open(path) as file:
            text = file.read()
        uuid = f'"table-uuid":"{table.metadata.table_uuid}"'
        assert uuid in text.replace(" ", "")
        moved = text.replace(text[text.index('"table-uuid"') : text.index('"location"')], "", 1)
        with open(path, "w") as file:
            file.write(moved.rstrip()[:-1] + f", {uuid}}}")
        Table.load(catalog, "db.t").append(id_rows([4]))
        assert ids(Table.load(catalog, "db.t")) == [1, 2, 3, 4]


def test_a_first_uuid_is_no_other_table(open_catalog):
    """Version 1 had tables without a uuid; the first commit gives them one."""
    catalog = open_catalog("sql")
    table = fill(catalog)
    without = dataclasses.replace(table.state.metadata, table_uuid=None, format_version=1)
    assert catalog.reload(dataclasses.replace(table.state, metadata=without)).metadata.table_uuid is not None
