"""A job gets neither Airflow's secrets nor other ones of the worker, and no other user of the machine sees its own."""

import json
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.backends import spark_submit
from airflow_iceberg.backends._submit_hook import IcebergSubmitHook
from airflow_iceberg.backends.backend import open_backend
from airflow_iceberg.backends.config import Machine, SparkConfig
from airflow_iceberg.backends.environment import job_environment
from airflow_iceberg.backends.private_files import write_settings
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.operators.append import IcebergAppendOperator
from tests.airflow.conftest import Lake, operators
from tests.support.append_steps import plan_append

MARK = "Zq9Secret"
OF_AIRFLOW = {
    "AIRFLOW_CONN_OTHER": f"postgresql://me:{MARK}@db/x",
    "AIRFLOW_VAR_KEY": MARK,
    "AIRFLOW__CORE__FERNET_KEY": MARK,
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql:///no-password-in-it",
    "AIRFLOW__API_AUTH__JWT_SECRET": MARK,
    "AIRFLOW__CELERY__BROKER_URL": f"redis://:{MARK}@redis/0",
    "AIRFLOW_CTX_DAG_ID": "d",
    "_AIRFLOW_WWW_USER_PASSWORD": MARK,
    "_AIRFLOW__STARTUP_MSG": f'{{"token": "{MARK}"}}',
    "__AIRFLOW_SUPERVISOR_FD": "7",
    "airflow_conn_lower": MARK,
}
OF_OTHERS = {
    "VAULT_TOKEN": MARK,
    "DATABASE_URL": f"postgresql://me:{MARK}@db/x",
    "FERNET_KEY": MARK,
    "CELERY_BROKER_URL": f"redis://:{MARK}@redis/0",
    "RABBITMQ_DEFAULT_PASS": MARK,
    "PGPASSWORD": "20261231",
    "PIP_INDEX_URL": f"https://{MARK}{MARK}@index.example.com/simple",
    "SLACK_WEBHOOK_TOKEN": MARK,
}
NEEDED = {
    "PATH": "/usr/bin",
    "HOME": "/home/airflow",
    "LANG": "C.UTF-8",
    "JAVA_HOME": "/java",
    "SPARK_HOME": "/spark",
    "SPARK_SUBMIT_OPTS": "-Djavax.net.ssl.trustStorePassword=changeit",
    "HADOOP_CONF_DIR": "/etc/hadoop",
    "HADOOP_TOKEN_FILE_LOCATION": "/tmp/token",
    "KRB5CCNAME": "/tmp/krb5cc_1",
    "PYSPARK_PYTHON": "/python",
    "https_proxy": "http://me:password@proxy:3128",
    "TOKENIZERS_PARALLELISM": "false",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}
OF_STORES = {
    "AWS_ACCESS_KEY_ID": "worker-key-id",
    "AWS_SECRET_ACCESS_KEY": "worker-secret",
    "AWS_SESSION_TOKEN": "worker-session",
    "AWS_REGION": "eu-central-1",
    "AZURE_CLIENT_SECRET": "worker-principal",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json",
}


