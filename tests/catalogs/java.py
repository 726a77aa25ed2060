"""Catalogs for a Spark with Iceberg Java that runs already: Spark looks for a catalog when its name is used first."""

import uuid

from tests.support.iceberg_java import IcebergJava

POSTGRESQL_DRIVER = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>postgresql-driver</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.postgresql</groupId><artifactId>postgresql</artifactId><version>42.7.4</version></dependency>
  </dependencies>
</project>
"""


def add_catalog(java: IcebergJava, *, name: str = "", **settings: str) -> str:
    """Let Spark know one more Iceberg catalog, and return its name, which must be new to this Spark."""
    name = name or f"c{uuid.uuid4().hex[:8]}"
    for key, value in {"cache-enabled": "false", **settings}.items():
        java.sql(f"set `spark.sql.catalog.{name}.{key}`=`{value}`")
    java.sql(f"set spark.sql.catalog.{name}=org.apache.iceberg.spark.SparkCatalog")
    return name
