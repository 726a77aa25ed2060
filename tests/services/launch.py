"""What every server of the tests needs: free ports, a process that ends with the session, and a place for downloads.

Lives here: `Server`, `cached` and `maven_jars`. Each service has a module of its own beside this one, which says how it
is set up, started and asked whether it is ready; fixtures belong into the test modules that use them.
"""

import atexit
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

HOST = "127.0.0.1"


def cache_directory() -> Path:
    """Where downloads stay between runs: outside of the work tree, or where AIRFLOW_ICEBERG_TEST_CACHE says."""
    asked = os.environ.get("AIRFLOW_ICEBERG_TEST_CACHE")
    base = Path(asked) if asked else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    directory = base if asked else base / "airflow-iceberg-tests"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder of the cache called `name`; `fill` makes its content, once, whole or not at all.

    Name it with the version ("nessie-0.99.0"), since it is never filled a second time.
    """
    target = cache_directory() / name
    with _locked(target.with_name(f"{name}.lock")):
        if not target.exists():
            half = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=target.parent))
            try:
                fill(half)
                half.rename(target)
            except BaseException:
                shutil.rmtree(half, ignore_errors=True)
                raise
    return target


ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
"""What makes a dependency come without those of its own."""


def pom(*dependencies: str) -> str:
    """Return a pom of dependencies, each written as "group:artifact:version" and then, perhaps, XML of its own."""
    listed = []
    for text in dependencies:
        group, artifact, rest = text.split(":", 2)
        version, mark, more = rest.partition("<")
        name = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        listed.append(f"<dependency>{name}<version>{version}</version>{mark}{more}</dependency>")
    own = "<groupId>tests</groupId><artifactId>tests</artifactId><version>1</version><packaging>pom</packaging>"
    body = f"<modelVersion>4.0.0</modelVersion>{own}<dependencies>{''.join(listed)}</dependencies>"
    return f"<project>{body}</project>"


def hadoop_settings(settings: Mapping[str, str]) -> str:
    """Return the settings of a program of Hadoop as XML."""
    rows = (f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    return "\n".join(["<configuration>", *rows, "</configuration>"])


def maven_jars(name: str, pom: str) -> Path:
    """Return a folder with the jars of a pom's runtime dependencies, fetched once by Maven."""

    def fill(directory: Path) -> None:
        (directory / "pom.xml").write_text(pom)
        jars = f"-DoutputDirectory={directory / 'jars'}"
        command = ["mvn", "-q", "-B", "-f", "pom.xml", "dependency:copy-dependencies", "-DincludeScope=runtime", jars]
        subprocess.run(command, cwd=directory, check=True, stdin=subprocess.DEVNULL, timeout=900)

    return cached(name, fill) / "jars"


def java_home(*versions: int) -> str:
    """Return the home of a Java of one of these major versions, the machine's or the one from a wheel."""
    from airflow_iceberg.jobs.spark import installation

    return str(installation.java_home(versions))


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on; all different."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class Service:
    """A server with a folder of its own, which is removed with it.

    Attributes:
        directory: the folder.
    """

    def __init__(self, name: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"airflow-iceberg-{name}-"))
        self._server: Server

    def serve(self, command: Sequence[str | Path], is_ready: Callable[[], bool], **options: Any) -> None:
        self._server = Server(command, log=self.directory / "log", **options).start(is_ready)

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back with its data."""
        self._server.kill()

    def stop(self) -> None:
        self._server.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Server:
    """A process (and all that it starts) that listens on the loopback interface until `stop` or the session's end.

    Args:
        log: the file for its output; its end is part of the error when it does not start.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **popen: Any,
    ) -> None:
        self.command = [str(word) for word in command]
        self.log = log
        self._cwd = cwd
        self._env = {**os.environ, **(env or {})}
        self._popen = popen
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    def start(self, is_ready: Callable[[], bool], *, seconds: float = 300) -> Self:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=self._cwd,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                **self._popen,
            )
        deadline = time.monotonic() + seconds
        while not is_ready():
            has_ended = self.process.poll() is not None
            if has_ended or time.monotonic() > deadline:
                self.kill()
                what = "ended before it was ready" if has_ended else f"did not become ready in {seconds} s"
                text = self.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{self.command[0]} {what}; its log ends:\n{text}")
            time.sleep(0.1)
        return self

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        self.kill()

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def listens(port: int) -> bool:
    """Tell whether something accepts connections on a port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0


def answers(url: str, *, status: int = 200) -> bool:
    """Tell whether a URL is answered with this status."""
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return bool(reply.status == status)
    except urllib.error.HTTPError as error:
        return error.code == status
    except OSError:
        return False


@contextmanager
def _locked(path: Path) -> Any:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
