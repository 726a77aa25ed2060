"""A commit costs as many round trips as its protocol needs: the figures of docs/stores.md, counted.

Those of the other catalogs are counted beside their other tests, by classes of the name `TestRoundTrips`.
"""

import re
import uuid
from contextlib import contextmanager

import pytest
import sqlalchemy

from airflow_iceberg.errors import CommitConflictError
from tests.catalogs.contract import make_table, new_catalog, setting
from tests.services.gcs import BUCKET as GCS_BUCKET
from tests.services.http_proxy import HttpProxy
from tests.services.seaweedfs import BUCKET as S3_BUCKET


# Each gives a proxy to a service, the root of what lies there, and the properties that lead through it.
@contextmanager
def gcs(server):
    with HttpProxy(server.endpoint) as proxy:
        yield proxy, f"gs://{GCS_BUCKET}", {**server.properties(), "gcs.service.host": proxy.uri}


@contextmanager
def seaweedfs(server):
    with HttpProxy(server.s3_endpoint) as proxy:
        # As a proxy: the name of the host is part of each signature.
        yield proxy, f"s3://{S3_BUCKET}", {**server.s3_properties, "s3.proxy-uri": proxy.uri}


@contextmanager
def azurite(server):
    with HttpProxy(server.endpoint) as proxy:
        address = server.connection_string().replace(server.endpoint.rpartition("/")[0], proxy.uri)
        yield proxy, "abfs://lake", {"adls.connection-string": address}


@contextmanager
def hdfs(server):
    with HttpProxy(f"http://{server.web_authority}") as proxy:
        yield proxy, f"webhdfs://127.0.0.1:{proxy.port}", {"hdfs.user": "root"}


def requests_of(service, request):
    """Return the requests of a load, of a commit in a Hadoop catalog that has committed before, and of a lost race."""
    with service(request.getfixturevalue(service.__name__)) as (proxy, root, properties):
        catalog = new_catalog(type="hadoop", warehouse=f"{root}/{uuid.uuid4().hex}", **properties)
        state = catalog.commit(make_table(catalog), setting(a="1"))
        proxy.count()
        catalog.load("db.t")
        loading = proxy.count()
        catalog.commit(state, setting(b="1"))
        committing = proxy.count()
        with pytest.raises(CommitConflictError):
            catalog.commit(state, setting(c="1"))
        return loading, committing, proxy.count()


class TestHadoopOnAnObjectStore:
    """Four requests to load, nine to commit, of which one is the commit, one to lose; the same on each of them."""

    @pytest.mark.parametrize("service", [gcs, seaweedfs, pytest.param(azurite, marks=pytest.mark.services)])
    def test_requests(self, service, request):
        assert [len(requests) for requests in requests_of(service, request)] == [4, 9, 1]


@pytest.mark.services
class TestHadoopOnHdfs:
    """A directory of files that a name is asked for: more questions, each of them small."""

    def test_requests_to_the_name_node(self, request):
        loading, committing, losing = ([asked(*each) for each in found] for found in requests_of(hdfs, request))
        assert loading.count("OPEN") == 2, "the hint and the metadata"
        # A table that was dropped and made anew has files of the same names: only the uuid in the base's file tells.
        assert committing.count("OPEN") == 3, "the hint before and after, and the base's uuid instead of its status"
        assert committing.count("RENAME") == 1, "the commit"
        assert (len(loading), len(committing), len(losing)) == (8, 15, 1)


def asked(_method, path):
    return re.search(r"[?&]op=(\w+)", path)[1]


class TestSql:
    """One query to load, one update to commit; a file each."""

    def test_statements(self, tmp_path):
        catalog = new_catalog(type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
        state = make_table(catalog)
        statements = []

        def remember(_connection, _cursor, statement, *_) -> None:
            if not statement.startswith("BEGIN"):
                statements.append(statement.split()[0])

        sqlalchemy.event.listen(catalog._opened._engine, "before_cursor_execute", remember)
        catalog.load("db.t")
        assert statements == ["SELECT"]
        catalog.commit(state, setting(a="1"))
        assert statements == ["SELECT", "UPDATE"]
