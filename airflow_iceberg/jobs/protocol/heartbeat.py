"""Signs of life of a job: new documents in its staging folder, by which a removal of orphan files knows that it runs.

Written by the process that waits for the job, and by the job's driver, since the process may be gone: the task is
deferred. Not here: what is made of them (`operations.staging.living_jobs`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

from airflow_iceberg.errors import IcebergError
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

# Orphan files are at least a day old, unless `allow_recent` is set.
HEARTBEAT_S = 60 * 60


@contextmanager
def kept_alive(io: FileIO, staging_location: str) -> Iterator[None]:
    """Write a new document into a try's staging folder from time to time.

    A store that fails is no reason to end the job: the commit checks that its files are there.
    """
    ended = threading.Event()

    def beat() -> None:
        # Two are kept: a listing that has begun before the last one was written finds the one before it.
        kept: list[str] = []
        while not ended.wait(HEARTBEAT_S):
            place = f"{staging_location}/alive-{uuid4().hex[:12]}"
            try:
                io.create(place, b"the job runs")
                kept.append(place)
                if len(kept) > 2:
                    io.delete([kept.pop(0)])
            except IcebergError as error:
                log.warning("cannot write a sign of life of a job: %s", error)

    thread = threading.Thread(target=beat, name="iceberg-job-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=10)
