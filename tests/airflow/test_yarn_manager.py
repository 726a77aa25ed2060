"""The resource manager of YARN as the worker knows it: where it is, and what is made of its answers."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from airflow_iceberg.backends.applications import Applications
from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, UnsupportedError
from tests.services.launch import HOST, free_ports, hadoop_settings

ID = "application_1700000000000_0001"
FIELD = "yarn_resourcemanager_webapp_address"


def document(**fields: str) -> dict[str, str]:
    return {"id": ID, "state": "RUNNING", "finalStatus": "UNDEFINED", "applicationTags": "mine,other", **fields}


class TestItsAddress:
    """In the connection, or in Hadoop's settings of this machine; all that are named."""

    @pytest.fixture
    def of(self, tmp_path: Path) -> Callable[..., ResourceManager]:
        def make(extra: Any = None, conf: Any = None, core: Any = None, **settings: str) -> ResourceManager:
            (tmp_path / "yarn-site.xml").write_text(hadoop_settings(settings))
            (tmp_path / "core-site.xml").write_text(hadoop_settings(core or {}))
            return ResourceManager.of(extra or {}, {"HADOOP_CONF_DIR": str(tmp_path)}, conf or {})

        return make

    @pytest.mark.parametrize(
        ("settings", "addresses"),
        [
            ({"yarn.resourcemanager.webapp.address": "rm:8188"}, ["http://rm:8188"]),
            ({"yarn.resourcemanager.hostname": "rm"}, ["http://rm:8088"]),
            (
                {
                    "yarn.resourcemanager.hostname": "rm",
                    "yarn.resourcemanager.webapp.address": "${yarn.resourcemanager.hostname}:1",
                },
                ["http://rm:1"],
            ),
            ({"yarn.resourcemanager.hostname": "rm", "yarn.http.policy": "HTTPS_ONLY"}, ["https://rm:8090"]),
            (
                {
                    "yarn.resourcemanager.ha.enabled": "true",
                    "yarn.resourcemanager.ha.rm-ids": "a, b",
                    "yarn.resourcemanager.hostname.a": "one",
                    "yarn.resourcemanager.webapp.address.b": "two:9",
                },
                ["http://one:8088", "http://two:9"],
            ),
        ],
        ids=["as it is", "by its host", "with a variable", "with TLS", "of two"],
    )
    def test_is_in_yarn_site(self, settings, addresses, of):
        assert list(of(**settings).addresses) == addresses

    def test_of_the_connection_or_of_the_job_goes_before(self, of):
        site = {"yarn.resourcemanager.hostname": "rm"}
        conf = {"spark.hadoop.yarn.resourcemanager.hostname": "other"}
        assert of(conf=conf, **site).addresses == ("http://other:8088",)
        assert of({FIELD: "one:1, https://two/"}, conf, **site).addresses == ("http://one:1", "https://two")

    def test_is_missing_or_none(self, of):
        with pytest.raises(NotFoundError, match=f"set the extra field {FIELD} of the Spark connection"):
            of()
        for wrong in ("http://me:s3cr3t@rm", "file:///etc", "http://rm:8088?x=y"):
            with pytest.raises(InvalidInputError, match="is not of the form") as error:
                of({FIELD: wrong})
            assert "s3cr3t" not in str(error.value)

    def test_a_file_that_is_no_xml_is_named(self, tmp_path):
        (tmp_path / "yarn-site.xml").write_text("<configuration>")
        with pytest.raises(InvalidInputError, match=f"cannot read Hadoop's settings in {tmp_path}/yarn-site.xml"):
            ResourceManager.of({}, {"YARN_CONF_DIR": str(tmp_path)}, {})

    def test_a_cluster_with_kerberos_needs_a_library(self, of, monkeypatch):
        monkeypatch.setitem(sys.modules, "requests_kerberos", None)
        secured = {"hadoop.security.authentication": "kerberos"}
        for given in ({"core": secured}, {"extra": {"principal": "etl@LAKE"}}):
            with pytest.raises(UnsupportedError, match=r"pip install 'airflow-iceberg\[kerberos\]'"):
                of(**given, **{"yarn.resourcemanager.hostname": "rm"})


