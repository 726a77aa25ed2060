"""What Airflow itself shows of a connection and of a task: its masker knows names, the hooks tell it values."""

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk._shared.secrets_masker import (
    DEFAULT_SENSITIVE_FIELDS,
    SecretsMasker,
    _secrets_masker,
    redact,
)
from packaging.version import Version

from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.hooks.connection import CatalogConfig
from airflow_iceberg.hooks.iceberg import IcebergHook
from airflow_iceberg.hooks.paimon import PaimonConfig
from airflow_iceberg.jobs.spark.worker import Worker
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.redaction import is_secret
from tests.airflow.conftest import Lake, operators
from tests.airflow.test_secrets import MARK, PASSWORD, SECRETS, _kept_of
from tests.support.airflow_home import ROOT
from tests.support.airflow_versions import AIRFLOW

# Names that Airflow does not know by itself, and forms in which a secret has no name of its own.
MORE = {
    "ugi": f"etl:{MARK}-ugi",
    "hdfs.config.ssl.keystore.pass": f"{MARK}-store",
    "hdfs.config.dfs.something": f"{MARK}-hadoop",
    "gcs.session-kwargs": json.dumps({"headers": {"x-key": f"{MARK}-session"}}),
    "adls.auth.shared-key.account.key": f"{MARK}-shared",
    "header.X-Other": f"{MARK}-other",
    "header.Cookie": f"{MARK}-cookie",
    "s3.encryption-key": f"{MARK}-encryption",
    "uri": f"postgresql://me:{PASSWORD}@db/x",
}
SHOWN = {"type": "rest", "warehouse": "s3://b/w", "s3.endpoint": "https://h", "catalog_name": "prod"}
# Of the literals of a DAG, which Airflow stores as they are, like the DAG's code.
FIELD = "Zq8Field"
# Airflow's own serializer of a connection, for its API and with that its UI.
PROGRAM = """
import json, sys
import airflow.settings
airflow.settings._configure_secrets_masker()
from airflow.api_fastapi.core_api.datamodels.connections import ConnectionResponse
fields = {"conn_type": "iceberg_catalog", "description": None, "host": "h", "login": "me", "schema": None, "port": 1}
fields |= {"password": "Zq9Secret-password", "team_name": None}
shown = [
    ConnectionResponse.model_validate({**fields, "conn_id": "c", "extra": json.dumps(extra)}).model_dump_json()
    for extra in json.load(sys.stdin)
]
print(json.dumps(shown))
"""


def setting() -> str:
    """Return the setting as the page on connections gives it for this Airflow."""
    page = (ROOT / "docs" / "connections.md").read_text()
    ours, of_older = re.findall(r"export AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES=(\S+)", page)
    return str(of_older if Version("3.3") > AIRFLOW else ours)


def shown_by_the_api(extras: list[dict[str, Any]], names: str) -> list[str]:
    environ = {**os.environ, "AIRFLOW__CORE__SENSITIVE_VAR_CONN_NAMES": names}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(extras), env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return list(json.loads(done.stdout.splitlines()[-1]))


class TestTheApi:
    """Users who may read connections see an extra without its secrets, with the setting that the docs give."""

    EXTRAS = (
        {**SHOWN, **SECRETS, **MORE},
        {**SHOWN, "properties": {**SECRETS, **MORE}},
        {**SHOWN, "properties": json.dumps({**SECRETS, **MORE}, indent=2)},
    )

    @pytest.mark.services
    def test_with_the_documented_setting_none_is_shown(self, airflow_db: Path) -> None:
        for extra, shown in zip(self.EXTRAS, shown_by_the_api(list(self.EXTRAS), setting()), strict=True):
            assert MARK not in shown, extra
            found = json.loads(json.loads(shown)["extra"])
            assert {name: found[name] for name in SHOWN} == SHOWN, "what is no secret can be read"

    @pytest.mark.parametrize("left", setting().split(","))
    def test_each_name_of_the_setting_is_needed(self, left: str) -> None:
        masker = SecretsMasker()
        masker.sensitive_variables_fields = [*DEFAULT_SENSITIVE_FIELDS, *setting().split(",")]
        assert MARK not in repr([masker.redact(extra) for extra in self.EXTRAS])
        masker.sensitive_variables_fields.remove(left)
        assert MARK in repr([masker.redact(extra) for extra in self.EXTRAS])


