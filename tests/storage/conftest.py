"""The stores that the tests of this folder share."""

from tests.services.stores import azurite, gcs, hdfs, seaweedfs  # noqa: F401
