"""The API server of Kubernetes as the worker knows it: where it is, who the worker is to it, what its answers mean.

Against a stand-in of the API (`tests.support.stand_in_kubernetes`).
"""

import base64
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from airflow_iceberg.backends import following, kubernetes, kubernetes_access
from airflow_iceberg.backends.applications import Applications
from airflow_iceberg.backends.kubernetes import ApiServer, namespace_of, server_of
from airflow_iceberg.backends.kubernetes_access import Access, submit_settings
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, UnsupportedError
from tests.support.certificates import make_certificates
from tests.support.stand_in_kubernetes import StandInKubernetes

WORK = "airflow-iceberg-0123"
TOKEN = "the-t0ken-of-etl"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandInKubernetes]:
    made = StandInKubernetes(tmp_path)
    yield made
    made.close()


def connection(host: str, port: int | None = None, kind: str = "spark", **extra: Any) -> Any:
    return SimpleNamespace(conn_id="spark_default", conn_type=kind, host=host, port=port, extra_dejson=extra)


def server(cluster: StandInKubernetes, **extra: Any) -> ApiServer:
    given = {"kubernetes_token": TOKEN, **extra}
    return ApiServer.of(
        connection(f"k8s://{cluster.url}", **given), {}, {"spark.kubernetes.namespace": cluster.namespace}
    )


class TestItsAddress:
    """The master of the Spark connection, and the namespace that spark-submit uses."""

    @pytest.mark.parametrize(
        ("given", "address"),
        [
            (connection("k8s://https://h:6443"), "https://h:6443"),
            (connection("k8s://h"), "https://h"),
            (connection("k8s://https://h", 6443), "https://h:6443"),
            (connection("https://h/", kind="k8s"), "https://h"),
            (connection("k8s://https://[::1]:1/clusters/c"), "https://[::1]:1/clusters/c"),
        ],
    )
    def test_is_the_master(self, given, address):
        assert server_of(given) == address

    @pytest.mark.parametrize("host", ["", "k8s://", "k8s://https://me:s3cr3t@h", "k8s://ftp://h", "k8s://h?x=y"])
    def test_is_none(self, host):
        with pytest.raises(InvalidInputError, match="is no address of a Kubernetes API server") as error:
            server_of(connection(host))
        assert "s3cr3t" not in str(error.value)

    def test_the_namespace_of_the_job_goes_before_that_of_the_connection(self):
        conf = {"spark.kubernetes.namespace": "a"}
        assert namespace_of({"namespace": "b"}, conf, "c") == "a"
        assert namespace_of({"namespace": "b"}, {}, "c") == "b"
        assert namespace_of({}, {}, "c") == "c"

    def test_a_forged_name_is_part_of_no_address(self, cluster):
        with pytest.raises(InvalidInputError, match="not a namespace of Kubernetes"):
            ApiServer.of(
                connection("k8s://https://h", kubernetes_token="x"), {}, {"spark.kubernetes.namespace": "a/../b"}
            )
        for pod in ("../secrets/x/uid", "a-driver/../..", "a-driver"):
            with pytest.raises(InvalidInputError, match=r"not the (name|uid) of a pod"):
                server(cluster).state(pod)


