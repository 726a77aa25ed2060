"""Catalogs for a Spark with Iceberg Java that runs already: Spark looks for a catalog when its name is used first."""

import uuid

from tests.services.launch import pom
from tests.support.iceberg_java import IcebergJava

DRIVERS = pom("org.postgresql:postgresql:42.7.4", "org.apache.iceberg:iceberg-aws-bundle:1.10.1")


def add_catalog(java: IcebergJava, *, name: str = "", **settings: str) -> str:
    """Let Spark know one more Iceberg catalog, and return its name, which must be new to this Spark."""
    name = name or f"c{uuid.uuid4().hex[:8]}"
    for key, value in {"cache-enabled": "false", **settings}.items():
        java.sql(f"set `spark.sql.catalog.{name}.{key}`=`{value}`")
    java.sql(f"set spark.sql.catalog.{name}=org.apache.iceberg.spark.SparkCatalog")
    return name
