"""Applications that run while no worker waits for them: how somebody else asks for their state, and ends them.

Whoever has submitted one leaves a reference, JSON without secrets, by which any process reaches it; the triggerer does.
Here: who is asked for each kind of reference. Not here: submitting (`backends.spark_submit`), waiting (`triggers.job`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from airflow_iceberg.backends.asking import Application, Manager
from airflow_iceberg.backends.kubernetes import KUBERNETES, ApiServer
from airflow_iceberg.backends.yarn import YARN, ResourceManager
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import said

log = logging.getLogger(__name__)

# YARN forgets applications that ended long ago, and a resource manager may know one only a moment after it has started.
_LOOKS_FOR_UNKNOWN = 3
# The trigger asks again after a while: it does not wait in one of the triggerer's threads.
_PATIENCE_S = 5.0
# A triggerer gives the end of an application half a minute.
_END_S = 20.0


class Followed:
    """An application that was submitted.

    Args:
        cluster: what messages call its cluster.
        tag: of its submission: another application may have its id after a cluster was set up anew.
    """

    def __init__(self, manager: Manager, application_id: str, *, cluster: str, tag: str) -> None:
        self._manager, self._id = manager, application_id
        self._cluster, self._tag = cluster, tag
        self._unknown = 0
        self._waiting = ""

    def look(self) -> str | None:
        """Return how it ended, for messages; None while it runs or waits for its turn.

        Raises:
            IcebergError: no answer, or a refusal.
        """
        found = self._find(_PATIENCE_S)
        if found is None:
            self._unknown += 1
            is_gone = self._unknown >= _LOOKS_FOR_UNKNOWN
            return f"{self._cluster} does not know {self._id} (any more)" if is_gone else None
        self._unknown = 0
        if not found.is_running:
            return f"{self._id} ended on {self._cluster} {said(found.ending)}"
        if found.waiting not in ("", self._waiting):
            self._waiting = found.waiting
            log.warning("%s waits on %s: %s", self._id, self._cluster, said(found.waiting))
        return None

    def end(self) -> None:
        """End it, and wait until it has ended; safe to be repeated; errors as of `look`."""
        if self._find(_END_S) is not None:
            self._manager.end([self._id], patience_s=_END_S)

    def _find(self, patience_s: float) -> Application | None:
        found = self._manager.state(self._id, patience_s=patience_s)
        return found if found is None or found.has_tag(self._tag) else None


def follow(reference: Mapping[str, Any]) -> Followed:
    """Return the application of a reference.

    Raises:
        InvalidInputError: a reference of another version.
        IcebergError: as of `ApiServer.of`.
    """
    kind = reference.get("kind")
    if kind not in _KINDS:
        raise InvalidInputError(f"a job of kind {kind!r} cannot be followed, expected one of {', '.join(_KINDS)}")
    return _KINDS[kind](reference)


def _yarn(reference: Mapping[str, Any]) -> Followed:
    manager = ResourceManager.from_dict(reference)
    return Followed(manager, str(reference["application_id"]), cluster="YARN", tag=str(reference["tag"]))


def _kubernetes(reference: Mapping[str, Any]) -> Followed:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException
    from airflow.sdk import BaseHook

    try:
        connection = BaseHook.get_connection(str(reference["conn_id"]))
    except AirflowNotFoundException:
        connection = None
    server = ApiServer.from_dict(reference, connection, os.environ)
    return Followed(server, str(reference["pod"]), cluster="Kubernetes", tag=str(reference["tag"]))


_KINDS: Mapping[Any, Callable[[Mapping[str, Any]], Followed]] = {YARN: _yarn, KUBERNETES: _kubernetes}