class TestItsProof:
    """What a request shows: of the connection, of Spark's settings, of a kubeconfig, of the pod of this process."""

    SERVER = "https://h"

    @pytest.fixture(autouse=True)
    def nowhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kubernetes_access, "SERVICE_ACCOUNT", tmp_path / "none")

    def access(self, tmp_path: Path, extra: Any = None, settings: Any = None, **environment: str) -> Access:
        return Access(self.SERVER, extra or {}, {"HOME": str(tmp_path), **environment}, settings or {})

    def config(self, path: Path, user: Any, cluster: Any = None, **fields: Any) -> Path:
        document = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster or {}}],
            "users": [{"name": "u", "user": user}],
            **fields,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(document))
        return path

    def test_in_their_order(self, tmp_path, monkeypatch):
        account = tmp_path / "account"
        account.mkdir()
        (account / "token").write_text("of-the-account\n")
        monkeypatch.setattr(kubernetes_access, "SERVICE_ACCOUNT", account)
        assert self.access(tmp_path).proof().token == "of-the-account"
        assert self.access(tmp_path).proof().authority == str(account / "ca.crt")
        self.config(tmp_path / ".kube" / "config", {"token": "of-the-config"})
        assert self.access(tmp_path).proof().token == "of-the-config"
        file = tmp_path / "token"
        file.write_text("of-the-file")
        settings = {
            "spark.kubernetes.authenticate.submission.oauthTokenFile": str(file),
            "spark.kubernetes.authenticate.submission.caCertFile": "/ca",
        }
        assert self.access(tmp_path, settings=settings).proof().token == "of-the-file"
        assert self.access(tmp_path, settings=settings).proof().authority == "/ca"
        proof = self.access(tmp_path, {"kubernetes_token": "mine", "kubernetes_ca_file": "/mine"}, settings).proof()
        assert (proof.token, proof.authority) == ("mine", "/mine")
        assert "token" not in repr(proof)

    def test_of_a_kubeconfig_with_files_and_a_program(self, tmp_path):
        program = tmp_path / "login"
        program.write_text(
            f"#!{sys.executable}\nimport json, os\n"
            "assert json.loads(os.environ['KUBERNETES_EXEC_INFO'])['kind'] == 'ExecCredential'\n"
            "assert not [name for name in os.environ if name.startswith('AIRFLOW')]\n"
            "print(json.dumps({'status': {'token': 'made-for-' + os.environ['WHO']}}))\n"
        )
        program.chmod(0o755)
        spec = {"command": str(program), "env": [{"name": "WHO", "value": "me"}], "apiVersion": "v1"}
        path = self.config(tmp_path / "a" / "config", {"exec": spec}, {"certificate-authority": "ca.pem"})
        airflows = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://me:s3cr3t@db/airflow"}
        proof = self.access(tmp_path, KUBECONFIG=f"/nowhere:{path}", **airflows).proof()
        assert (proof.token, proof.authority) == ("made-for-me", str(path.parent / "ca.pem"))
        program.write_text("#!/bin/sh\necho s3cr3t; exit 1\n")
        with pytest.raises(IcebergError, match="has made no token: CalledProcessError") as error:
            self.access(tmp_path, {"kube_config_path": str(path)}).proof()
        assert "s3cr3t" not in str(error.value)

    def test_of_a_program_that_lies_beside_its_kubeconfig(self, tmp_path, monkeypatch):
        """A path is relative to the file, wherever the worker stands; a name alone is looked for in PATH."""
        for name, folder in (("beside", tmp_path / "a" / "bin"), ("in-path", tmp_path / "path"), ("here", tmp_path)):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "login").write_text(f'#!/bin/sh\necho \'{{"status": {{"token": "{name}"}}}}\'\n')
            (folder / "login").chmod(0o755)
        (tmp_path / "bin").symlink_to(tmp_path)
        monkeypatch.chdir(tmp_path)
        search = f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}"
        for command, token in (("./bin/login", "beside"), ("bin/login", "beside"), ("login", "in-path")):
            path = self.config(tmp_path / "a" / "config", {"exec": {"command": command, "apiVersion": "v1"}})
            assert self.access(tmp_path, KUBECONFIG=str(path), PATH=search).proof().token == token
        monkeypatch.chdir(tmp_path / "a" / "bin")
        self.config(Path("config"), {"exec": {"command": "./login", "apiVersion": "v1"}})
        assert self.access(tmp_path, KUBECONFIG="config", PATH=search).proof().token == "beside"
        path = self.config(path, {"exec": {"command": str(tmp_path / "login"), "apiVersion": "v1"}})
        assert self.access(tmp_path, KUBECONFIG=str(path)).proof().token == "here"

    def test_of_another_context(self, tmp_path):
        contexts = [{"name": name, "context": {"cluster": "c", "user": name}} for name in ("here", "there")]
        users = [{"name": "here", "user": {"token": "a"}}, {"name": "there", "user": {"token": "b"}}]
        path = self.config(tmp_path / "config", {}, contexts=contexts, users=users)
        assert self.access(tmp_path, {"cluster_context": "there"}, KUBECONFIG=str(path)).proof().token == "b"
        settings = {"spark.kubernetes.context": "there"}
        assert self.access(tmp_path, settings=settings, KUBECONFIG=str(path)).proof().token == "b"

    @pytest.mark.parametrize(
        ("text", "kind", "message"),
        [
            ("token: [s3cr3t", InvalidInputError, "cannot read the kubeconfig .*: ParserError"),
            ("- s3cr3t", InvalidInputError, "cannot read the kubeconfig .*: AttributeError"),
            ("{}", InvalidInputError, "has no context None"),
            ({"user": {"username": "me", "password": "s3cr3t"}}, UnsupportedError, "has no token, tokenFile, exec"),
            (
                {"user": {"token": "s3cr3t"}, "cluster": {"insecure-skip-tls-verify": True}},
                UnsupportedError,
                "trusts any server for context 'here'",
            ),
        ],
    )
    def test_of_a_kubeconfig_that_cannot_be_used(self, text, kind, message, tmp_path):
        path = tmp_path / "config"
        if isinstance(text, str):
            path.write_text(text)
        else:
            self.config(path, **text)
        with pytest.raises(kind, match=message) as error:
            self.access(tmp_path, KUBECONFIG=str(path)).proof()
        assert "s3cr3t" not in str(error.value)

    def test_is_missing_or_would_be_seen_by_others(self, tmp_path):
        with pytest.raises(NotFoundError, match="no credentials for the Kubernetes API server"):
            self.access(tmp_path).proof()
        with pytest.raises(InvalidInputError, match="would get a token in the clear"):
            Access("http://h", {"kubernetes_token": "s3cr3t"}, {}, {})

    def test_spark_submit_gets_the_path_of_a_file_that_nobody_else_can_read(self, tmp_path):
        extra = {"kubernetes_token": "s3cr3t", "kube_config_path": "/c", "cluster_context": "x"}
        for is_on_cluster, part in ((True, ".submission"), (False, "")):
            folder = tmp_path / str(is_on_cluster)
            folder.mkdir()
            settings, variables = submit_settings(extra, folder, is_on_cluster=is_on_cluster)
            path = Path(settings[f"spark.kubernetes.authenticate{part}.oauthTokenFile"])
            assert (path.read_text(), path.stat().st_mode & 0o777) == ("s3cr3t", 0o600)
            assert "s3cr3t" not in json.dumps([settings, variables])
            assert (settings["spark.kubernetes.context"], variables) == ("x", {"KUBECONFIG": "/c"})

    def test_by_a_certificate_over_tls_to_the_server_that_its_authority_has_signed(self, cluster, tmp_path):
        made = make_certificates(tmp_path)
        context = made.server_context()
        cluster.server.socket = context.wrap_socket(cluster.server.socket, server_side=True)
        cluster.url = cluster.url.replace("http:", "https:")
        cluster.add("a-driver", airflow_iceberg_work=WORK)

        def data(name: str) -> str:
            return base64.b64encode(getattr(made, name).read_bytes()).decode()

        user = {"client-certificate-data": data("client"), "client-key-data": data("client_key"), "token": TOKEN}
        path = self.config(tmp_path / "config", user, {"certificate-authority-data": data("authority")})
        assert self._find(cluster, path) == ["a-driver/uid-0"]
        without = self.config(tmp_path / "without", user)
        with pytest.raises(IcebergError, match="does not answer: SSLError"):
            self._find(cluster, without)
        # Who shows no certificate is refused in the handshake.
        nobody = self.config(tmp_path / "nobody", {"token": TOKEN}, {"certificate-authority": str(made.authority)})
        with pytest.raises(IcebergError, match=r"does not answer: (SSLError|ConnectionError)"):
            self._find(cluster, nobody)

    def _find(self, cluster: StandInKubernetes, config: Path) -> list[str]:
        given = connection(f"k8s://{cluster.url}")
        settings = {"spark.kubernetes.namespace": cluster.namespace}
        return ApiServer.of(given, {"KUBECONFIG": str(config)}, settings).find(WORK, patience_s=0)