class TestWhatAHookMasks:
    """Values, in any form in which they can be given."""

    EXTRA = {**SECRETS, **{name: text for name, text in MORE.items() if name != "uri"}, "type": "rest"}

    @pytest.mark.parametrize("form", ["keys", "object", "text"])
    def test_every_secret(self, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
        properties = json.dumps(self.EXTRA, indent=2) if form == "text" else self.EXTRA
        extra = self.EXTRA if form == "keys" else {"type": "rest", "properties": properties}
        connection = {"conn_type": "iceberg_catalog", "host": f"https://me:{PASSWORD}@h/api", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_MASKED", json.dumps(connection))
        _secrets_masker().reset_masker()
        config = IcebergHook("masked").config
        for name, value in config.properties.items():
            if MARK in value and is_secret(name):
                assert MARK not in str(redact(f"{name} was {value}")), name
        assert MARK not in str(redact("connect to " + config.properties["uri"]))

    def test_secrets_of_digits_too(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        properties = {"header.X-Gate": 87654321, "s3.session-token": "5550123"}
        extra = {"type": "rest", "token": 12345678, "properties": properties}
        monkeypatch.setenv("AIRFLOW_CONN_DIGITS", json.dumps({"conn_type": "iceberg_catalog", "extra": extra}))
        _secrets_masker().reset_masker()
        caplog.set_level(logging.WARNING)
        assert IcebergHook("digits").config.properties["token"] == "12345678"
        for secret in ("12345678", "87654321", "5550123"):
            assert redact(f"Bearer {secret}!") == "Bearer ***!"
        assert "token of connection 'digits' is a number, which Airflow's UI shows: write it as text" in caplog.text
        assert "header.X-Gate of connection 'digits' is a number" in caplog.text
        assert "s3.session-token" not in caplog.text

    def test_a_login_in_the_address_is_named(self, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
        caplog.set_level(logging.WARNING)
        for host, is_told in (("https://h/api", False), (f"https://me:{PASSWORD}@h/api", True)):
            caplog.clear()
            monkeypatch.setenv("AIRFLOW_CONN_LOGIN", json.dumps({"conn_type": "iceberg_catalog", "host": host}))
            _ = IcebergHook("login").config
            told = "host of connection 'login' contains a login, which Airflow's UI shows: use login and password"
            assert (told in caplog.text) == is_told
            assert MARK not in caplog.text

    def test_objects_do_not_show_them(self) -> None:
        extra = json.dumps({**SECRETS, **MORE})
        connection = Connection(conn_id="c", conn_type="iceberg_catalog", host="https://h", extra=extra)
        worker = Worker(plan=b"", storage=SECRETS, max_failures=1)
        shown = repr((CatalogConfig.from_connection(connection), PaimonConfig.from_connection(connection), worker))
        assert MARK not in shown


class TestTheFieldsOfATask:
    """Airflow stores the rendered fields of every task, and shows them."""

    @pytest.mark.services
    def test_hold_no_signature_no_key_and_no_secret_argument(self, lake: Lake, run_task: Any) -> None:
        lake.create()
        signed = f"https://127.0.0.1:1/x.parquet?X-Amz-Signature={FIELD}signature&b=c"
        config = {"conf": {"spark.x.account-key": f"{FIELD}conf"}, "env_vars": {"Y_COOKIE": f"{FIELD}variable"}}
        run = run_task(
            operators(IcebergAppendOperator),
            task_id="append",
            files=[signed],
            op_kwargs={"api-key": f"{FIELD}argument", "day": "2026-01-01"},
            spark_config=config,
            spark_conn_id=None,
        )
        assert run.state == "failed"
        kept = repr(_kept_of(run, "append"))
        assert FIELD not in kept
        assert "2026-01-01" in kept
        assert "https://127.0.0.1:1/x.parquet" in kept
        assert FIELD not in str(run.failures[0])

    def test_nor_does_a_config_object(self) -> None:
        config = SparkConfig(conf={"spark.x.account-key": f"{FIELD}conf"}, jars=(f"https://me:{FIELD}@h/a.jar",))
        assert FIELD not in repr(config) + str(config)
