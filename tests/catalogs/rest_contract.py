"""The contract of catalogs where a server keeps the metadata: what it promises instead of files that we write.

Subclass `RestContract` and give the properties of an empty catalog, as for `CatalogContract`.
"""

from contextlib import suppress

import pytest

from airflow_iceberg.catalogs.base import Catalog
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    IcebergError,
    InvalidInputError,
    NotFoundError,
)
from airflow_iceberg.format.metadata.updates import AddSchema, Change, SetCurrentSchema
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.table import Table
from tests.catalogs.contract import CatalogContract, fill_table, make_table, setting


def empty(catalog: Catalog, namespace: tuple[str, ...] | None = None) -> None:
    for child in catalog.list_namespaces(namespace):
        empty(catalog, child)
        with suppress(NotFoundError):  # it was known only by those below it
            for table in catalog.list_tables(child):
                catalog.drop_table(table)
            catalog.drop_namespace(child)


class RestContract(CatalogContract):
    """A server applies updates to what a table is by then, and writes its metadata files itself."""

    # -- instead of what the other catalogs do --

    def test_a_new_table_lies_in_the_warehouse_by_namespace_and_name(self, catalog, properties):
        assert catalog.default_location("db.t") == ""
        state = make_table(catalog)
        assert state.metadata.location.startswith(properties["warehouse"])
        assert state.metadata_location.startswith(_plain(state.metadata.location))

    def test_the_loser_of_a_creation_leaves_no_file_behind(self, catalog):
        made = make_table(catalog, owner="me")
        with pytest.raises(AlreadyExistsError):
            make_table(catalog, owner="you")
        assert catalog.load("db.t") == made

    def test_a_commit_for_an_older_state_is_a_conflict_and_changes_nothing(self, catalog, other, properties):
        old = make_table(catalog)
        newer = other.commit(other.load("db.t"), _adding("color"))
        with pytest.raises(CommitConflictError, match=r"table db\.t in catalog prod was changed by another writer"):
            catalog.commit(old, _adding("taste"))
        assert catalog.load("db.t") == newer

    def test_a_commit_for_an_older_state_that_asks_for_nothing_of_it_is_added_to_the_newer_one(self, catalog, other):
        old = make_table(catalog)
        other.commit(other.load("db.t"), setting(color="green"))
        committed = catalog.commit(old, setting(taste="sweet"))
        assert committed == other.load("db.t")
        assert committed.metadata.properties.items() >= {"color": "green", "taste": "sweet"}.items()

    def test_a_change_without_updates_writes_nothing(self, catalog):
        state = make_table(catalog)
        assert catalog.commit(state, Change(updates=(), requirements=())) == state
        assert catalog.load("db.t") == state

    def test_a_purged_table_leaves_no_file_behind(self, catalog, other):
        state = fill_table(catalog)
        io = state.io or catalog.io
        table = Table(state, io=io, catalog=catalog)
        # The tables of other tests have left files in the same place.
        own = {state.metadata_location, *(task.file.file_path for task in table.scan().plan_files())}
        own |= {str(snapshot.manifest_list) for snapshot in table.snapshots()}
        assert len(own) > 2
        catalog.drop_table("db.t", purge=True)
        assert not other.table_exists("db.t")
        assert not [location for location in own if io.exists(location)]

    def test_a_dropped_table_keeps_its_files_unless_purged(self, catalog):
        state = fill_table(catalog)
        io = state.io or catalog.io
        files = {status.location for status in io.list(state.metadata.location)}
        catalog.drop_table("db.t")
        left = {status.location for status in io.list(state.metadata.location)}
        assert left == (files if self.drop_keeps_files else set())

    def test_a_purge_leaves_the_data_of_tables_whose_garbage_is_not_collected(self, catalog, other):
        """What it does with such a table is the server's affair."""
        make_table(catalog, **{"gc.enabled": "false"})
        catalog.drop_table("db.t", purge=True)
        assert not other.table_exists("db.t")

    def test_a_purge_spares_a_table_that_got_another_name_meanwhile(self, catalog, other):
        """The server drops what has the name then; which files go is its own business."""
        fill_table(catalog)
        other.rename_table("db.t", "db.u")
        with pytest.raises(NotFoundError, match=r"there is no table db\.t in catalog prod"):
            catalog.drop_table("db.t", purge=True)
        assert Table.load(other, "db.u").scan().to_arrow().num_rows == 2

    def test_a_purge_takes_the_files_of_a_commit_that_came_meanwhile(self, catalog, other):
        fill_table(catalog)
        other.commit(other.load("db.t"), setting(color="green"))
        catalog.drop_table("db.t", purge=True)
        assert not other.table_exists("db.t")

    def test_a_table_that_cannot_be_read_whole_is_not_purged(self, catalog):
        """That is the server's affair, too: all that is left to us is to ask."""
        state = fill_table(catalog)
        (state.io or catalog.io).delete([state.metadata.current_snapshot().manifest_list])
        with suppress(IcebergError):
            catalog.drop_table("db.t", purge=True)
        with suppress(NotFoundError):
            assert catalog.load("db.t") == state

    def test_forgotten_metadata_files_stay_unless_the_table_asks(self, catalog):
        """That is the server's affair; the table reads well whatever it does."""
        state = make_table(catalog, **{"write.metadata.previous-versions-max": "1"})
        for number in range(3):
            state = catalog.commit(state, setting(number=str(number)))
        assert catalog.load("db.t") == state

    def test_forgotten_metadata_files_are_deleted_when_the_table_asks(self, catalog, other):
        wishes = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
        state = make_table(catalog, **wishes)
        for number in range(3):
            state = catalog.commit(state, setting(number=str(number)))
        assert other.load("db.t") == state

    def test_compressed_metadata_says_so_in_its_name(self, catalog, other):
        """The name is the server's; the answer is never compressed."""
        state = make_table(catalog, **{"write.metadata.compression-codec": "gzip"})
        state = catalog.commit(state, setting(color="green"))
        assert other.load("db.t") == state

    def test_a_table_can_be_registered_by_its_metadata_file(self, catalog, other):
        state = make_table(catalog)
        catalog.create_namespace("away")
        catalog.drop_table("db.t")
        catalog.register_table("away.u", state.metadata_location)
        assert other.load("away.u").metadata == state.metadata
        with pytest.raises(AlreadyExistsError):
            catalog.register_table("away.u", state.metadata_location)
        with pytest.raises((NotFoundError, InvalidInputError), match=r"cannot register table away\.v"):
            catalog.register_table("away.v", f"{state.metadata_location}.nope")

    # -- what only a server does --

    def test_a_change_that_the_server_can_no_longer_apply_is_a_conflict(self, catalog, other):
        """A table that was replaced under its name is another one."""
        old = make_table(catalog)
        other.drop_table("db.t")
        made = make_table(other, owner="another")
        with pytest.raises(CommitConflictError):
            catalog.commit(old, setting(color="red"))
        assert catalog.load("db.t") == made

    def test_tables_are_committed_together_or_not_at_all(self, catalog, other):
        one, two = make_table(catalog, "db.one"), make_table(catalog, "db.two")
        catalog.commit_tables([(one, _adding("color")), (two, _adding("color"))])
        one, two = other.load("db.one"), other.load("db.two")
        assert [state.metadata.current_schema_id for state in (one, two)] == [1, 1]
        newer = catalog.commit(two, _adding("taste"))
        with pytest.raises(CommitConflictError):
            catalog.commit_tables([(one, _adding("taste")), (two, _adding("size"))])
        assert other.load("db.one") == one
        assert other.load("db.two") == newer


def _adding(name: str) -> Change:
    """A change of the schema, which relies on the ids that are free."""
    schema = schema_from_shorthand({"id": "long not null", "name": "string", name: "string"})
    return Change(updates=(AddSchema(schema=schema), SetCurrentSchema()), requirements=())


def _plain(location: str) -> str:
    """One spelling of a local location: Java writes file:/x, the catalog may say file:///x."""
    return f"file:/{location[8:]}" if location.startswith("file:///") else location
