"""A cluster that is none: it answers like YARN's resource manager, takes what is submitted, and runs it when told to.

What is submitted comes from the real back end, by a `spark-submit` that hands it over. A job runs in threads, from its
plan and its private file, and signs its result as a driver does. The real YARN is in `tests.services.yarn`.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from airflow_iceberg.jobs.protocol.plan import JobPlan
from airflow_iceberg.jobs.protocol.result import JobResult, write_result
from airflow_iceberg.jobs.run_local import run_local
from airflow_iceberg.storage.stores.fsspec_io import load_file_io

_HOST = "127.0.0.1"
_SUBMIT = """#!{python}
import json, sys, urllib.request
argv = sys.argv[1:]
private = open(argv[argv.index("--files") + 1]).read()
body = json.dumps({{"argv": argv, "private": private}}).encode()
answer = urllib.request.urlopen(urllib.request.Request("{url}/submit", body, method="POST")).read().decode()
print("INFO Client: Submitted application " + answer if answer.startswith("application_") else answer)
sys.exit(0 if answer.startswith("application_") else 1)
"""


@dataclass(kw_only=True)
class Submitted:
    """An application as the cluster knows it."""

    id: str
    argv: list[str]
    private: dict[str, Any] = field(repr=False)
    state: str = "RUNNING"
    diagnostics: str = ""

    @property
    def conf(self) -> dict[str, str]:
        settings = [after for word, after in zip(self.argv, self.argv[1:], strict=False) if word == "--conf"]
        return dict(one.split("=", 1) for one in settings)

    @property
    def document(self) -> dict[str, str]:
        return {
            "id": self.id,
            "state": self.state,
            "finalStatus": {"RUNNING": "UNDEFINED", "FINISHED": "SUCCEEDED"}.get(self.state, self.state),
            "diagnostics": self.diagnostics,
            "applicationTags": self.conf["spark.yarn.tags"],
        }


class StandInYarn:
    """See the module.

    Attributes:
        submitted: the applications, the oldest first.
        then: called with each of them when it was submitted; by default it runs to its end.
        is_down: whether questions get no answer.
        refused: how many got none.
    """

    def __init__(self, folder: Path) -> None:
        self.submitted: list[Submitted] = []
        self.then: Callable[[Submitted], Any] = self.finish
        self.is_down = False
        self.refused = 0
        self._server = ThreadingHTTPServer((_HOST, 0), self._handler())
        self.url = f"http://{_HOST}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.home = folder / "spark"
        for name in ("bin", "jars", "conf"):
            (self.home / name).mkdir(parents=True)
        (self.home / "jars" / "spark-core_2.13-4.2.0.jar").touch()
        script = self.home / "bin" / "spark-submit"
        script.write_text(_SUBMIT.format(python=sys.executable, url=self.url))
        script.chmod(0o755)

    @property
    def connection(self) -> dict[str, Any]:
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": self.url}
        return {"conn_type": "spark", "host": "yarn", "extra": extra}

    def finish(self, one: Submitted, change: Callable[[JobResult], JobResult] = lambda result: result) -> None:
        """Run an application to its end."""
        location, seal = one.argv[-2:]
        io = load_file_io(one.private.get("storage") or {})
        plan = JobPlan.open(io, location, seal).completed(one.private["source"])
        result = change(run_local(plan, io, threads=2))
        io.delete([plan.result_location])
        write_result(plan, io, result, secret=one.private["result-secret"])
        one.state = "FINISHED"

    def end(self, one: Submitted, state: str, diagnostics: str = "") -> None:
        """Let an application end without a result."""
        one.state, one.diagnostics = state, diagnostics

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _submit(self, body: dict[str, Any]) -> str:
        number = len(self.submitted) + 1
        one = Submitted(
            id=f"application_{os.getpid()}_{number:04d}", argv=body["argv"], private=json.loads(body["private"])
        )
        self.submitted.append(one)
        if one.conf["spark.yarn.submit.waitAppCompletion"] == "true":
            self.finish(one)
        else:
            self.then(one)
        return one.id

    def _answer(self, path: str, query: dict[str, list[str]], kill: bool) -> tuple[int, Any]:
        if path == "info":
            return 200, {"clusterInfo": {"haState": "ACTIVE"}}
        if path == "apps":
            tag = query["applicationTags"][0]
            found = [one for one in self.submitted if one.state == "RUNNING" and tag in one.document["applicationTags"]]
            return 200, {"apps": {"app": [one.document for one in found]}}
        known = {one.id: one for one in self.submitted}.get(path.split("/")[1])
        if known is None:
            return 404, {"RemoteException": {"exception": "NotFoundException"}}
        if kill and known.state == "RUNNING":
            self.end(known, "KILLED", "killed by a request")
        return 200, {"state": known.state} if kill else {"app": known.document}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                path, is_kill = parts.path.removeprefix("/ws/v1/cluster/"), self.command == "PUT"
                if cluster.is_down:
                    cluster.refused += 1
                    self._reply(503, "starting")
                    return
                status, document = cluster._answer(path, parse_qs(parts.query), is_kill)
                self._reply(status, json.dumps(document))

            def do_PUT(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    self._reply(200, cluster._submit(body))
                except Exception as error:  # spark-submit says what went wrong
                    self._reply(200, f"{type(error).__name__}: {error}")

            def _reply(self, status: int, text: str) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
