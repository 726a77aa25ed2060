"""The settings of one commit, with its random ids and clock; see `OpenTable.commit_settings`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from airflow_iceberg import __version__
from airflow_iceberg.commit.operation_key import OperationKey, check_properties
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH

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
    """
    properties = snapshot_properties or {}
    check_properties(properties)
    own = operation_key.summary(try_number) if operation_key else {}
    return CommitSettings(
        table_uuid=(metadata.table_uuid or "") if table_uuid is None else table_uuid,
        format_version=metadata.format_version,
        branch=branch,
        snapshot_id=new_snapshot_id(),
        commit_uuid=uuid4(),
        now_ms=now_ms,
        properties={**properties, **own, **ENGINE},
        operation_key=operation_key,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitSettings:
    """What every action needs in addition to its files.

    Attributes:
        table_uuid: the uuid of the table that was planned for; empty when it had none.
        format_version: the format version that was planned for; None if that is not known.
        properties: entries of the snapshot's summary.
        operation_key: the key of the Airflow task; None outside of Airflow.
    """

    table_uuid: str
    format_version: int | None = None
    branch: str = MAIN_BRANCH
    snapshot_id: int
    commit_uuid: UUID
    now_ms: Callable[[], int]
    properties: Mapping[str, str] = field(default_factory=dict)
    operation_key: OperationKey | None = None
