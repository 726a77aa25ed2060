"""A standalone cluster of Spark: a master and a worker of the Spark that is installed here."""

import json
import urllib.request
from typing import Any

from airflow_iceberg.jobs.spark.installation import environment, spark_home
from tests.services.launch import HOST, Server, Service, free_ports


class Standalone(Service):
    """A master with one worker.

    Attributes:
        url: what a Spark connection has as its host.
    """

    def __init__(self) -> None:
        super().__init__("spark")
        port, self._web, worker_web = free_ports(3)
        self.url = f"spark://{HOST}:{port}"
        known = {**environment(), "SPARK_LOCAL_IP": HOST, "SPARK_WORKER_DIR": str(self.directory / "work")}
        start = [spark_home() / "bin" / "spark-class"]
        name = "org.apache.spark.deploy"
        at = ["--host", HOST, "--port", str(port), "--webui-port", str(self._web)]
        self.serve([*start, f"{name}.master.Master", *at], lambda: self._workers() >= 0, env=known)
        size = ["--host", HOST, "--cores", "2", "--memory", "2g", "--webui-port", str(worker_web)]
        worker = [*start, f"{name}.worker.Worker", *size, self.url]
        self._worker = Server(worker, log=self.directory / "worker.log", env=known)
        self._worker.start(lambda: self._workers() == 1)

    def applications(self, kind: str = "activeapps") -> list[dict[str, Any]]:
        """Return what the master says of its applications, `activeapps` or `completedapps`."""
        with urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=30) as reply:
            found: list[dict[str, Any]] = json.load(reply)[kind]
        return found

    def stop(self) -> None:
        self._worker.kill()
        super().stop()

    def _workers(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=2) as reply:
                return int(json.load(reply)["aliveworkers"])
        except OSError:
            return -1
