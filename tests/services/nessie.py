"""A real Nessie server: the Quarkus runner from Maven on a Java 21, contents in memory."""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.services.launch import HOST, Server, answers, cached, free_ports, java_home
from tests.services.seaweedfs import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedFS

# The newest version whose server jar Maven Central has.
VERSION = "0.99.0"
ARTIFACT = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"


def start_nessie(more: Mapping[str, str] | None = None) -> tuple[Server, str]:
    """Start a server with more settings, and return it with the address of its API, version 2."""
    port, management_port = free_ports(2)
    directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-nessie-"))
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": port,
        "quarkus.management.host": HOST,
        "quarkus.management.port": management_port,
        "quarkus.http.access-log.enabled": "false",
        "nessie.version.store.type": "IN_MEMORY",
        **(more or {}),
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    command = [f"{java_home(21)}/bin/java", "-Xmx512m", *options, "-jar", _jar()]
    uri = f"http://{HOST}:{port}/api/v2"
    server = Server(command, log=directory / "log", cwd=directory)
    return server.start(lambda: answers(f"{uri}/config")), uri


def _jar() -> Path:
    def fill(directory: Path) -> None:
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={directory}"]
        subprocess.run(command, cwd=directory, check=True, stdin=subprocess.DEVNULL, timeout=900)

    return cached(f"nessie-{VERSION}", fill) / f"nessie-quarkus-{VERSION}-runner.jar"


def start_nessie_rest(s3: SeaweedFS) -> tuple[Server, str]:
    """Start a server whose Iceberg REST endpoint has the warehouse `wh` in a bucket; return it with the address."""
    options = "nessie.catalog.service.s3.default-options"
    server, uri = start_nessie(
        {
            "nessie.catalog.default-warehouse": "wh",
            "nessie.catalog.warehouses.wh.location": f"s3://{BUCKET}/wh",
            f"{options}.region": "us-east-1",
            f"{options}.endpoint": s3.s3_endpoint,
            f"{options}.path-style-access": "true",
            f"{options}.auth-type": "STATIC",
            f"{options}.access-key": "urn:nessie-secret:quarkus:keys",
            "keys.name": ACCESS_KEY,
            "keys.secret": SECRET_KEY,
        }
    )
    return server, uri.replace("/api/v2", "/iceberg")
