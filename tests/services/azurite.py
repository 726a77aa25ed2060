"""Azurite, Microsoft's emulator of Azure's Blob storage, from npm."""

import subprocess
from pathlib import Path

from tests.services.launch import HOST, Service, cached, free_ports, listens

VERSION = "3.35.0"  # the last one that runs on Node 20
CONTAINER = "lake"
ACCOUNT = "devstoreaccount1"
# Every Azurite has this account and this key; both are in Microsoft's documentation.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class Azurite(Service):
    """A server with an empty container `lake`.

    Attributes:
        endpoint: of its Blob API, account included.
    """

    def __init__(self) -> None:
        super().__init__("azurite")
        (port,) = free_ports(1)
        self.endpoint = f"http://{HOST}:{port}/{ACCOUNT}"
        program = cached(f"azurite-{VERSION}", _install) / "node_modules" / ".bin" / "azurite-blob"
        command = [program, "--blobHost", HOST, "--blobPort", str(port), "--location", self.directory, "--silent"]
        # The Python client speaks a newer version of the API than any Azurite knows.
        command += ["--disableTelemetry", "--skipApiVersionCheck"]
        self.serve(command, lambda: listens(port))
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(self.connection_string()) as client:
            client.create_container(CONTAINER)

    def connection_string(self, key: str = KEY) -> str:
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={self.endpoint};"

    def properties(self) -> dict[str, str]:
        """The properties by which a catalog or a FileIO reaches it."""
        return {"adls.connection-string": self.connection_string()}


def _install(directory: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), f"azurite@{VERSION}"]
    subprocess.run(command, cwd=directory, check=True, stdin=subprocess.DEVNULL, timeout=600)
