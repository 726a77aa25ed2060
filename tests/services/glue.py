"""Glue as moto has it, with the version check that AWS makes and moto leaves out.

    python -m tests.services.glue PORT        # is the server

The check and what it guards are one step, as a creation is: moto answers requests in threads.
"""

import sys
import tempfile
import threading
from pathlib import Path

from tests.services.launch import HOST, Server, answers, free_ports

KEYS = {"glue.region": "eu-central-1", "glue.access-key-id": "testing", "glue.secret-access-key": "s3cret-glue-key"}


def start_glue() -> tuple[Server, str]:
    """Start a server and return it with its address; `POST <address>/moto-api/reset` empties it."""
    (port,) = free_ports(1)
    directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-glue-"))
    command = [sys.executable, "-m", "tests.services.glue", str(port)]
    root = Path(__file__).resolve().parents[2]
    server = Server(command, log=directory / "log", cwd=root)
    address = f"http://{HOST}:{port}"
    return server.start(lambda: answers(f"{address}/moto-api/data.json")), address


def check_versions() -> None:
    """Let moto's UpdateTable refuse a VersionId that is not the table's, and make each change one step."""
    from moto.core.exceptions import JsonRESTError
    from moto.glue.responses import GlueResponse

    one_at_a_time = threading.Lock()
    update, create = GlueResponse.update_table, GlueResponse.create_table

    def checked_update(self: GlueResponse) -> object:
        asked = self.parameters.get("VersionId")
        with one_at_a_time:
            if asked is not None:
                name = self.parameters["TableInput"]["Name"]
                table = self.glue_backend.get_table(self.parameters["DatabaseName"], name)
                if str(asked) != table.as_dict()["VersionId"]:
                    raise JsonRESTError(
                        "ConcurrentModificationException", "Update table failed due to concurrent modifications."
                    )
            return update(self)

    def locked_create(self: GlueResponse) -> object:
        with one_at_a_time:
            return create(self)

    GlueResponse.update_table, GlueResponse.create_table = checked_update, locked_create


if __name__ == "__main__":
    from moto.server import main

    check_versions()
    main(["-H", HOST, "-p", sys.argv[1]])
