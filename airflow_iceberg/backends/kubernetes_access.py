"""How a process proves its identity to the API server of Kubernetes, and whom it trusts: as spark-submit does.

In this order: the token of the Spark connection; Spark's settings `spark.kubernetes.authenticate.submission.…`; a
kubeconfig; the service account of the pod that this process runs in. Not here: what the server is asked
(`backends.kubernetes`).
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from airflow_iceberg.backends.environment import job_environment
from airflow_iceberg.backends.private_files import write_private
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, UnsupportedError

# Extra fields of the Spark connection; two of them have the names that they have in connections to Kubernetes.
TOKEN_FIELD, CA_FIELD = "kubernetes_token", "kubernetes_ca_file"
CONFIG_FIELD, CONTEXT_FIELD = "kube_config_path", "cluster_context"
_SUBMISSION = "spark.kubernetes.authenticate.submission"
TOKEN_FILE, CA_FILE = f"{_SUBMISSION}.oauthTokenFile", f"{_SUBMISSION}.caCertFile"
CERT_FILE, KEY_FILE = f"{_SUBMISSION}.clientCertFile", f"{_SUBMISSION}.clientKeyFile"
CONTEXT = "spark.kubernetes.context"
SETTINGS = (TOKEN_FILE, CA_FILE, CERT_FILE, KEY_FILE, CONTEXT)
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# A token is read or made again after a while: those of service accounts are renewed in their file.
_KEPT_S = 60.0
_PLUGIN_S = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What a request shows and checks.

    Attributes:
        token: a bearer token.
        certificate: the files of a client's certificate and its key.
        authority: the file of the certificate authority; None for those of this machine.
    """

    token: str | None = field(default=None, repr=False)
    certificate: tuple[str, str] | None = None
    authority: str | None = None


class Access:
    """The identity of this process on one cluster.

    Args:
        server: the address of the API server.
        extra: the extra fields of the Spark connection.
        environment: the variables of spark-submit, or of this process.
        settings: those of Spark's settings that are named in `SETTINGS`.

    Raises:
        InvalidInputError: a proof would be sent in the clear.
    """

    def __init__(
        self, server: str, extra: Mapping[str, Any], environment: Mapping[str, str], settings: Mapping[str, str]
    ) -> None:
        self._extra, self._environment, self._settings = extra, environment, settings
        self._folder: str | None = None
        self._proof: Proof | None = None
        self._read_at = 0.0
        address = urlsplit(server)
        self._is_local = address.hostname in _LOOPBACK
        if address.scheme != "https" and not self._is_local:
            raise InvalidInputError(
                f"the Kubernetes API server {server} would get a token in the clear; set the host of the Spark "
                f"connection to k8s://https://…"
            )

    def proof(self) -> Proof:
        """Return the proof of the moment.

        Raises:
            NotFoundError: there is none.
            InvalidInputError: a kubeconfig, or a file that it names, cannot be read.
            UnsupportedError: the kubeconfig wants what this version does not have.
            IcebergError: the program that a kubeconfig names has made no token.
        """
        if self._proof is None or time.monotonic() - self._read_at > _KEPT_S:
            self._proof, self._read_at = self._read(), time.monotonic()
        return self._proof

    def forget(self) -> None:
        """Read the proof again when the next request is made: the server has refused it."""
        self._proof = None

    def _read(self) -> Proof:
        authority = self._extra.get(CA_FIELD) or self._settings.get(CA_FILE)
        token = str(self._extra.get(TOKEN_FIELD) or "").strip() or None
        if token is None and self._settings.get(TOKEN_FILE):
            token = _content(self._settings[TOKEN_FILE])
        if token is not None:
            return Proof(token=token, authority=authority)
        if self._settings.get(CERT_FILE) and self._settings.get(KEY_FILE):
            pair = self._settings[CERT_FILE], self._settings[KEY_FILE]
            return Proof(certificate=pair, authority=authority)
        if config := _kube_config(self._extra, self._environment):
            return self._of_config(config, authority)
        if (SERVICE_ACCOUNT / "token").is_file():
            own = str(SERVICE_ACCOUNT / "ca.crt")
            return Proof(token=_content(SERVICE_ACCOUNT / "token"), authority=authority or own)
        if self._is_local:  # kubectl proxy proves it
            return Proof(authority=authority)
        raise NotFoundError(
            f"no credentials for the Kubernetes API server: neither the extra field {TOKEN_FIELD} of the Spark "
            f"connection nor {TOKEN_FILE} is set, there is no kubeconfig (KUBECONFIG, ~/.kube/config), and this "
            f"process does not run in a pod with a service account"
        )

    def _of_config(self, config: Mapping[str, Any], authority: str | None) -> Proof:
        name = self._extra.get(CONTEXT_FIELD) or self._settings.get(CONTEXT) or config["current-context"]
        context = _named(config, "contexts", "context", name)
        cluster = _named(config, "clusters", "cluster", context.get("cluster"))
        user = _named(config, "users", "user", context.get("user"))
        if cluster.get("insecure-skip-tls-verify") and authority is None:
            raise UnsupportedError(
                f"the kubeconfig trusts any server for context {name!r} (insecure-skip-tls-verify); name the "
                f"certificate authority of the cluster there, or in the extra field {CA_FIELD} of the Spark connection"
            )
        authority = authority or self._file_of(cluster, "certificate-authority")
        token = user.get("token") or (_content(user["tokenFile"]) if user.get("tokenFile") else None)
        if token is None and user.get("exec"):
            token = _of_plugin(user["exec"], self._environment)
        pair = self._file_of(user, "client-certificate"), self._file_of(user, "client-key")
        if token is None and (pair[0] is None or pair[1] is None):
            raise UnsupportedError(
                f"the user of context {name!r} in the kubeconfig has no token, tokenFile, exec or client-certificate "
                f"with client-key; set the extra field {TOKEN_FIELD} of the Spark connection"
            )
        certificate = (pair[0], pair[1]) if pair[0] is not None and pair[1] is not None else None
        return Proof(token=token, certificate=certificate, authority=authority)

    def _file_of(self, part: Mapping[str, Any], name: str) -> str | None:
        """Return the file of a kubeconfig's entry, which may hold the content of the file instead."""
        data = part.get(f"{name}-data")
        if not data:
            return str(part[name]) if part.get(name) else None
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="airflow-iceberg-")
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = Path(self._folder) / name
        path.unlink(missing_ok=True)
        try:
            return str(write_private(path, base64.b64decode(data, validate=True)))
        except ValueError:
            raise InvalidInputError(f"{name}-data of the kubeconfig is not base64") from None


