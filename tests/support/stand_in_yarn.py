"""A cluster that is none: it answers like YARN's resource manager; the real YARN is in `tests.services.yarn`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.stand_in_cluster import StandInCluster, Submitted

__all__ = ["StandInYarn", "Submitted", "document"]


def document(one: Submitted) -> dict[str, str]:
    """Return what the manager says of an application."""
    return {
        "id": one.id,
        "user": "etl",
        "state": one.state,
        "finalStatus": {"RUNNING": "UNDEFINED", "FINISHED": "SUCCEEDED"}.get(one.state, one.state),
        "diagnostics": one.diagnostics,
        "applicationTags": one.conf["spark.yarn.tags"].lower(),
    }


class StandInYarn(StandInCluster):
    """See the module.

    Attributes:
        forbidden: the applications that nobody may end: those of another user.
        lies: what it says instead of some fields, of all applications.
    """

    def __init__(self, folder: Path) -> None:
        self.forbidden: set[str] = set()
        self.lies: dict[str, str] = {}
        super().__init__(folder)

    @property
    def connection(self) -> dict[str, Any]:
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": self.url}
        return {"conn_type": "spark", "host": "yarn", "extra": extra}

    def id_of(self, number: int, body: dict[str, Any]) -> str:
        return f"application_{os.getpid()}_{number:04d}"

    def waits(self, one: Submitted) -> bool:
        return one.conf["spark.yarn.submit.waitAppCompletion"] == "true"

    def output(self, one: Submitted) -> str:
        return f"INFO Client: Submitted application {one.id}\n\t tracking URL: {self.url}/proxy/{one.id}/\n\t user: etl"

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> tuple[int, Any]:
        path = path.removeprefix("/ws/v1/cluster/")
        if path == "info":
            return 200, {"clusterInfo": {"haState": "ACTIVE"}}
        if path == "apps":
            tag = query["applicationTags"]
            found = [document(one) for one in self.submitted if one.state == "RUNNING"]
            return 200, {"apps": {"app": [one for one in found if tag in one["applicationTags"]]}}
        known = {one.id: one for one in self.submitted}.get(path.split("/")[1])
        if known is None:
            return 404, {"RemoteException": {"exception": "NotFoundException"}}
        if method == "PUT" and known.id in self.forbidden:
            return 403, {"RemoteException": {"exception": "ForbiddenException"}}
        if method == "PUT" and known.state == "RUNNING":
            self.end(known, "KILLED", "killed by a request")
        return 200, {"state": known.state} if method == "PUT" else {"app": {**document(known), **self.lies}}
