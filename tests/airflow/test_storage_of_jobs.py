"""How a Spark job gets what it needs to reach the table's files, and that no secret is seen on the way."""

import json
import logging
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_iceberg.backends.backend import _reaching
from airflow_iceberg.backends.config import SparkConfig, storage_properties
from airflow_iceberg.backends.spark_submit import SparkSubmit, spark_environment
from airflow_iceberg.errors import UnsupportedError
from airflow_iceberg.storage import FsspecFileIO

SECRETS = {
    "credential": "client:s3cr3t-credential",
    "token": "s3cr3t-token",
    "adls.account-key": "s3cr3t-account-key",
    "adls.connection-string": "AccountName=a;AccountKey=s3cr3t-connection-key;",
    "s3.secret-access-key": "s3cr3t-access-key",
    "s3.session-token": "s3cr3t-session-token",
    "uri": "postgresql://me:s3cr3t-password@db/x",
}
PROPERTIES = {**SECRETS, "s3.access-key-id": "the-key-id", "s3.endpoint": "http://s3.example.com:9000"}


def submission(deploy_mode: str = "client") -> SparkSubmit:
    connection: Any = SimpleNamespace(
        conn_id="spark_default", conn_type="spark", host="local[1]", extra_dejson={"deploy-mode": deploy_mode}
    )
    return SparkSubmit(connection, SparkConfig(), storage=storage_properties(PROPERTIES), name="t")


class TestWhatAJobGets:
    """The storage's properties, by the environment of its own process; of the catalog's it gets nothing."""

    def test_the_catalogs_credentials_stay_behind(self) -> None:
        assert not {"credential", "token", "uri"} & set(storage_properties(PROPERTIES))

    def test_the_driver_gets_them_by_its_environment(self) -> None:
        environment = submission()._machine.environment
        assert json.loads(environment["AIRFLOW_ICEBERG_STORAGE"]) == storage_properties(PROPERTIES)
        assert environment["AWS_SECRET_ACCESS_KEY"] == "s3cr3t-access-key"
        assert environment["AWS_ENDPOINT_URL"] == "http://s3.example.com:9000"
        assert "AWS_SECRET_ACCESS_KEY" not in spark_environment({"s3.endpoint": "http://x"})

    def test_what_a_rest_catalog_lent_for_the_table_goes_along(self) -> None:
        catalog = SimpleNamespace(properties={"s3.endpoint": "http://x", "credential": "c"})
        table: Any = SimpleNamespace(catalog=catalog, io=FsspecFileIO({"s3.access-key-id": "lent"}))
        assert storage_properties(_reaching(table)) == {"s3.endpoint": "http://x", "s3.access-key-id": "lent"}

    def test_a_driver_on_the_cluster_is_refused_credentials_and_told_what_to_do(self) -> None:
        with pytest.raises(UnsupportedError, match="use deploy mode client, or let the cluster have its own") as raised:
            submission("cluster")
        assert "s3cr3t" not in str(raised.value)


class TestNoSecretIsSeen:
    """Not on the command line, in a log, in a rendered field, or in what an error says."""

    def test_the_command_line_and_the_log_show_none(self, monkeypatch: Any, caplog: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
        plan: Any = SimpleNamespace(operation="append", table="s.t", location="file:///plan.json")
        with caplog.at_level(logging.DEBUG):
            hook = submission()._open_hook(plan, Path("/core.zip"))
            command = hook._build_spark_submit_command("/main.py")
        shown = json.dumps(command) + hook._mask_cmd(command) + caplog.text + repr(submission()._machine)
        assert "s3cr3t" not in shown
        assert "spark.hadoop.fs.s3a.endpoint=http://s3.example.com:9000" in command
        assert "s3cr3t" not in json.dumps(dict(os.environ))

    # The drivers of the others wait for long before they give up.
    @pytest.mark.parametrize(
        "location",
        ["s3://b/f", *(pytest.param(each, marks=pytest.mark.services) for each in ("abfs://c/f", "gs://b/f"))],
    )
    def test_no_error_of_a_store_shows_one(self, location: str) -> None:
        away = {
            **PROPERTIES,
            "s3.endpoint": "http://127.0.0.1:9",
            "gcs.service.host": "http://127.0.0.1:9",
            "gcs.oauth2.token": "s3cr3t-gcs-token",
            "adls.account-name": "account",
        }
        away["adls.connection-string"] = (
            "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=czNjcjN0LWtleQ==;BlobEndpoint=http://127.0.0.1:9/a;"
        )
        with pytest.raises(Exception) as raised:
            FsspecFileIO(away).read(location)
        shown, inner = "", raised.value
        while inner is not None:
            shown += f"{inner}{inner!r}"
            inner = inner.__cause__ or (None if inner.__suppress_context__ else inner.__context__)
        assert not [secret for secret in ("s3cr3t", "czNjcjN0LWtleQ==") if secret in shown]
