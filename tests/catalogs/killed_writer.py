"""A writer that is killed between its commit and the answer: what every catalog behind a proxy must make of it."""

import json
import os
import signal
import subprocess
import sys

from airflow_iceberg.table import Table

PROGRAM = """
import json, sys, pyarrow as pa
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.table import Table
key = OperationKey(dag_id='d', run_id='r', task_id='t')
table = Table.load(load_catalog('prod', **json.loads(sys.argv[1])), 'db.t')
print(table.append(pa.table({'id': [1]}), operation_key=key).outcome)
"""


def check_that_the_retry_finds_the_commit(catalog, shaky_properties, proxy, *commit):
    """Kill a writer when its commit has reached the server, and run it again.

    Args:
        catalog: on the server itself.
        shaky_properties: of the same catalog through the proxy.
        commit: how the proxy recognises the request of a commit.
    """

    def ids():
        return sorted(Table.load(catalog, "db.t").scan().to_arrow()["id"].to_pylist())

    Table.create(catalog, "db.t", schema={"id": "long"})
    command = [sys.executable, "-c", PROGRAM, json.dumps(shaky_properties)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def kill(request, forward):
        forward(request)
        os.kill(writer.pid, signal.SIGKILL)

    proxy.on(*commit, kill)
    assert writer.communicate(timeout=120)[0] == ""
    assert writer.returncode == -signal.SIGKILL
    assert ids() == [1]
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.stdout.strip() == "found", again.stderr
    assert ids() == [1]
