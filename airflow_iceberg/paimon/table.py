"""`PaimonTable`: a Paimon table at a location, read.

Not here: its schemas, snapshots and all I/O (`history`), the files of a snapshot (`files`), and what `inspect` returns
(`system_tables`).
"""

from airflow_iceberg.paimon.files import PaimonFiles
from airflow_iceberg.paimon.system_tables import PaimonInspection


class PaimonTable(PaimonFiles):
    """One branch of a Paimon table, and what it holds."""

    @property
    def inspect(self) -> PaimonInspection:
        """What the table holds, as Arrow tables."""
        return PaimonInspection(self)
