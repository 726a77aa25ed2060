"""The catalog's tables in its database: looked for before they are read, and made before they are changed."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_iceberg.catalogs.sql.database import Database
from airflow_iceberg.catalogs.sql.tables import look, no_tables, prepare, schema_version
from airflow_iceberg.errors import NotFoundError


class OwnTables:
    """The state of the tables in one database.

    Attributes:
        has_type: whether the tables have the column of version V1; None until they were seen.
    """

    def __init__(self, name: str, database: Database, properties: Mapping[str, str]) -> None:
        self._name = name
        self._database = database
        self._properties = properties
        self._schema_version = schema_version(name, properties)
        self._empty: Database | None = None
        self.has_type: bool | None = None

    def to_read(self, *, changes_nothing: bool) -> Database:
        """Return the database to read; until the first change has made the catalog's tables, one that has no rows.

        Args:
            changes_nothing: whether this is a look that does not even complete what others have made.
        """
        if self.has_type is None:
            try:
                self.has_type = look(self._name, self._database, self._properties)
            except NotFoundError:
                if changes_nothing:
                    raise
                return self.to_change()
        if self.has_type is None:
            self._empty = self._empty or no_tables()
            return self._empty
        return self._database if changes_nothing else self.to_change()

    def to_change(self) -> Database:
        """Return the database to change, after making sure once that it has the catalog's tables."""
        if self.has_type is None or (not self.has_type and self._schema_version == "V1"):
            self.has_type = prepare(self._name, self._database, self._properties, self._schema_version)
        return self._database
