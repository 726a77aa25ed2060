"""A cluster that is none: it answers like the API server of Kubernetes, for the pods of drivers.

No Kubernetes can run where the tests run. What is imitated, by the documented REST API: the list of pods by labels, in
pages whose continuation expires (410), one pod, its deletion with a precondition and a period of grace, bearer tokens
(401), missing rights (403), `Status` documents, and answers that are lost. What Spark's own submission
creates is taken, too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.stand_in_cluster import StandInCluster, Submitted

_PHASES = {"RUNNING": "Running", "PENDING": "Pending", "FAILED": "Failed"}
_LABEL = "spark.kubernetes.driver.label."


class StandInKubernetes(StandInCluster):
    """See the module.

    Attributes:
        namespace: that of the pods.
        token: what a request has to show.
        requests: the method, the path and the query of each request.
        created: the documents of all that was created or changed.
        expires: how many continuations of a list are not known any more.
        page: how many pods a page has at most.
        grace: how often a pod that is deleted is still there.
        may_delete: whether the account may.
        waiting: why pods that are pending do not start.
    """

    finished = "SUCCEEDED"

    def __init__(self, folder: Path, *, token: str = "the-t0ken-of-etl") -> None:
        self.namespace, self.token = "jobs", token
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.created: list[dict[str, Any]] = []
        self.expires, self.page, self.grace, self.may_delete = 0, 100, 1, True
        self.waiting: dict[str, str] = {}
        self._deleted: dict[str, int] = {}
        super().__init__(folder)

    @property
    def connection(self) -> dict[str, Any]:
        extra = {"deploy-mode": "cluster", "namespace": self.namespace, "kubernetes_token": self.token}
        return {"conn_type": "spark", "host": f"k8s://{self.url}", "extra": extra}

    def add(self, name: str, state: str = "RUNNING", **labels: str) -> Submitted:
        """Add a pod that nobody has submitted here."""
        conf = [f"{_LABEL}{label.replace('_', '-')}={value}" for label, value in labels.items()]
        argv = [word for setting in conf for word in ("--conf", setting)]
        self.submitted.append(Submitted(id=name, argv=argv, private={}, state=state))
        return self.submitted[-1]

    def id_of(self, number: int, body: dict[str, Any]) -> str:
        return f"airflow-iceberg-{number}-driver"

    def waits(self, one: Submitted) -> bool:
        return one.conf["spark.kubernetes.submission.waitAppCompletion"] == "true"

    def output(self, one: Submitted) -> str:
        code = "\n\t exit code: 0" if self.waits(one) else ""
        return f"INFO LoggingPodStatusWatcherImpl: Deployed with submission ID {self.namespace}:{one.id}{code}"

    def document(self, one: Submitted) -> dict[str, Any]:
        """Return what the server says of a pod."""
        labels = {name.removeprefix(_LABEL): tag for name, tag in one.conf.items() if name.startswith(_LABEL)}
        phase = _PHASES.get(one.state, "Succeeded")
        state: dict[str, Any] = {"running": {}}
        if phase == "Pending":
            state = {"waiting": self.waiting}
        elif phase != "Running":
            code = 0 if phase == "Succeeded" else 137
            state = {"terminated": {"exitCode": code, "reason": one.diagnostics or "Completed"}}
        return {
            "kind": "Pod",
            "metadata": {
                "name": one.id,
                "namespace": self.namespace,
                "uid": f"uid-{self.submitted.index(one)}",
                "labels": {"spark-role": "driver", "spark-app-selector": "spark-1", **labels},
            },
            "status": {"phase": phase, "containerStatuses": [{"name": "spark-kubernetes-driver", "state": state}]},
        }

    def answer(
        self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> tuple[int, Any]:
        self.requests.append((method, path, dict(query)))
        if headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        folder = f"/api/v1/namespaces/{self.namespace}/pods"
        if method in ("POST", "PATCH"):
            return self._create(body)
        if "watch" in query:
            return 200, ""
        if not path.startswith(folder):
            return _status(403, "Forbidden")
        if path == folder:
            return self._list(query)
        known = {one.id: one for one in self._there()}.get(path.removeprefix(f"{folder}/"))
        if known is None:
            return _status(404, "NotFound")
        if method == "DELETE":
            return self._delete(known, body)
        if known.id in self._deleted:
            self._deleted[known.id] -= 1
        return 200, self.document(known)

    def _create(self, body: dict[str, Any]) -> tuple[int, Any]:
        self.created.append(body)
        if body["kind"] != "Pod":
            return 200, body
        one = self.add(body["metadata"]["name"], **body["metadata"]["labels"])
        known = self.document(one)["metadata"]
        return 201, {**body, "metadata": {**body["metadata"], **known, "resourceVersion": "1"}, "status": {}}

    def _there(self) -> list[Submitted]:
        return [one for one in self.submitted if self._deleted.get(one.id, 1) > 0]

    def _list(self, query: Mapping[str, str]) -> tuple[int, Any]:
        wanted = dict(part.split("=", 1) for part in query["labelSelector"].split(","))
        pods = [self.document(one) for one in self._there()]
        found = [pod for pod in pods if wanted.items() <= pod["metadata"]["labels"].items()]
        start, size = int(query.get("continue", "0")), min(self.page, int(query.get("limit", "500")))
        if start and self.expires:
            self.expires -= 1
            return _status(410, "Expired")
        following = str(start + size) if start + size < len(found) else ""
        return 200, {"kind": "PodList", "metadata": {"continue": following}, "items": found[start : start + size]}

    def _delete(self, known: Submitted, body: Any) -> tuple[int, Any]:
        if not self.may_delete:
            return _status(403, "Forbidden")
        pod = self.document(known)
        if body["preconditions"]["uid"] != pod["metadata"]["uid"]:
            return _status(409, "Conflict")
        self._deleted.setdefault(known.id, self.grace)
        known.diagnostics = "deleted by a request"
        return 200, pod

    def is_deleted(self, one: Submitted) -> bool:
        return one.id in self._deleted


def _status(code: int, reason: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": "no"}
