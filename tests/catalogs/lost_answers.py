"""What every catalog behind an HTTP proxy must make of answers that are lost."""

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest

from airflow_iceberg.errors import CommitUnknownError
from airflow_iceberg.table import Table
from tests.catalogs.contract import make_table, setting
from tests.services.http_proxy import double, fail_after, fail_before, lose_reply, lose_request

PROGRAM = """
import json, sys, pyarrow as pa
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.table import Table
key = OperationKey(dag_id='d', run_id='r', task_id='t')
table = Table.load(load_catalog('prod', **json.loads(sys.argv[1])), 'db.t')
print(table.append(pa.table({'id': [1]}), operation_key=key).outcome)
"""


def rows(*numbers):
    return pa.table({"id": pa.array(numbers, pa.int64())})


def ids(catalog, name="db.t"):
    return sorted(Table.load(catalog, name).scan().to_arrow()["id"].to_pylist())


class LostAnswersContract:
    """What changes something is sent once; what became of it is looked up.

    A subclass has the fixtures `catalog`, `proxy` and `shaky`, the catalog through the proxy.

    Attributes:
        COMMIT: how the proxy recognises the request of a commit.
        CREATE: how it recognises that of a creation.
        UNKNOWN: the message when the outcome is unknown.
    """

    COMMIT: tuple[str, str]
    CREATE: tuple[str, str]
    UNKNOWN: str

    @pytest.mark.parametrize("fault", [lose_reply, double, fail_after(500), fail_after(502), fail_after(503)])
    def test_a_commit_that_landed_is_found(self, catalog, shaky, proxy, fault):
        state = make_table(catalog)
        proxy.on(*self.COMMIT, fault)
        committed = shaky.commit(state, setting(a="1"))
        assert proxy.is_done
        assert sum(self.COMMIT[1] in f"{request.path} {request.headers}" for request in proxy.requests) == 1
        assert catalog.load("db.t") == committed
        assert catalog.io.exists(committed.metadata_location)
        assert shaky.commit(committed, setting(b="1")) == catalog.load("db.t")

    @pytest.mark.parametrize("fault", [lose_request, fail_before(500), fail_before(502), fail_before(503)])
    def test_one_that_did_not_is_unknown_and_nothing_is_deleted(self, catalog, shaky, proxy, fault):
        state = make_table(catalog)
        proxy.on(*self.COMMIT, fault)
        with pytest.raises(CommitUnknownError, match=self.UNKNOWN) as raised:
            shaky.commit(state, setting(a="1"))
        assert catalog.load("db.t") == state
        assert catalog.io.exists(raised.value.metadata_location)

    @pytest.mark.parametrize("fault", [lose_reply, double, fail_after(500), fail_after(504)])
    def test_a_creation_is_found(self, catalog, shaky, proxy, fault):
        proxy.on(*self.CREATE, fault)
        made = make_table(shaky)
        assert proxy.is_done
        assert catalog.load("db.t") == made
        assert shaky.commit(made, setting(a="1")) == catalog.load("db.t")

    def test_an_append_lands_once_whatever_is_lost(self, catalog, shaky, proxy):
        Table.create(catalog, "db.t", schema={"id": "long"})
        table = Table.load(shaky, "db.t")
        faults = (lose_request, lose_reply, double, fail_after(502), fail_before(500), fail_before(504), lose_reply)
        for number, fault in enumerate(faults):
            proxy.on(*self.COMMIT, fault)
            table.append(rows(number))
        assert proxy.is_done
        assert ids(catalog) == list(range(len(faults)))
        assert len(Table.load(catalog, "db.t").snapshots()) == len(faults)

    def test_the_retry_of_a_writer_that_was_killed_before_the_answer_finds_its_commit(self, catalog, shaky, proxy):
        Table.create(catalog, "db.t", schema={"id": "long"})
        command = [sys.executable, "-c", PROGRAM, json.dumps(dict(shaky.properties))]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        def kill(request, forward):
            forward(request)
            os.kill(writer.pid, signal.SIGKILL)

        proxy.on(*self.COMMIT, kill)
        assert writer.communicate(timeout=120)[0] == ""
        assert writer.returncode == -signal.SIGKILL
        assert ids(catalog) == [1]
        again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert again.stdout.strip() == "found", again.stderr
        assert ids(catalog) == [1]