class TestWhatAJobInherits:
    """All of the worker's variables but Airflow's and other secrets."""

    def test_nothing_of_airflow_nor_secrets_by_name_or_by_value(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        assert job_environment({**OF_AIRFLOW, **OF_OTHERS, **NEEDED}, {}) == NEEDED
        assert f"does not get these variables of the worker, which may be secrets: {', '.join(sorted(OF_OTHERS))};" in (
            caplog.text
        )
        assert MARK not in caplog.text

    def test_credentials_of_a_store_only_where_the_connection_has_none(self) -> None:
        assert job_environment(OF_STORES, {"s3.endpoint": "https://h", "s3.region": "r"}) == OF_STORES
        azure = {"AZURE_CLIENT_SECRET": "worker-principal", "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json"}
        # The worker's session token would not fit the connection's keys, either.
        for own in ("s3.secret-access-key", "client.secret-access-key"):
            assert job_environment(OF_STORES, {own: "of-the-connection"}) == {"AWS_REGION": "eu-central-1", **azure}
        without = {"adls.account-key": "a-key", "gcs.oauth2.token": "a-token"}
        assert job_environment(OF_STORES, without).keys() == {name for name in OF_STORES if name.startswith("AWS_")}


@pytest.fixture
def submission(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """Returns the hook as it would submit, and its command."""
    folder = tmp_path / "submission"
    folder.mkdir()

    def submit(source: Source, *, extra: dict[str, str] | None = None, host: str = "yarn", **config: Any) -> Any:
        connection = json.dumps({"conn_type": "spark", "host": host, "extra": extra or {}})
        monkeypatch.setenv("AIRFLOW_CONN_SOMEWHERE", connection)
        table = lake.create(if_not_exists=True)
        made = open_backend("somewhere", SparkConfig(**config), table=table, source=source, name="job")
        hook = made._open_hook(plan_append(table, source), folder / "core.zip")
        return hook, hook._build_spark_submit_command("/main.py")

    return submit


class TestTheCommandLine:
    """Every user of the machine reads it, so it holds no secret, whatever the user of Airflow sets."""

    SOURCE = Source.from_callable("a:b", {"key": MARK})

    @pytest.mark.costly
    def test_secret_settings_and_variables_go_by_a_private_file_and_the_environment(self, submission, tmp_path) -> None:
        defaults = tmp_path / "mine.conf"
        defaults.write_text("spark.mine 1\nspark.x.api-key old\n")
        conf = {"spark.x.api-key": MARK, "spark.y": f"http://me:{MARK}@h", "spark.z": "shown"}
        conf["spark.kafka.sasl.jaas.config"] = f'x.Scram required password="{MARK}";'
        hook, command = submission(
            self.SOURCE, conf=conf, env_vars={"MY_PASSWORD": MARK}, properties_file=str(defaults)
        )
        assert MARK not in " ".join(command)
        assert "spark.z=shown" in command
        file = Path(command[command.index("--properties-file") + 1])
        assert file.read_text() == (
            f"spark.mine 1\nspark.x.api-key old\n\nspark.x.api-key {MARK}\nspark.y http\\://me\\:{MARK}@h\n"
            f'spark.kafka.sasl.jaas.config x.Scram\\ required\\ password\\="{MARK}";\n'
        )
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert hook.environment["MY_PASSWORD"] == MARK
        private = Path(hook.environment["AIRFLOW_ICEBERG_PRIVATE"])
        assert json.loads(private.read_text())["source"] == {"kwargs": {"key": MARK}}
        assert stat.S_IMODE(private.stat().st_mode) == 0o600

    @pytest.mark.costly
    def test_spark_is_not_given_another_file_without_need(self, submission) -> None:
        _, command = submission(Source.from_sql("select 1"), conf={"spark.z": "shown"})
        assert "--properties-file" not in command

    @pytest.mark.costly
    @pytest.mark.parametrize(("config", "named"), [
        ({"conf": {"spark.x.api-key": MARK}}, "'spark.x.api-key'"),
        ({"conf": {"spark.y": f"http://me:{MARK}@h"}}, "'spark.y'"),
        ({"conf": {"spark.hadoop.ssl.keystore.pass": MARK}}, "'spark.hadoop.ssl.keystore.pass'"),
        ({"conf": {"spark.kafka.sasl.jaas.config": f'x.C required password="{MARK}";'}}, "'spark.kafka"),
        ({"conf": {"spark.z": f"host=h password = '{MARK}'"}}, "'spark.z'"),
        ({"conf": {"spark.z": f"jdbc:oracle:thin:me/{MARK}@//h:1/x"}}, "'spark.z'"),
        ({"env_vars": {"MY_PASSWORD": "12345678"}}, "'spark.yarn.appMasterEnv.MY_PASSWORD'"),
        ({"env_vars": {"https_proxy": f"http://me:{MARK}@h"}}, "'spark.yarn.appMasterEnv.https_proxy'"),
        ({"jars": (f"https://me:{MARK}@h/a.jar",)}, "'--jars'"),
        ({"packages": ("a:b:1",), "py_files": (f"https://h/a.zip?X-Amz-Signature={MARK}",)}, "'--py-files'"),
    ])  # fmt: skip
    def test_cluster_mode_refuses_secrets_by_their_values(self, config, named, submission) -> None:
        with pytest.raises(InvalidInputError, match="holds a secret, which spark-submit's command line would") as error:
            submission(Source.from_sql("select 1"), deploy_mode="cluster", **config)
        assert named in str(error.value)
        assert MARK not in str(error.value)

    @pytest.mark.costly
    def test_cluster_mode_may_be_chosen_by_a_setting(self, submission) -> None:
        with pytest.raises(InvalidInputError, match="holds a secret"):
            submission(
                Source.from_sql("select 1"), conf={"spark.submit.deployMode": "cluster", "spark.x.api-key": MARK}
            )

    @pytest.mark.costly
    def test_a_file_brings_the_arguments_of_a_callable_to_a_cluster(self, submission) -> None:
        hook, command = submission(self.SOURCE, deploy_mode="cluster", conf={"spark.a": "b"})
        file = Path(command[command.index("--files") + 1])
        private = json.loads(file.read_text())
        assert private["source"] == {"kwargs": {"key": MARK}}
        assert f"spark.yarn.appMasterEnv.AIRFLOW_ICEBERG_PRIVATE={file.name}" in command
        assert not {MARK, private["result-secret"]} & {*" ".join(command).replace("=", " ").split()}
        assert "AIRFLOW_CONN_SOMEWHERE" not in hook.environment

    @pytest.mark.costly
    def test_the_keytab_of_the_connection_is_in_a_private_file(self, submission, tmp_path) -> None:
        extra = {"keytab": "a2V5dGFi", "principal": "etl@EXAMPLE.COM"}
        _, command = submission(Source.from_sql("select 1"), extra=extra)
        keytab = Path(command[command.index("--keytab") + 1])
        assert (keytab.read_bytes(), keytab.parent) == (b"keytab", tmp_path / "submission")
        assert stat.S_IMODE(keytab.stat().st_mode) == 0o600
        with pytest.raises(InvalidInputError, match="extra field 'keytab' of spark connection 'somewhere' is not base"):
            submission(Source.from_sql("select 1"), extra={**extra, "keytab": "§"})

    def test_a_link_in_the_place_of_a_private_file_is_not_followed(self, tmp_path) -> None:
        (tmp_path / "spark.properties").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(FileExistsError):
            write_settings(tmp_path / "spark.properties", {"spark.a": "b"}, base=None)
        assert not (tmp_path / "elsewhere").exists()

    def test_without_a_known_spark_its_defaults_cannot_be_kept(self, submission, monkeypatch) -> None:
        machine = Machine(binary="spark-submit", environment={})
        monkeypatch.delenv("SPARK_HOME", raising=False)
        monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
        monkeypatch.setattr(spark_submit.SparkSubmit, "_find_spark", lambda *_: machine)
        with pytest.raises(InvalidInputError, match="it is unknown where that is; set SPARK_HOME or SPARK_CONF_DIR"):
            submission(Source.from_sql("select 1"), conf={"spark.x.api-key": MARK})


class TestThePlan:
    """The document lies in the table's folder, which others can read."""

    def test_it_is_for_its_owner_alone_and_without_arguments(self, lake: Lake) -> None:
        table = lake.create()
        plan_append(table, Source.from_callable("a:b", {"key": MARK}))
        (path,) = lake.staged()
        assert path.name == "plan.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert MARK not in path.read_text()
        others = [path for path in lake.folder.rglob("*.json") if path != path.parent / "plan.json"]
        assert {stat.S_IMODE(each.stat().st_mode) for each in others} == {0o666 & ~_umask()}, "as the user wants them"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.services
class TestARealJob:
    """It is submitted from a worker full of secrets, and sees those that are meant for it."""

    def test_it_finds_no_secret_of_the_worker_and_nobody_finds_its_own(
        self, lake: Lake, run_task: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        lake.create()
        for name, value in {**OF_AIRFLOW, **OF_OTHERS}.items():
            if name not in ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "__AIRFLOW_SUPERVISOR_FD"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
        (tmp_path / "conf").mkdir()
        (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.of.the.defaults  7\nspark.ui.enabled false\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        modes: dict[str, int] = {}
        submit = IcebergSubmitHook.submit

        def watched(hook: IcebergSubmitHook, application: str = "", **kwargs: Any) -> Any:
            folder = Path(hook._machine.folder)
            modes.update({path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())})
            return submit(hook, application, **kwargs)

        monkeypatch.setattr(IcebergSubmitHook, "submit", watched)
        own = "own=s3cr3t: of #the job! \\ "
        run = run_task(
            operators(IcebergAppendOperator),
            task_id="append",
            python_callable="job_secrets:look",
            op_kwargs={"report": str(tmp_path / "report"), "arguments": ["of-the-job", [None, 1.5, {"a": "ü"}]]},
            spark_config=SparkConfig(
                py_files=(str(Path(__file__).parent / "job_secrets.py"),),
                conf={"spark.mine.api-key": own},
                env_vars={"MY_TOKEN": "own-token"},
            ),
        )
        assert run.state == "success", run.failures
        seen = json.loads((tmp_path / "report").read_text())
        assert seen["arguments"] == ["of-the-job", [None, 1.5, {"a": "ü"}]]
        assert (seen["setting"], seen["default"]) == (own.strip(), "7")
        for process in ("driver", "java", "worker"):
            variables = seen[process]
            assert [name for name in variables if "AIRFLOW" in name.upper() and "ICEBERG" not in name] == []
            assert [name for name, value in variables.items() if MARK in value or value == "20261231"] == []
            assert variables["MY_TOKEN"] == "own-token"
        assert len(seen["commands"]) > 2
        assert "s3cr3t" not in repr(seen["commands"][:-1])
        assert "of-the-job" not in repr(seen["commands"])
        names = set(modes)
        assert modes.pop("spark.properties") == 0o600
        assert sorted(modes.values()) == [0o600, 0o644, 0o700], names
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("airflow-iceberg")]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