class TestItsAnswers:
    """All are checked: a proxy, a stranger or a server that starts may have given them."""

    def test_pods_in_pages_of_which_one_is_forgotten(self, cluster):
        for number in range(5):
            cluster.add(f"a{number}-driver", airflow_iceberg_work=WORK)
        cluster.page, cluster.expires = 2, 1
        assert server(cluster).find(WORK, patience_s=30) == [f"a{number}-driver/uid-{number}" for number in range(5)]
        assert cluster.expires == 0

    def test_what_was_not_asked_for_is_not_found(self, cluster, monkeypatch):
        cluster.add("a-driver", airflow_iceberg_work=WORK)
        cluster.add("b-driver", airflow_iceberg_work=f"{WORK}4")
        cluster.add("c-driver", "SUCCEEDED", airflow_iceberg_work=WORK)
        cluster.add("d-driver", airflow_iceberg_submission=WORK)
        pods = [cluster.document(one) for one in cluster.submitted]
        pods.append({**pods[0], "metadata": {**pods[0]["metadata"], "labels": {"airflow-iceberg-work": WORK}}})
        monkeypatch.setattr(cluster, "_list", lambda query: (200, {"items": pods}))
        assert server(cluster).find(WORK) == ["a-driver/uid-0"]

    @pytest.mark.parametrize(
        "answer",
        [(503, "starting"), (200, "<html>log in</html>"), (200, "[]"), (404, "page not found"), (302, "elsewhere")],
    )
    def test_that_are_none_are_asked_for_again(self, answer, cluster, monkeypatch):
        cluster.add("a-driver", airflow_iceberg_work=WORK)
        real, answers = cluster.answer, [answer]

        def once(*arguments: Any) -> Any:
            return answers.pop() if answers else real(*arguments)

        monkeypatch.setattr(cluster, "answer", once)
        with pytest.raises(IcebergError, match=f"(answers with status {answer[0]}|lists no pods)"):
            server(cluster).find(WORK, patience_s=0)
        answers.append(answer)
        found = server(cluster).state("a-driver/uid-0", patience_s=30)
        assert found is not None
        assert (found.phase, answers) == ("Running", [])

    @pytest.mark.parametrize("forged", [{}, {"metadata": {"name": "../x", "uid": "1"}}, {"metadata": []}])
    def test_a_pod_that_is_none_ends_no_wait(self, forged, cluster, monkeypatch):
        monkeypatch.setattr(cluster, "answer", lambda *_: (200, forged))
        with pytest.raises(IcebergError, match="describes a pod as none is") as error:
            server(cluster).state("a-driver/uid-0")
        assert type(error.value) is IcebergError

    def test_a_refusal_is_not_repeated_and_the_token_is_read_again(self, cluster, tmp_path):
        cluster.add("a-driver", airflow_iceberg_work=WORK)
        file = tmp_path / "token"
        file.write_text("an-0ld-t0ken")
        settings = {
            "spark.kubernetes.namespace": cluster.namespace,
            "spark.kubernetes.authenticate.submission.oauthTokenFile": str(file),
        }
        one = ApiServer.of(connection(f"k8s://{cluster.url}"), {}, settings)
        with pytest.raises(IcebergError, match="refuses GET of pods in namespace jobs with status 401") as error:
            one.find(WORK, patience_s=60)
        assert "0ld" not in str(error.value)
        assert len(cluster.requests) == 1
        file.write_text(TOKEN)
        assert one.find(WORK) == ["a-driver/uid-0"]

    def test_a_login_of_netrc_takes_no_tokens_place(self, cluster, tmp_path, monkeypatch):
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password s3cr3t\n")
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        assert server(cluster).find(WORK) == []

    def test_the_end_of_a_pod_whose_answer_is_lost(self, cluster):
        one = cluster.add("a-driver", airflow_iceberg_work=WORK)
        cluster.loses = 2
        server(cluster).end(["a-driver/uid-0"])
        assert cluster.is_deleted(one)
        assert [method for method, _, _ in cluster.requests].count("DELETE") == 3
        server(cluster).end(["a-driver/uid-0"])

    def test_another_pod_of_the_same_name_is_left_alone(self, cluster):
        one = cluster.add("a-driver", airflow_iceberg_work=WORK)
        server(cluster).end(["a-driver/uid-of-an-earlier-one"])
        assert not cluster.is_deleted(one)
        assert server(cluster).state("a-driver/uid-of-an-earlier-one") is None

    def test_a_pod_that_does_not_end_is_named(self, cluster):
        cluster.add("a-driver", airflow_iceberg_work=WORK)
        cluster.grace = 1000
        with pytest.raises(IcebergError, match="a-driver/uid-0 was killed and has not ended after 0 s"):
            server(cluster).end(["a-driver/uid-0"], patience_s=0)

    def test_without_the_right_to_delete_the_log_says_what_protects_the_table(self, cluster, caplog):
        applications = Applications("dag/run/home/task/-1/1", "uuid", lambda: server(cluster))
        work = applications.labels()["spark.kubernetes.driver.label.airflow-iceberg-work"]
        cluster.add("a-driver", airflow_iceberg_work=work)
        cluster.may_delete = False
        applications.end_earlier()
        assert "has left a-driver/uid-0 running" in caplog.text
        assert "refuses DELETE of pods in namespace jobs with status 403" in caplog.text
        assert "only what the last try reports is committed" in caplog.text
        assert TOKEN not in caplog.text


