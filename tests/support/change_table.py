"""An action for tests of the engine: any updates, and no snapshot of its own."""

from collections.abc import Callable

from airflow_iceberg.commit.engine import Action
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change


class ChangeTable(Action):
    """An action without a snapshot: fixed updates that are computed from whatever the table is now."""

    def __init__(self, change: Callable[[TableMetadata], Change]) -> None:
        self._change = change

    def __call__(self, metadata: TableMetadata) -> Change:
        return self._change(metadata)

    def landed(self, metadata: TableMetadata) -> None:
        """Told by the engine from the metadata file's name alone: there is no snapshot to look for."""

    def has_surely_not_landed(self, metadata: TableMetadata, base: TableMetadata) -> bool:
        return True
