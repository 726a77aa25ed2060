"""The applications of a task on a cluster: what they are tagged with, and how they are ended.

An application on YARN can outlive the worker that has submitted it. The tag of its work is the same for all tries of a
task, so that a later try finds it; the tag of its submission is of this one only, so that a task that was given up
does not end the application of the try that has followed it. Not here: asking YARN (`backends.yarn`).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from airflow_iceberg.backends.following import yarn_reference
from airflow_iceberg.backends.private_files import default_settings
from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError, InvalidInputError

log = logging.getLogger(__name__)

TAGS = "spark.yarn.tags"
LABEL = "spark.kubernetes.driver.label.airflow-iceberg-work"
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
    """What a submission leaves on a YARN cluster, and what earlier tries of the same work have left there.

    Args:
        operation_key: the key of the task's work; None outside of Airflow.
        open_manager: a function that returns the cluster's resource manager; IcebergError if it is unknown.
    """

    def __init__(self, operation_key: str | None, table_uuid: str, open_manager: Callable[[], ResourceManager]) -> None:
        self._work = None if operation_key is None else work_tag(operation_key, table_uuid)
        self._own = f"airflow-iceberg-submission-{secrets.token_hex(16)}"
        self._open_manager = open_manager

    def tags(self, others: str | None) -> str:
        """Return the value of `spark.yarn.tags`: the tags of the work and of the submission after those of others."""
        given = [tag.strip() for tag in (others or "").split(",") if tag.strip()]
        return ",".join([*given, *filter(None, (self._work, self._own))])

    def labels(self) -> dict[str, str]:
        """Return the setting that labels a driver on Kubernetes with its work."""
        return {LABEL: self._work} if self._work else {}

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
        manager = self._open_manager()
        found = [application_id] if application_id else manager.find(self._own)
        if not found:
            raise IcebergError("YARN does not know the application that was submitted, it may have ended at once")
        return yarn_reference(manager, found[0])

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


def configured_tags(conf: Mapping[str, Any], properties_file: str | None, environment: Mapping[str, str]) -> str | None:
    """Return the tags that a user or the machine's spark-defaults.conf gives to applications."""
    if conf.get(TAGS):
        return str(conf[TAGS])
    path = Path(properties_file) if properties_file else None
    with contextlib.suppress(InvalidInputError, OSError):
        path = path or default_settings(environment)
        for line in reversed((path.read_text(errors="replace") if path else "").splitlines()):
            name, *value = re.split(r"\s*[\s=:]\s*", line.strip(), maxsplit=1)
            if name == TAGS and value:
                return value[0]
    return None
