"""What clusters that are none share: they take what is submitted, and run it when told to.

What is submitted comes from the real back end, by a `spark-submit` that hands it over. A job runs in threads, from its
plan and its private file, and signs its result as a driver does. The kinds: `stand_in_yarn`, `stand_in_kubernetes`.
"""

import json
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
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
print(answer)
sys.exit(0 if answer.startswith("INFO ") else 1)
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


class StandInCluster:
    """See the module.

    Attributes:
        submitted: the applications, the oldest first.
        then: called with each of them when it was submitted; by default it runs to its end.
        is_down: whether questions get no answer.
        refused: how many got none.
        loses: of how many requests that change something the answer is lost.
    """

    finished = "FINISHED"

    def __init__(self, folder: Path) -> None:
        self.submitted: list[Submitted] = []
        self.then: Callable[[Submitted], Any] = self.finish
        self.is_down = False
        self.refused = self.loses = 0
        self.server = ThreadingHTTPServer((_HOST, 0), self._handler())
        self.url = f"http://{_HOST}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.home = folder / "spark"
        for name in ("bin", "jars", "conf"):
            (self.home / name).mkdir(parents=True)
        (self.home / "jars" / "spark-core_2.13-4.2.0.jar").touch()
        script = self.home / "bin" / "spark-submit"
        script.write_text(_SUBMIT.format(python=sys.executable, url=self.url))
        script.chmod(0o755)

    def finish(self, one: Submitted, change: Callable[[JobResult], JobResult] = lambda result: result) -> None:
        """Run an application to its end."""
        location, seal = one.argv[-2:]
        io = load_file_io(one.private.get("storage") or {})
        plan = JobPlan.open(io, location, seal).completed(one.private["source"])
        result = change(run_local(plan, io, threads=2))
        io.delete([plan.result_location])
        write_result(plan, io, result, secret=one.private["result-secret"])
        one.state = self.finished

    def end(self, one: Submitted, state: str, diagnostics: str = "") -> None:
        """Let an application end without a result."""
        one.state, one.diagnostics = state, diagnostics

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    @abstractmethod
    def id_of(self, number: int, body: dict[str, Any]) -> str:
        """Return the id of an application, of which there were `number - 1` before."""

    @abstractmethod
    def waits(self, one: Submitted) -> bool:
        """Whether spark-submit waits for the end."""

    @abstractmethod
    def output(self, one: Submitted) -> str:
        """Return what spark-submit writes; it begins with "INFO "."""

    @abstractmethod
    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> tuple[int, Any]:
        """Return the status and the document of an answer."""

    def _submit(self, body: dict[str, Any]) -> str:
        number = len(self.submitted) + 1
        one = Submitted(id=self.id_of(number, body), argv=body["argv"], private=json.loads(body["private"]))
        self.submitted.append(one)
        self.then(one)
        return self.output(one)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        cluster = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                if cluster.is_down:
                    cluster.refused += 1
                    self._reply(503, "starting")
                    return
                status, document = cluster.answer(self.command, parts.path, query, body, self.headers)
                if self.command != "GET" and cluster.loses:
                    cluster.loses -= 1
                    self.close_connection = True
                    return
                self._reply(status, document if isinstance(document, str) else json.dumps(document))

            def do_PUT(self) -> None:
                self.do_GET()

            def do_DELETE(self) -> None:
                self.do_GET()

            def do_PATCH(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                if self.path != "/submit":
                    self.do_GET()
                    return
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    self._reply(200, cluster._submit(body))
                except Exception as error:  # spark-submit says what went wrong
                    self._reply(200, f"{type(error).__name__}: {error}")

            def _reply(self, status: int, text: str) -> None:
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.end_headers()
                    self.wfile.write(text.encode())
                except OSError:
                    pass  # a spark-submit that was killed

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
