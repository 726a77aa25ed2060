"""What a SQL catalog on a database server must do besides the contract, whichever server it is."""

import pyarrow as pa
import pytest

from airflow_iceberg.errors import CommitUnknownError, StorageError
from tests.catalogs.contract import make_table, setting
from tests.support.postgresql import CuttingProxy


@pytest.fixture
def proxy(server):
    proxy = CuttingProxy(server.port)
    yield proxy
    proxy.close()


class SqlServerContract:
    """Programs share the database, the server is restarted, and connections are lost.

    A subclass has the fixture `shaky`, the catalog through the proxy.

    Attributes:
        DIALECT: of the database, in messages.
        COMMIT: the bytes by which the proxy recognises a COMMIT; it has a leading length in some protocols.
        PASSWORD: which no message may show.
    """

    DIALECT: str
    COMMIT: bytes
    PASSWORD: str

    def test_a_server_that_was_restarted_between_two_calls_is_no_failure(self, server, catalog):
        state = make_table(catalog)
        server.stop()
        try:
            with pytest.raises(StorageError, match=f"catalog prod cannot connect to .* on 127.0.0.1:{server.port}: "):
                catalog.load("db.t")
        finally:
            server.start()
        assert catalog.commit(state, setting(a="1")) == catalog.load("db.t")

    @pytest.mark.parametrize(
        ("is_update", "forward", "has_landed"),
        [(True, False, False), (True, True, False), (False, False, False), (False, True, True)],
    )
    def test_an_outcome_is_unknown_if_the_connection_was_lost_after_the_change_was_sent(
        self, catalog, shaky, proxy, is_update, forward, has_landed
    ):
        state = make_table(catalog)
        proxy.word, proxy.forward = b"UPDATE iceberg" if is_update else self.COMMIT, forward
        with pytest.raises(CommitUnknownError, match=f"lost the {self.DIALECT} database") as raised:
            shaky.commit(state, setting(a="1"))
        assert self.PASSWORD not in str(raised.value)
        location = raised.value.metadata_location
        assert catalog.io.exists(location)
        assert (catalog.load("db.t").metadata_location == location) is has_landed
        # and the catalog itself is not broken: its next call makes a new connection
        assert shaky.load("db.t") == catalog.load("db.t")
        assert shaky.commit(shaky.load("db.t"), setting(b="1")) == catalog.load("db.t")

    def test_pyiceberg_commits_to_the_same_table(self, catalog, properties):
        from pyiceberg.catalog.sql import SqlCatalog

        make_table(catalog)
        table = SqlCatalog("prod", **properties).load_table("db.t")
        table.append(pa.table({"id": [1]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])))
        state = catalog.commit(catalog.load("db.t"), setting(a="1"))
        assert state.metadata.current_snapshot().summary["total-records"] == "1"
        assert table.refresh().properties == {"a": "1"}
