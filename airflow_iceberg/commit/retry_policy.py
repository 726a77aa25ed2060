"""How often and how long a commit is retried, as the table's properties say. The loop itself is `commit.engine`."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.properties.table_properties import TableProperties

# Differs from Java: it gives up after 4 retries, which eight writers that append at once easily reach (docs/adr/0010).
# Unless the table sets a number, the time limit alone ends the loop.
UNLIMITED_RETRIES = 2**31 - 1
# Differs from Java: without a limit on the number of retries the wait is short; 60 s are meant for a few attempts.
LIMITED_MAX_WAIT_MS, UNLIMITED_MAX_WAIT_MS = 60_000, 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How often and how long to retry: the table's properties `commit.retry.*` and `commit.status-check.*`, in
    milliseconds.
    """

    num_retries: int = UNLIMITED_RETRIES
    min_wait_ms: int = TableProperties.retry_min_wait_ms.default
    max_wait_ms: int = UNLIMITED_MAX_WAIT_MS
    total_timeout_ms: int = TableProperties.retry_total_timeout_ms.default
    check_num_retries: int = TableProperties.status_check_num_retries.default
    check_min_wait_ms: int = TableProperties.status_check_min_wait_ms.default
    check_max_wait_ms: int = TableProperties.status_check_max_wait_ms.default
    check_total_timeout_ms: int = TableProperties.status_check_total_timeout_ms.default

    @classmethod
    def of(cls, metadata: TableMetadata) -> RetryPolicy:
        """Read the policy of a table.

        Raises:
            InvalidInputError: a property is not a number.
        """
        properties = TableProperties.of(metadata.properties)
        num_retries, max_wait_ms = properties.retry_num_retries, properties.retry_max_wait_ms
        longest_ms = UNLIMITED_MAX_WAIT_MS if num_retries is None else LIMITED_MAX_WAIT_MS
        return cls(
            num_retries=UNLIMITED_RETRIES if num_retries is None else num_retries,
            min_wait_ms=properties.retry_min_wait_ms,
            max_wait_ms=longest_ms if max_wait_ms is None else max_wait_ms,
            total_timeout_ms=properties.retry_total_timeout_ms,
            check_num_retries=properties.status_check_num_retries,
            check_min_wait_ms=properties.status_check_min_wait_ms,
            check_max_wait_ms=properties.status_check_max_wait_ms,
            check_total_timeout_ms=properties.status_check_total_timeout_ms,
        )
