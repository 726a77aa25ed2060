"""`PaimonTable`: a Paimon table at a location."""

from airflow_iceberg.paimon.files import PaimonFiles
from airflow_iceberg.paimon.system_tables import PaimonInspection


class PaimonTable(PaimonFiles):
    """One branch of a Paimon table."""

    @property
    def inspect(self) -> PaimonInspection:
        """The table's content as Arrow tables."""
        return PaimonInspection(self)