class TestItsAnswers:
    """A server that says what it is told to say."""

    @pytest.fixture
    def serve(self) -> Iterator[Callable[..., str]]:
        servers = []

        def start(
            *answers: tuple[int, Any],
            headers: Any = (),
            states: tuple[str, ...] = ("ACTIVE",),
            authorizations: list[str | None] | None = None,
        ) -> str:
            infos = [(200, {"clusterInfo": {"haState": state}}) for state in states]
            kinds = {True: infos, False: list(answers)}

            class Handler(BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    is_info = self.path.startswith("/ws/v1/cluster/info")
                    if authorizations is not None:
                        authorizations.append(self.headers.get("Authorization"))
                    left = kinds[is_info]
                    status, body = left.pop(0) if len(left) > 1 else left[0]
                    self.send_response(status)
                    for name, value in () if is_info else headers:
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body.encode() if isinstance(body, str) else json.dumps(body).encode())

                def log_message(self, *_: Any) -> None:
                    pass

            servers.append(ThreadingHTTPServer((HOST, 0), Handler))
            threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
            return f"http://{HOST}:{servers[-1].server_port}"

        yield start
        for server in servers:
            server.shutdown()
            server.server_close()

    def find(self, *addresses: str, patience_s: float = 0) -> list[str]:
        return ResourceManager(addresses, user="etl").find("Mine", patience_s=patience_s)

    @pytest.mark.parametrize("none", [{"apps": None}, {"apps": {}}, {"apps": {"app": []}}])
    def test_no_applications_in_all_spellings(self, none, serve):
        assert self.find(serve((200, none))) == []

    def test_what_was_not_asked_for_is_not_found(self, serve):
        apps = [
            document(),
            document(applicationTags="mine-too"),
            document(state="FINISHED"),
            document(applicationTags=""),
        ]
        assert self.find(serve((200, {"apps": {"app": apps}}))) == [ID]

    def test_the_active_one_of_several_is_asked_also_after_a_while(self, serve):
        (closed,) = free_ports(1)
        standby = serve((200, "This is standby RM. The redirect url is: /"), headers=[("Refresh", "3; url=/")])
        starting = serve((503, "starting"), (500, "not yet"), (200, {"apps": {"app": [document()]}}))
        assert self.find(f"http://{HOST}:{closed}", standby, starting, patience_s=60) == [ID]
        with pytest.raises(
            IcebergError, match=r"no active YARN resource manager answers \(.*ConnectionError; .*status 200"
        ):
            self.find(f"http://{HOST}:{closed}", standby)

    def test_one_that_starts_does_not_know_its_applications_yet(self, serve):
        apps = {"apps": {"app": [document()]}}
        starting = serve((200, apps), states=("INITIALIZING", "INITIALIZING", "ACTIVE"))
        assert self.find(starting, patience_s=60) == [ID]
        with pytest.raises(IcebergError, match="is starting"):
            self.find(serve((200, apps), states=("INITIALIZING",)))

    def test_a_redirection_leads_to_the_active_one_if_the_connection_names_it(self, serve):
        active = serve((200, {"apps": {"app": [document()]}}))
        standby = serve((307, "standby"), headers=[("Location", f"{active}/ws/v1/cluster/apps")], states=("STANDBY",))
        assert self.find(standby, active) == [ID]
        with pytest.raises(IcebergError, match=rf"it leads to {active}, which is none of the addresses of the Spark"):
            self.find(standby)

    def test_a_redirection_to_itself_is_followed_a_few_times(self, serve):
        turns = serve((307, "on"), headers=[("Location", "/ws/v1/cluster/apps")])
        with pytest.raises(IcebergError, match="it redirects more than 3 times"):
            self.find(turns)

    def test_no_login_of_netrc_is_sent(self, serve, tmp_path, monkeypatch):
        netrc = tmp_path / "netrc"
        netrc.write_text(f"machine {HOST} login etl password s3cret")
        monkeypatch.setenv("NETRC", str(netrc))
        seen: list[str | None] = []
        active = serve((200, {"apps": {"app": [document()]}}), authorizations=seen)
        assert self.find(active) == [ID]
        assert seen == [None, None]

    def test_a_refusal_is_not_repeated(self, serve):
        with pytest.raises(IcebergError, match="refuses GET apps with status 401; it must know the user"):
            self.find(serve((401, "no"), (200, {})), patience_s=60)

    def test_an_application_that_it_has_forgotten(self, serve):
        gone = {"RemoteException": {"exception": "NotFoundException", "message": f"app with id: {ID} not found"}}
        assert ResourceManager([serve((404, gone))], user="etl").state(ID) is None

    def test_a_forged_id_is_part_of_no_address(self):
        with pytest.raises(InvalidInputError, match="not the id of an application"):
            ResourceManager(["http://rm"], user="etl").state("../cluster/info")


class TestWhatCannotBeAsked:
    """Neither holds up a job nor hides: the log says what is unknown, and what protects the table."""

    KEY = "dag/run/home/task/-1/1"

    @pytest.fixture
    def applications(self) -> Applications:
        def unknown() -> ResourceManager:
            return ResourceManager.of({}, {}, {})

        return Applications(self.KEY, "uuid", unknown)

    def test_before_the_submission(self, applications, caplog):
        applications.end_earlier()
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "it is unknown whether an earlier try of this task still runs on the cluster" in record.getMessage()
        assert f"set the extra field {FIELD} of the Spark connection" in record.getMessage()
        assert "only what the last try reports is committed" in record.getMessage()

    def test_after_a_kill(self, applications, caplog):
        applications.end_own(was_killed=True)
        assert "it is unknown whether the application has ended on the cluster" in caplog.records[0].getMessage()

    def test_a_job_of_no_task_has_no_earlier_try(self, caplog):
        Applications(None, "uuid", lambda: ResourceManager.of({}, {}, {})).end_earlier()
        assert not caplog.records
