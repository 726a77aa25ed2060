"""A real Nessie server: the Quarkus runner from Maven on a Java 21, contents in memory."""

import subprocess
import tempfile
from pathlib import Path

from tests.services.launch import HOST, Server, answers, cached, free_ports, java_home

# The newest version whose server jar Maven Central has.
VERSION = "0.99.0"
ARTIFACT = f"org.projectnessie.nessie:nessie-quarkus:{VERSION}:jar:runner"


def start_nessie() -> tuple[Server, str]:
    """Start a server and return it with the address of its API, version 2."""
    port, management_port = free_ports(2)
    directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-nessie-"))
    settings = {
        "quarkus.http.host": HOST,
        "quarkus.http.port": port,
        "quarkus.management.host": HOST,
        "quarkus.management.port": management_port,
        "quarkus.http.access-log.enabled": "false",
        "nessie.version.store.type": "IN_MEMORY",
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
