"""Lakana, a lakehouse server with an Iceberg REST catalog, from a wheel: in an environment of its own, on loopback.

Its dependencies are pinned to versions of its own, hence the environment. Tables lie below the namespaces `bronze`,
`silver` and `gold` of an environment, which is the prefix of all paths.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.services.launch import HOST, Server, Service, answers, cached, free_ports

VERSION = "0.20.0"
ENVIRONMENT = "dev"
_KEY, _SECRET = "tests", "s3cret-of-the-tests-of-lakana"


class Lakana(Service):
    """One server with a warehouse in a directory of its own, over SQLite.

    Attributes:
        uri: of the catalog.
        warehouse: location under which its tables lie.
    """

    def __init__(self) -> None:
        program = _program()
        super().__init__("lakana")
        (self.directory / "lake").mkdir()
        self.warehouse = f"file://{self.directory / 'lake'}"
        (self.port,) = free_ports(1)
        self.uri = f"http://{HOST}:{self.port}"
        self._token = f"lakana_pat_{_KEY}_{_SECRET}"
        own = {
            "LAKANA_DATABASE__URL": f"sqlite:///{self.directory / 'meta.db'}",
            "LAKANA_BOOTSTRAP_PAT_KEY_ID": _KEY,
            "LAKANA_BOOTSTRAP_PAT_SECRET": _SECRET,
            "LAKANA_PORT": str(self.port),
        }
        # Its environment must not find the packages of this one.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | own
        subprocess.run([program, "migrate"], env=environment, check=True, capture_output=True, timeout=300)
        self._server = Server([program], log=self.directory / "log", cwd=self.directory, env={**own, "PYTHONPATH": ""})

    def start(self) -> Lakana:
        self._server.start(lambda: answers(f"{self.uri}/openapi.json"))
        body = {"name": ENVIRONMENT, "storage": {"scheme": "file", "root": self.warehouse}}
        asked = urllib.request.Request(
            f"{self.uri}/api/v1/environments",
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=30):
            return self

    @property
    def catalog_properties(self) -> dict[str, str]:
        return {
            "type": "rest",
            "uri": self.uri,
            "token": self._token,
            "prefix": ENVIRONMENT,
            "allowed-locations": self.warehouse,
        }


def _program() -> Path:
    def fill(directory: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory / "venv"], check=True, timeout=300)
        site = next((directory / "venv" / "lib").glob("python*")) / "site-packages"
        command = [sys.executable, "-m", "pip", "install", "-q", f"--target={site}", f"lakana-server=={VERSION}"]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=900)
        # The programs of a target are bound to the Python that installed them, not to the environment's.
        program = directory / "venv" / "bin" / "lakana-server"
        found = "next(iter(entry_points(group='console_scripts', name='lakana-server')))"
        entry = f"import sys; from importlib.metadata import entry_points; sys.exit({found}.load()())"
        program.write_text(f'#!/bin/sh\nexec "$(dirname "$0")/python" -c "{entry}" "$@"\n')
        program.chmod(0o755)

    name = f"lakana-{VERSION}-py{sys.version_info.major}.{sys.version_info.minor}"
    return cached(name, fill) / "venv" / "bin" / "lakana-server"
