"""The applications of a task on a cluster: what they are tagged with, and how they are ended.

An application on YARN or Kubernetes can outlive the worker that has submitted it. The tag of its work is the same for
all tries of a task, so that a later try finds it; the tag of its submission is of this one only, so that a task that
was given up does not end the application of the try that has followed it. Not here: asking a cluster (`backends.yarn`,
`backends.kubernetes`).
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any

from airflow_iceberg.backends.asking import Manager
from airflow_iceberg.backends.kubernetes import DRIVER_LABEL, SUBMISSION_LABEL, WORK_LABEL
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError

log = logging.getLogger(__name__)

TAGS = "spark.yarn.tags"
# A task that is killed has a minute by default; its application is one of the things that it ends.
_KILL_S = 20.0
# What a spark-submit that was just killed had sent is known to the resource manager within milliseconds.
_LOOKS, _LOOK_S = 5, 0.5


def work_tag(operation_key: str, table_uuid: str) -> str:
    """Return the tag of a task's work on a table: the same for all tries, and after a clear.

    Raises:
        InvalidInputError: the text is no operation key.
    """
    work = f"{table_uuid}/{OperationKey.parse(operation_key).work}"
    return f"airflow-iceberg-{hashlib.sha256(work.encode()).hexdigest()[:32]}"


class Applications:
    """What a submission leaves on a cluster, and what earlier tries of the same work have left there.

    Args:
        operation_key: the key of the task's work; None outside of Airflow.
        open_manager: a function that returns who knows the cluster's applications; IcebergError if that is unknown.
    """

    def __init__(self, operation_key: str | None, table_uuid: str, open_manager: Callable[[], Manager]) -> None:
        self._work = None if operation_key is None else work_tag(operation_key, table_uuid)
        self._own = f"{SUBMISSION_LABEL}-{secrets.token_hex(16)}"
        self._open_manager = open_manager

    def tags(self, others: str | None) -> str:
        """Return the value of `spark.yarn.tags`: the tags of the work and of the submission after those of others."""
        given = [tag.strip() for tag in (others or "").split(",") if tag.strip()]
        return ",".join([*given, *filter(None, (self._work, self._own))])

    def labels(self) -> dict[str, str]:
        """Return the settings that label a driver pod on Kubernetes with its work and its submission."""
        found = {WORK_LABEL: self._work, SUBMISSION_LABEL: self._own}
        return {f"{DRIVER_LABEL}{name}": tag for name, tag in found.items() if tag}

    def end_earlier(self) -> None:
        """End what an earlier try of the work has left on the cluster, and wait until it has ended.

        It could only waste the cluster's time: what it writes is not committed.
        """
        if self._work is None:
            return
        try:
            manager = self._open_manager()
            found = manager.find(self._work)
            for application_id in found:
                log.warning(
                    "an earlier try of this task has left %s running on the cluster; it is ended", application_id
                )
            manager.end(found)
        except IcebergError as error:
            log.warning(
                "it is unknown whether an earlier try of this task still runs on the cluster: %s; the job is submitted "
                "all the same, and only what the last try reports is committed",
                error,
            )

    def reference(self, application_id: str | None) -> dict[str, Any]:
        """Return the reference of what was submitted, for `backends.following`.

        Args:
            application_id: as spark-submit has logged it; None if its settings let it log nothing.
        Raises:
            IcebergError: it is not known, or the manager does not answer.
        """
        found = self._open_manager().reference(self._own, application_id)
        if found is None:
            raise IcebergError("the cluster does not know what was submitted, it may have ended at once")
        return dict(found)

    def end_own(self, *, was_killed: bool) -> None:
        """End what was submitted, if it still runs; called from signal handlers, possibly several times.

        Args:
            was_killed: whether spark-submit was killed this moment, so that its last request may be on its way.
        """
        try:
            manager = self._open_manager()
            for look in range(_LOOKS if was_killed else 1):
                if look:
                    time.sleep(_LOOK_S)
                found = manager.find(self._own, patience_s=_KILL_S)
                if found:
                    manager.end(found, patience_s=_KILL_S)
                    log.warning("%s was ended on the cluster", ", ".join(found))
                    return
        except IcebergError as error:
            log.warning(
                "it is unknown whether the application has ended on the cluster: %s; what it writes is not committed, "
                "and the task's next try ends it",
                error,
            )
