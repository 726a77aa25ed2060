"""A real Spark Connect server, from the pyspark of this environment: two cores, on the loopback interface.

The wheel has no `sbin/start-connect-server.sh`; that script submits the class that is submitted here.
"""

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from tests.services.launch import HOST, Service, free_ports, java_home, listens

TOKEN = "c0nnect-t0ken/of+tests"


class SparkConnectServer(Service):
    """A server that asks for a token, and whose UI answers.

    Attributes:
        port: of Spark Connect. A client that has a token and no TLS has to call the host `localhost`.
        ui: the address of Spark's web pages.
    """

    def __init__(self, conf: Mapping[str, str] | None = None, *, token: str | None = TOKEN) -> None:
        from airflow_iceberg.jobs.spark.installation import environment, spark_home

        super().__init__("spark-connect")
        self.port, ui_port = free_ports(2)
        self.ui = f"http://{HOST}:{ui_port}"
        settings = {
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.port": str(ui_port),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            "spark.local.dir": str(self.directory / "local"),
            # For some rows, generated code costs more than it saves.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            **(conf or {}),
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"]
        environ = {**environment(), "JAVA_HOME": java_home(17, 21), "SPARK_LOCAL_IP": HOST}
        environ |= {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": "", "SPARK_HOME": str(spark_home())}
        environ |= {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token} if token else {}
        self.serve(
            [spark_home() / "bin" / "spark-submit", *main, *options],
            lambda: listens(self.port) and listens(ui_port),
            cwd=self.directory,
            env=environ,
        )

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def page(self, path: str) -> str:
        """Return a page of the UI."""
        with urllib.request.urlopen(f"{self.ui}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def rest(self, path: str) -> Any:
        """Return an answer of the UI's REST interface about the server's application."""
        (application,) = json.loads(self.page("/api/v1/applications"))
        return json.loads(self.page(f"/api/v1/applications/{application['id']}{path}"))

    def jobs(self, status: str | None = None) -> list[Any]:
        """Return Spark's jobs, the newest first."""
        return list(self.rest("/jobs" + (f"?status={status}" if status else "")))


def wait_for(answer: Callable[[], Any], what: str, *, seconds: float = 120) -> Any:
    """Return the first answer that is true."""
    deadline = time.monotonic() + seconds
    while not (found := answer()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


def environment_of(port: int, *, host: str = "localhost", token: str | None = TOKEN, **extra: Any) -> dict[str, str]:
    """Return the variable that makes the Airflow connection `connect` to a server."""
    connection = {"conn_type": "spark_connect", "host": host, "port": port, "login": "etl", "extra": extra}
    return {"AIRFLOW_CONN_CONNECT": json.dumps({**connection, **({"password": token} if token else {})}), "USER": "etl"}


if __name__ == "__main__":
    server = SparkConnectServer()
    print(server.port, server.ui, os.getpid(), flush=True)
    sys.stdin.read()
    server.stop()
