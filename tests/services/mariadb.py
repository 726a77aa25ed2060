"""A real MariaDB, from Debian's package; it is installed where that is missing and we may do it."""

import os
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

from tests.services.launch import HOST, Server, free_ports

USER, PASSWORD = "lab", "s3cret"


class MariaDB:
    """A server on a free port; user `lab` with `PASSWORD` may do everything.

    Attributes:
        port: where it listens.
    """

    def __init__(self) -> None:
        _install()
        self._directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-mariadb-"))
        self._user = "mysql" if os.geteuid() == 0 else ""  # the server refuses to run as root
        if self._user:
            shutil.chown(self._directory, self._user)
        self._data = self._directory / "data"
        command = ["mariadb-install-db", "--no-defaults", f"--datadir={self._data}", "--skip-test-db"]
        command += ["--auth-root-authentication-method=normal", *([f"--user={self._user}"] if self._user else [])]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)
        start = self._directory / "start.sql"
        user = f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
        start.write_text(f"{user}GRANT ALL ON *.* TO '{USER}'@'%';\n")
        (self.port,) = free_ports(1)
        self._server: Server
        self.start()

    def start(self) -> None:
        command = [_program(), "--no-defaults", f"--datadir={self._data}", f"--bind-address={HOST}"]
        command += [f"--port={self.port}", f"--socket={self._directory}/socket", f"--pid-file={self._data}/pid"]
        command += [f"--init-file={self._directory}/start.sql", "--innodb-flush-log-at-trx-commit=2"]
        log = self._directory / "log"
        popen = {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}
        self._server = Server(command, log=log, **popen).start(self._is_ready)

    def _is_ready(self) -> bool:
        import pymysql

        try:
            pymysql.connect(host=HOST, port=self.port, user=USER, password=PASSWORD, connect_timeout=2).close()
        except pymysql.Error:
            return False
        return True

    def stop(self) -> None:
        self._server.kill()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def new_database(self, *, port: int | None = None) -> str:
        import pymysql

        name = f"iceberg_{uuid.uuid4().hex[:12]}"
        with pymysql.connect(host=HOST, port=self.port, user=USER, password=PASSWORD) as connection:
            connection.cursor().execute(f"CREATE DATABASE {name}")
        return self.uri(name, port=port)

    def uri(self, database: str, *, port: int | None = None, password: str = PASSWORD) -> str:
        """The URI of a database, perhaps through a proxy or with another password."""
        return f"mysql+pymysql://{USER}:{password}@{HOST}:{port or self.port}/{database}"


def _program() -> str:
    found = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/libexec:/usr/local/sbin")
    if found is None:
        raise FileNotFoundError("there is no mariadbd: install the package mariadb-server")
    return found


def _install() -> None:
    try:
        _program()
    except FileNotFoundError:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "mariadb-server"]):
            command = ["apt-get", "-q", *arguments]
            subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL, timeout=900)
