"""The REST catalog on SeaweedFS: tokens, the contract, and the oddities of a server that is not Java's."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from tests.catalogs.contract import make_table
from tests.catalogs.rest_contract import RestContract, empty
from tests.services.seaweedfs import SeaweedFS


@pytest.fixture(scope="module")
def server():
    server = SeaweedFS().start()
    yield server
    server.stop()


@pytest.fixture
def properties(server):
    """The properties of a catalog that holds nothing."""
    empty(load_catalog("clean", **server.catalog_properties))
    return server.catalog_properties


class TestContract(RestContract):
    """SeaweedFS's catalog, reached with client credentials, is a catalog."""

    @pytest.fixture
    def properties(self, server):
        empty(load_catalog("clean", **server.catalog_properties))
        return server.catalog_properties

    def test_of_many_that_create_one_table_one_succeeds(self, properties, catalog):
        """This server lets several succeed when they come at the same moment, and keeps one: it is one of theirs."""

        def create(number: int) -> str | None:
            mine = load_catalog("prod", **properties)
            try:
                return make_table(mine, owner=str(number)).metadata.table_uuid
            except AlreadyExistsError:
                return None

        with ThreadPoolExecutor(4) as pool:
            told = [uuid for uuid in pool.map(create, range(4)) if uuid]
        assert catalog.load("db.t").metadata.table_uuid in told

    def test_names_that_begin_alike_or_differ_in_case_are_different(self, catalog):
        """It has no capital letters at all."""
        catalog.create_namespace("d_x")
        assert not catalog.namespace_exists("d")
        assert not catalog.namespace_exists("dax")
        assert not catalog.namespace_exists("db.x")
        with pytest.raises(InvalidInputError, match="namespace DB"):
            catalog.namespace_exists("DB")
        assert catalog.list_tables("d_x") == ()

    def test_a_table_can_be_registered_by_its_metadata_file(self):
        """It takes the file of a table that is there, answers rightly, and can't remove or load that entry again.

        So this test has a server of its own, and believes the answer.
        """
        server = SeaweedFS().start()
        try:
            catalog = load_catalog("prod", **server.catalog_properties)
            catalog.create_namespace("db")
            state = make_table(catalog)
            registered = catalog.register_table("db.u", state.metadata_location)
            assert (registered.metadata, registered.metadata_location) == (state.metadata, state.metadata_location)
            with pytest.raises(AlreadyExistsError):
                catalog.register_table("db.u", state.metadata_location)
            with pytest.raises((NotFoundError, InvalidInputError), match=r"cannot register table db\.v"):
                catalog.register_table("db.v", f"{state.metadata_location}.nope")
        finally:
            server.stop()