def submit_settings(
    extra: Mapping[str, Any], folder: Path, *, is_on_cluster: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return Spark's settings and the variables by which spark-submit has the access that the connection says.

    The settings are sent to the cluster: they name the file of the token, which is on this machine alone.

    Args:
        folder: a folder for the files of one submission.
        is_on_cluster: whether the driver runs there; otherwise it starts its executors itself, by settings of its own.
    """
    found = {CA_FILE: str(extra[CA_FIELD])} if extra.get(CA_FIELD) else {}
    if token := extra.get(TOKEN_FIELD):
        found[TOKEN_FILE] = str(write_private(folder / "kubernetes-token", str(token).encode()))
    prefix = _SUBMISSION if is_on_cluster else _SUBMISSION.removesuffix(".submission")
    settings = {f"{prefix}{name.removeprefix(_SUBMISSION)}": value for name, value in found.items()}
    if extra.get(CONTEXT_FIELD):
        settings[CONTEXT] = str(extra[CONTEXT_FIELD])
    return settings, {"KUBECONFIG": str(extra[CONFIG_FIELD])} if extra.get(CONFIG_FIELD) else {}


def _content(path: str | Path) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"cannot read the token in {path}: {type(error).__name__}") from None


def _kube_config(extra: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the kubeconfig, None if there is none; of several files, the first that names something counts."""
    given = str(extra.get(CONFIG_FIELD) or environment.get("KUBECONFIG") or "")
    home = Path(environment.get("HOME") or os.path.expanduser("~")) / ".kube" / "config"
    paths = [Path(text) for text in given.split(os.pathsep) if text] or [home]
    merged: dict[str, Any] = {"contexts": [], "clusters": [], "users": [], "current-context": None}
    found = [path for path in paths if path.is_file()]
    for path in found:
        try:
            document = yaml.safe_load(path.read_text())
            for kind in ("contexts", "clusters", "users"):
                merged[kind] += [_resolved(one, path.absolute().parent) for one in document.get(kind) or []]
            merged["current-context"] = merged["current-context"] or document.get("current-context")
        except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError) as error:
            # Messages of the parser show lines of the file.
            raise InvalidInputError(f"cannot read the kubeconfig {path}: {type(error).__name__}") from None
    return merged if found else None


def _resolved(entry: Any, folder: Path) -> dict[str, Any]:
    """Return an entry with absolute paths: they are relative to the file."""
    made = {**entry}
    for kind in ("cluster", "user"):
        if isinstance(made.get(kind), Mapping):
            names = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
            paths = {name: str(folder / made[kind][name]) for name in names if made[kind].get(name)}
            made[kind] = {**made[kind], **paths}
    program = made["user"].get("exec") if isinstance(made.get("user"), Mapping) else None
    if program and "/" in str(program.get("command")):  # otherwise it is looked for in PATH
        made["user"]["exec"] = {**program, "command": str(folder / program["command"])}
    return made


def _named(config: Mapping[str, Any], kinds: str, kind: str, name: Any) -> Mapping[str, Any]:
    for entry in config[kinds]:
        if entry.get("name") == name and isinstance(entry.get(kind), Mapping):
            found: Mapping[str, Any] = entry[kind]
            return found
    raise InvalidInputError(f"the kubeconfig has no {kind} {name!r}")


def _of_plugin(spec: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """Return the token that a program makes, as those of the large clouds do."""
    info = {"apiVersion": spec.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    given = {one["name"]: one["value"] for one in spec.get("env") or []}
    try:
        done = subprocess.run(
            [str(spec["command"]), *map(str, spec.get("args") or [])],
            # It may need a proxy, a home or a cloud's variables: it gets those of the list, as a job.
            env={**job_environment(environment, {}, is_told=False), **given, "KUBERNETES_EXEC_INFO": json.dumps(info)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PLUGIN_S,
            check=True,
        )
        return str(json.loads(done.stdout)["status"]["token"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        # Its output may be the token.
        raise IcebergError(
            f"the program {spec.get('command')!r} of the kubeconfig has made no token: {type(error).__name__}"
        ) from None
