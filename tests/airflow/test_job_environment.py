"""A job gets neither Airflow's secrets nor other ones of the worker, and no other user of the machine sees its own."""

import json
import logging
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.backends import kubernetes_access, spark_submit
from airflow_iceberg.backends._submit_hook import IcebergSubmitHook, _check_no_secret
from airflow_iceberg.backends.backend import open_backend
from airflow_iceberg.backends.config import Machine, SparkConfig
from airflow_iceberg.backends.environment import OPTION, job_environment
from airflow_iceberg.backends.private_files import write_settings
from airflow_iceberg.errors import IcebergError, InvalidInputError
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.spark import installation
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
    # Neither their names nor their values tell that they are secrets.
    "DBPASS": MARK,
    "PGPASS": MARK,
    "SMTPPASS": MARK,
    "ACME_LICENSE": MARK,
    "STRIPE": MARK,
    "KAFKA_SASL": MARK,
    "SENTRY": f"https://{MARK}/1",
    "GITHUB_PAT": MARK,
    "TOKENIZERS_PARALLELISM": "false",
    # Their names begin like those of the list.
    "SPARK_MYSQL_PASSWORD": MARK,
    "SPARK_DBPASS": MARK,
    "SPARK_JDBC_URL": f"jdbc:postgresql://me:{MARK}@db/x",
    "PYSPARK_GATEWAY_SECRET": MARK,
    "HADOOP_CREDSTORE_PASSWORD": MARK,
    "HADOOP_AUTH_SECRET": MARK,
    "HDFS_TOKEN": MARK,
    "YARN_PW": MARK,
    "HIVE_METASTORE_PASS": MARK,
    "KRB5_PASSWORD": MARK,
    "JAVA_KEYSTORE_PASS": MARK,
    "JAVA_SIGNING_KEY": MARK,
    "PYTHON_KEYRING_PASSWORD": MARK,
    "CONDA_TOKEN": MARK,
    "KUBERNETES_TOKEN": MARK,
    "LC_SECRET": MARK,
    "AWS_BEARER_TOKEN_BEDROCK": MARK,
    "AZURE_DEVOPS_EXT_PAT": MARK,
    "AZURE_OPENAI_API_KEY": MARK,
    "GOOGLE_API_KEY": MARK,
    "NOT_HTTPS_PROXY": f"http://me:{MARK}@proxy:3128",
    "HF_HUB_TOKEN": MARK,
}
NEEDED = {
    "PWD": "/opt/airflow",
    "OLDPWD": "/",
    "USER": "airflow",
    "TZ": "Asia/Tokyo",
    "LC_ALL": "C.UTF-8",
    "TMPDIR": "/scratch",
    "LD_LIBRARY_PATH": "/usr/lib/hadoop/native",
    "SSL_CERT_FILE": "/etc/ca.pem",
    "REQUESTS_CA_BUNDLE": "/etc/ca.pem",
    "CURL_CA_BUNDLE": "/etc/ca.pem",
    "JAVA_TOOL_OPTIONS": "-Djavax.net.ssl.trustStorePassword=changeit",
    "SPARK_CONF_DIR": "/etc/spark",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "HADOOP_USER_NAME": "etl",
    "YARN_CONF_DIR": "/etc/hadoop",
    "HIVE_CONF_DIR": "/etc/hive",
    "LIBHDFS_OPTS": "-Xmx1g",
    "ARROW_LIBHDFS_DIR": "/usr/lib/hadoop/native",
    "KRB5_CONFIG": "/etc/krb5.conf",
    "KRB5_CLIENT_KTNAME": "/etc/client.keytab",
    "PYTHONPATH": "/opt/code",
    "VIRTUAL_ENV": "/venv",
    "CONDA_PREFIX": "/conda",
    "KUBERNETES_SERVICE_PORT": "443",
    "KUBECONFIG": "/etc/kube.conf",
    "NSS_WRAPPER_PASSWD": "/tmp/passwd",
    "no_proxy": "localhost",
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
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
}
OF_STORES = {
    "AWS_ACCESS_KEY_ID": "worker-key-id",
    "AWS_SECRET_ACCESS_KEY": "worker-secret",
    "AWS_SESSION_TOKEN": "worker-session",
    "AWS_REGION": "eu-central-1",
    "AWS_ENDPOINT_URL_S3": "https://s3.example.com",
    "AWS_CA_BUNDLE": "/etc/ca.pem",
    "AWS_PROFILE": "etl",
    "AWS_CONFIG_FILE": "/etc/aws.config",
    "AWS_ROLE_ARN": "arn:aws:iam::1:role/etl",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/0b0f0c6e-9a5e-4d0e-8d0e-0123456789ab",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/var/run/secrets/pods.eks.amazonaws.com/token",
    "ECS_CONTAINER_METADATA_URI_V4": "http://169.254.170.2/v4/x",
    "AZURE_CLIENT_ID": "worker-client",
    "AZURE_TENANT_ID": "worker-tenant",
    "AZURE_CLIENT_SECRET": "worker-principal",
    "AZURE_FEDERATED_TOKEN_FILE": "/var/run/secrets/azure/tokens/azure-identity-token",
    "AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/",
    "AZURE_STORAGE_CONNECTION_STRING": "AccountName=a;AccountKey=worker-key",
    "IDENTITY_HEADER": "worker-header",
    "GOOGLE_APPLICATION_CREDENTIALS": "/etc/key.json",
    "GOOGLE_CLOUD_PROJECT": "lake",
    "CLOUDSDK_CONFIG": "/etc/gcloud",
    "HF_TOKEN": "worker-hf",
}
SETTINGS = {"AWS_REGION", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AZURE_AUTHORITY_HOST", "GOOGLE_CLOUD_PROJECT"}


class TestWhatAJobInherits:
    """A list: what Spark, Hadoop, Java, Python and the stores need of the worker, and nothing else."""

    def test_nothing_of_airflow_nor_what_nobody_knows(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        found = job_environment({**OF_AIRFLOW, **OF_OTHERS, **NEEDED}, {})
        assert (found.keys() - NEEDED.keys(), NEEDED.keys() - found.keys()) == (set(), set())
        assert found == NEEDED
        (told,) = caplog.messages
        assert told == (
            f"the job gets {len(NEEDED)} of the worker's variables, and not {', '.join(sorted(OF_OTHERS))}; name those "
            f"that it needs in env_vars of spark_config, or for all jobs in the option job_environment_variables of "
            f"the section [airflow_iceberg]"
        )
        assert MARK not in caplog.text

    def test_where_all_are_handed_on_nothing_is_said(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        assert job_environment({**NEEDED, "AIRFLOW_HOME": "/airflow"}, {}) == NEEDED
        assert caplog.messages == []

    def test_more_are_named_by_the_option(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(
            "AIRFLOW__AIRFLOW_ICEBERG__JOB_ENVIRONMENT_VARIABLES", "STRIPE,ACME_*\n HADOOP_CREDSTORE_PASSWORD, DB*"
        )
        more = {"ACME_LICENSE": MARK, "STRIPE": MARK, "HADOOP_CREDSTORE_PASSWORD": MARK}
        # What begins so and is a secret would have to be named itself.
        given = {**OF_AIRFLOW, **OF_OTHERS, **NEEDED, "ACME_TOKEN": MARK}
        assert job_environment(given, {}) == {**NEEDED, **more}

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            ("AIRFLOW__CORE__FERNET_KEY", "has 'AIRFLOW__CORE__FERNET_KEY', which is Airflow's own"),
            ("_airflow*", "has '_airflow[*]', which is Airflow's own"),
            ("*", "has '[*]', expected names of variables"),
            ("A=B", "has 'A=B', expected names of variables, between commas, such as NLS_LANG or ORACLE_[*]"),
            ("ORACLE_*_HOME", "has 'ORACLE_[*]_HOME', expected"),
        ],
    )
    def test_an_option_that_is_wrong(self, names: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__AIRFLOW_ICEBERG__JOB_ENVIRONMENT_VARIABLES", names)
        with pytest.raises(InvalidInputError, match=rf"option \[airflow_iceberg\] {OPTION} {message}"):
            job_environment({}, {})

    def test_credentials_of_a_store_only_where_the_connection_has_none(self) -> None:
        assert job_environment(OF_STORES, {"s3.endpoint": "https://h", "s3.region": "r"}) == OF_STORES
        # The worker's session token would not fit the connection's keys, and its role has other rights.
        for own, beginnings in {
            "s3.secret-access-key": ("AWS_", "ECS_"),
            "client.secret-access-key": ("AWS_", "ECS_"),
            "adls.account-key": ("AZURE_", "IDENTITY_"),
            "gcs.oauth2.token": ("GOOGLE_", "CLOUDSDK_"),
            "hf.token": ("HF_",),
        }.items():
            expected = {name for name in OF_STORES if not name.startswith(beginnings) or name in SETTINGS}
            assert job_environment(OF_STORES, {own: "of-the-connection"}).keys() == expected, own


class TestProgramsThatAreAsked:
    """A script that is asked for its version, a Java, and what a kubeconfig names get the same variables."""

    @pytest.fixture
    def program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Writes down its variables."""
        for name, value in {**OF_AIRFLOW, **OF_OTHERS}.items():
            if not name.startswith(("AIRFLOW__", "_")):
                monkeypatch.setenv(name, value)
        path = tmp_path / "program"
        path.write_text(f'#!/bin/sh\nenv > {tmp_path}/seen\necho \'{{"status": {{"token": "t"}}}}\'\n')
        path.chmod(0o755)
        return path

    def seen(self, tmp_path: Path) -> list[str]:
        text = (tmp_path / "seen").read_text()
        assert "PATH=" in text
        return [line for line in text.splitlines() if MARK in line or "AIRFLOW" in line.partition("=")[0]]

    def test_a_script(self, program: Path, tmp_path: Path) -> None:
        with pytest.raises(IcebergError):
            installation._environment_of_script(program, ("STRIPE",))
        assert self.seen(tmp_path) == [f"STRIPE={MARK}"]

    def test_a_java(self, program: Path, tmp_path: Path) -> None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").symlink_to(program)
        assert installation.java_version(tmp_path) is None
        assert self.seen(tmp_path) == []

    def test_a_program_of_a_kubeconfig(self, program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        spec = {"command": str(program), "env": [{"name": "OWN", "value": "x"}]}
        assert kubernetes_access._of_plugin(spec, os.environ) == "t"
        assert self.seen(tmp_path) == []
        assert "OWN=x" in (tmp_path / "seen").read_text()
        assert caplog.messages == [], "each look of the triggerer would say it"


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

    def test_a_variable_is_one_by_its_name(self) -> None:
        names = "DBPASS PGPASS SMTPPASS dbpass DB_PW PGPWD MAIL_PASSWD REDIS_PASSPHRASE SSHKEY API_KEYS X_CREDS "
        names += "X_CREDENTIALS X_CREDENTIAL GITHUB_PAT MY_SECRETS MY_TOKEN BASIC_AUTH SENTRY_DSN SLACK_WEBHOOK"
        passed = []
        for name in names.split():
            for setting in ("yarn.appMasterEnv", "kubernetes.driverEnv", "executorEnv"):
                try:
                    _check_no_secret(["--conf", f"spark.{setting}.{name}={MARK}"])
                    passed.append(name)
                except InvalidInputError as error:
                    assert MARK not in str(error)  # noqa: PT017
        assert passed == []
        _check_no_secret(["--conf", "spark.yarn.appMasterEnv.DBPASS="])

    @pytest.mark.costly
    def test_what_only_sounds_like_a_secret_is_no_reason_to_refuse(self, submission) -> None:
        variables = {"PARTITION_KEY": "day", "BYPASS": "proxy", "USE_TOKEN": "true", "MONKEY": "x", "KEYTAB_DIR": "/k"}
        _, command = submission(Source.from_sql("select 1"), deploy_mode="cluster", env_vars=variables)
        for name, value in variables.items():
            assert f"spark.yarn.appMasterEnv.{name}={value}" in command

    @pytest.mark.costly
    def test_variables_of_executors_are_hidden_by_their_names(self, submission) -> None:
        hook, command = submission(Source.from_sql("select 1"), conf={"spark.executorEnv.DBPASS": MARK})
        assert MARK not in " ".join(command)
        assert f"spark.executorEnv.DBPASS {MARK}" in Path(command[command.index("--properties-file") + 1]).read_text()
        (hidden,) = [word.partition("=")[2] for word in command if word.startswith("spark.redaction.regex=")]
        assert re.search(hidden, "spark.executorEnv.DBPASS")
        assert re.search(hidden, "spark.x.api-key")
        assert not re.search(hidden, "spark.executorEnv.MONKEY")
        assert hook._machine is not None

    def test_a_config_does_not_show_them(self) -> None:
        config = SparkConfig(env_vars={"DBPASS": MARK, "A": "b"}, conf={"spark.executorEnv.PGPASS": MARK})
        assert MARK not in repr(config)
        assert "'A': 'b'" in repr(config)

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
        ({"env_vars": {"DBPASS": MARK}}, "'spark.yarn.appMasterEnv.DBPASS'"),
        ({"conf": {"spark.executorEnv.DBPASS": MARK}}, "'spark.executorEnv.DBPASS'"),
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
