"""The settings of one commit, with its random ids and clock; see `OpenTable.commit_settings`."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from airflow_iceberg import __version__
from airflow_iceberg.commit.operation_key import CLOCKS_DIFFER_MS, OperationKey, check_properties
from airflow_iceberg.errors import StorageError, check_storable
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.partitions.spec import PartitionSpec
from airflow_iceberg.format.snapshots import MAIN_BRANCH

log = logging.getLogger(__name__)

_DAY_MS = 24 * 60 * 60 * 1000

ENGINE = {"engine-name": "airflow-iceberg", "engine-version": __version__}


def now_ms() -> int:
    """Milliseconds since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def new_snapshot_id() -> int:
    """A random positive 63-bit id; if the table has it already, the metadata is refused."""
    return secrets.randbits(63) or 1


def settings_for(
    metadata: TableMetadata,
    *,
    table_uuid: str | None = None,
    branch: str = MAIN_BRANCH,
    operation_key: OperationKey | None = None,
    try_number: int = 1,
    snapshot_properties: Mapping[str, str] | None = None,
) -> CommitSettings:
    """Return the settings of one commit, with a snapshot id of its own.

    Args:
        table_uuid: the uuid of the table that was planned for; by default that of `metadata`.

    Raises:
        InvalidInputError: a snapshot property that the commit itself writes.
        StorageError: the clock of this worker is more than a day behind that of the run.
    """
    properties = snapshot_properties or {}
    check_properties(properties)
    own = operation_key.summary(try_number) if operation_key else {}
    check_storable("of the snapshot", properties)
    return CommitSettings(
        table_uuid=(metadata.table_uuid or "") if table_uuid is None else table_uuid,
        format_version=metadata.format_version,
        specs=metadata.partition_specs,
        branch=branch,
        snapshot_id=new_snapshot_id(),
        commit_uuid=uuid4(),
        now_ms=_clock_of(operation_key),
        properties={**properties, **own, **ENGINE},
        operation_key=operation_key,
    )


def _clock_of(key: OperationKey | None) -> Callable[[], int]:
    """Return a clock that is never before the start of the run, even if that of this worker is behind.

    A retry infers from the time of the oldest snapshot whether the commit of an earlier try can have expired.

    Raises:
        StorageError: it is so far behind that the time of its snapshots would mislead other writers.
    """
    if key is None or key.started_ms is None:
        return now_ms
    started_ms = key.started_ms
    behind_ms = started_ms - now_ms()
    if behind_ms > _DAY_MS:
        raise StorageError(
            f"the clock of this worker is {behind_ms // 3_600_000} hours behind the start of the DAG run of {key}; "
            f"nothing was committed, set the clock, or start the run with a start date that is not in the future"
        )
    if behind_ms > CLOCKS_DIFFER_MS:
        log.warning("the clock of this worker is %s s behind the start of the DAG run of %s", behind_ms // 1000, key)
    return lambda: max(now_ms(), started_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitSettings:
    """What every action needs in addition to its files.

    Attributes:
        table_uuid: the uuid of the table that was planned for; empty when it had none.
        format_version: the format version that was planned for; None if that is not known.
        specs: the partition specs that were planned with; those that are missing are not known.
        properties: entries of the snapshot's summary.
        operation_key: the key of the Airflow task; None outside of Airflow.
    """

    table_uuid: str
    format_version: int | None = None
    specs: tuple[PartitionSpec, ...] = ()
    branch: str = MAIN_BRANCH
    snapshot_id: int
    commit_uuid: UUID
    now_ms: Callable[[], int]
    properties: Mapping[str, str] = field(default_factory=dict)
    operation_key: OperationKey | None = None