class TestAPodThatIsFollowed:
    """From another process, by a reference that holds no secret."""

    @pytest.fixture
    def reference(self, cluster: StandInKubernetes, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(cluster.connection))
        cluster.add("a-driver", airflow_iceberg_submission="airflow-iceberg-submission-1")
        found = server(cluster).reference("airflow-iceberg-submission-1", None)
        assert TOKEN not in json.dumps(found)
        return json.loads(json.dumps(found))

    def test_until_it_has_ended(self, cluster, reference):
        (one,) = cluster.submitted
        followed = following.follow(reference)
        assert followed.look() is None
        one.state, one.diagnostics = "FAILED", "OOMKilled"
        assert followed.look() == "a-driver/uid-0 ended on Kubernetes with phase Failed: exit code 137, OOMKilled"

    def test_while_it_waits_the_log_says_why_once(self, cluster, reference, caplog):
        (one,) = cluster.submitted
        one.state, cluster.waiting = "PENDING", {"reason": "ErrImagePull", "message": "no such image: x"}
        followed = following.follow(reference)
        assert [followed.look(), followed.look()] == [None, None]
        (record,) = caplog.records
        assert record.getMessage() == "a-driver/uid-0 waits on Kubernetes: ErrImagePull, no such image: x"

    def test_a_pod_with_very_many_reasons_tells_the_first(self):
        """Secrets are looked for in each."""
        one = {"type": "PodScheduled", "status": "False", "reason": "password", "message": "token: x"}
        found = kubernetes._reason({"reason": "first", "conditions": [one] * 300_000})
        assert found.startswith("first, password: ")
        assert found.count("password") < 100

    def test_that_somebody_has_deleted(self, cluster, reference):
        cluster.submitted.clear()
        followed = following.follow(reference)
        looks = [followed.look() for _ in range(3)]
        assert looks == [None, None, "Kubernetes does not know a-driver/uid-0 (any more)"]

    def test_with_the_label_of_another_submission_it_is_another_one(self, cluster, reference):
        followed = following.follow({**reference, "tag": "airflow-iceberg-submission-2"})
        assert followed.look() is None
        followed.end()
        assert not cluster.is_deleted(cluster.submitted[0])

    @pytest.mark.parametrize("edited", ["another server", "no connection"])
    def test_after_its_connection_was_edited_its_token_goes_nowhere_else(
        self, edited, cluster, reference, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(kubernetes_access, "SERVICE_ACCOUNT", tmp_path / "none")
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("KUBECONFIG", raising=False)
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
        if edited == "another server":
            other = {**cluster.connection, "host": "k8s://https://other"}
            monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(other))
        before = len(cluster.requests)
        with pytest.raises(IcebergError, match="refuses GET of pods in namespace jobs with status 401"):
            following.follow(reference).look()
        assert len(cluster.requests) == before + 1
        # The service account of the triggerer has not changed.
        (tmp_path / "token").write_text(TOKEN)
        monkeypatch.setattr(kubernetes_access, "SERVICE_ACCOUNT", tmp_path)
        assert following.follow(reference).look() is None
