"""The pages about tables in Airflow's UI, served by Airflow's own application: who may see what, and what they show."""

import base64
import hashlib
import json
import re
import socket
import sqlite3
import tomllib
from contextlib import closing
from datetime import timedelta
from html.parser import HTMLParser
from importlib import import_module
from urllib.parse import quote

import pytest
from airflow import plugins_manager
from airflow.api_fastapi.app import get_auth_manager
from airflow.models import Connection
from airflow.providers.common.compat.sdk import AirflowPlugin
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.utils.session import create_session

from airflow_iceberg.catalogs.names import join_levels, split_levels
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import NotFoundError, StorageError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.operations.history.runs import Run
from airflow_iceberg.operators.append import IcebergAppendOperator
from airflow_iceberg.operators.expire_snapshots import IcebergExpireSnapshotsOperator
from airflow_iceberg.ui import addresses, app, chart, committed, opened, plugin, render, threads, views
from airflow_iceberg.ui.snapshots import shown_run
from tests.airflow.conftest import CONN_ID, DAY, Lake, operators
from tests.airflow.ui_pages import Pages, as_server, pages_of, plugins_only, token
from tests.airflow.ui_table import RUN_ID, loaded_by_runs
from tests.support.airflow_home import ROOT, register
from tests.support.airflow_versions import as_the_scheduler_has_it

append = operators(IcebergAppendOperator, spark_conn_id=None)
EVIL = "\"'><img src=x onerror=alert(1)><script>alert(2)</script>{{ 7 * 7 }}\u202e"
SECRET = "sw0rdfish-of-the-lake"


@pytest.fixture(scope="module")
def server(airflow_db):
    with as_server():
        yield plugins_only()


@pytest.fixture
def pages(server, lake: Lake) -> Pages:
    """As a user sees them who may read connections."""
    return pages_of(server, "op")


class Reader(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def text_of(html: str) -> str:
    return Reader(html.partition("<body>")[2]).text


class TestOnlyThoseSeeItWhoMayReadTheConnection:
    """Airflow's own rules decide, before anything is read."""

    @pytest.mark.parametrize("route", [one for one in app.app.routes if hasattr(one, "methods")], ids=lambda r: r.path)
    def test_no_page_is_for_nobody(self, server, lake, route):
        path = route.path.replace("{connection_id}", CONN_ID).replace("{dag_id}", "d")
        query = {"name": "s.t", "snapshot_id": "1", "run_id": "r", "connection": CONN_ID}
        assert route.methods == {"GET"}
        answer = pages_of(server, None).get(path, **query)
        assert answer.status_code == 401
        assert "Log in first" in answer.text
        assert pages_of(server, "op").client.post(f"/iceberg{path}", params=query).status_code == 405

    def test_a_viewer_sees_no_table_and_no_connection(self, server, lake):
        lake.create()
        viewer = pages_of(server, "viewer")
        for answer in (viewer.table(), viewer.table("no.such"), viewer.get("/connections/no-such")):
            assert answer.status_code == 403
            assert "s.t" not in text_of(answer.text)
        with create_session() as session:
            session.merge(Connection(conn_id="in_db", conn_type="iceberg_catalog"))
        assert "in_db" not in viewer.get("/").text
        assert "in_db" in pages_of(server, "op").get("/").text

    def test_a_forged_or_foreign_token_is_refused(self, server, lake):
        nobody = pages_of(server, None)
        nobody.client.cookies.set("_token", token("op")[:-4] + "AAAA")
        assert nobody.table().status_code in (401, 403)
        bearer = nobody.client.get("/iceberg/", headers={"Authorization": f"Bearer {token('op')}"})
        assert bearer.status_code == 200

    @pytest.mark.costly
    def test_the_name_of_a_dag_that_a_user_may_not_read_is_hidden(self, pages, lake, monkeypatch):
        with DAG("secret_dag", schedule=None, start_date=DAY) as dag:
            EmptyOperator(task_id="load")
        register(dag)
        table = lake.create()
        for dag_id in ("secret_dag", "dag_of_another_airflow"):
            lake.append([1], operation_key=OperationKey(dag_id=dag_id, run_id="its_run", task_id="load"))
        assert 'href="/dags/secret_dag/runs/its_run/tasks/load?try_number=1"' in pages.html()
        monkeypatch.setattr(type(get_auth_manager()), "get_authorized_dag_ids", lambda *_, **__: set())
        snapshots = lake.load().snapshots()
        shown = (
            pages.html(),
            pages.get(f"/connections/{CONN_ID}/snapshot", name="s.t", snapshot_id=snapshots[0].snapshot_id),
        )
        assert "secret_dag" not in shown[0]
        assert "a DAG that you may not see" in shown[0]
        # What this Airflow does not have is none of its secrets, and has no page.
        assert "dag_of_another_airflow" in shown[0]
        assert "/dags/dag_of_another_airflow" not in shown[0]
        assert shown[1].status_code == 200
        assert "secret_dag" not in shown[1].text
        assert table.name == "s.t"


class TestWhatIsNotThere:
    """Whatever an address asks for, the answer is a page that says what is wrong."""

    @pytest.mark.costly
    @pytest.mark.parametrize(
        ("name", "status"),
        [
            ("no.such", 404),
            ("s.gone", 404),
            ("t", 400),
            ("", 400),
            (".", 400),
            ("../../etc.passwd", 400),
            ("s.t\x00", 400),
            (EVIL, 400),
            ("s." + "x" * 1_000, 400),
            ("s.'; drop table t; --", 404),
        ],
    )
    def test_a_table_that_does_not_exist(self, pages, lake, name, status):
        lake.create()
        answer = pages.table(name)
        assert (answer.status_code, answer.headers["content-type"]) in (
            (status, "text/html; charset=utf-8"),
            (404 if status == 400 else status, "text/html; charset=utf-8"),
        )
        assert "<script>alert" not in answer.text

    def test_a_connection_of_another_type_is_not_opened(self, pages, monkeypatch):
        postgres = {"conn_type": "postgres", "host": "db", "password": SECRET, "login": "me"}
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE_DB", json.dumps(postgres))
        for conn_id in ("warehouse_db", "no_such_connection"):
            answer = pages.table(conn_id=conn_id)
            assert answer.status_code == 404
            assert SECRET not in answer.text

    @pytest.mark.parametrize("snapshot_id", ["1", "-1", "x", "9" * 30, EVIL, "١"])
    def test_a_snapshot_that_does_not_exist(self, pages, lake, snapshot_id):
        lake.create()
        answer = pages.get(f"/connections/{CONN_ID}/snapshot", name="s.t", snapshot_id=snapshot_id)
        assert answer.status_code in (400, 404)

    @pytest.mark.costly
    def test_a_branch_or_a_page_that_does_not_exist(self, pages, lake):
        lake.create()
        assert pages.table(branch="no-such").status_code == 404
        assert pages.table(page=0).status_code == 400
        assert "There is no snapshot on this page" in text_of(pages.html(page=1_000_000))

    def test_a_catalog_that_is_down(self, pages, lake, monkeypatch):
        down = {"conn_type": "iceberg_catalog", "host": "sqlite:////no/such/folder/catalog.db", "password": SECRET}
        down["extra"] = {"type": "sql", "warehouse": lake.folder.as_uri()}
        monkeypatch.setenv("AIRFLOW_CONN_DOWN", json.dumps(down))
        answer = pages.table(conn_id="down")
        assert answer.status_code == 502
        assert "The catalog or a store did not give an answer" in answer.text
        assert SECRET not in answer.text

    @pytest.mark.costly
    def test_no_page_makes_what_it_does_not_find(self, pages, tmp_path, monkeypatch):
        (tmp_path / "lake").mkdir()
        extra = {"warehouse": (tmp_path / "lake" / "warehouse").as_uri()}
        for kind, host in (("sql", f"sqlite:///{tmp_path}/lake/mistyped.db"), ("hadoop", None)):
            connection = {"conn_type": "iceberg_catalog", "host": host, "extra": {"type": kind, **extra}}
            monkeypatch.setenv("AIRFLOW_CONN_NEW", json.dumps(connection))
            assert "There is no table here" in pages.get("/connections/new").text
            for answer in (
                pages.table(conn_id="new"),
                pages.get("/connections/new", namespace="s"),
                pages.get("/connections/new/snapshot", name="s.t", snapshot_id="1"),
            ):
                assert answer.status_code == 404, kind
            assert list((tmp_path / "lake").iterdir()) == [], kind

    def test_a_catalog_that_hangs_holds_up_no_other_page(self, pages, lake, monkeypatch):
        lake.create()
        with socket.create_server(("127.0.0.1", 0)) as silent:
            uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
            hanging = {"conn_type": "iceberg_catalog", "host": uri, "extra": {"type": "rest"}}
            monkeypatch.setenv("AIRFLOW_CONN_HANGING", json.dumps(hanging))
            monkeypatch.setattr(threads, "TIMEOUT_S", 0.5)
            answer = pages.table(conn_id="hanging")
            assert answer.status_code == 504
            assert "The catalog does not answer" in answer.text
            monkeypatch.setattr(threads, "TIMEOUT_S", 30)
            assert pages.table().status_code == 200

    @pytest.mark.costly
    def test_files_that_cannot_be_read_take_nothing_else_from_the_page(self, pages, lake):
        lake.create()
        lake.append([1])
        for manifest in (lake.folder / "warehouse" / "s" / "t" / "metadata").glob("*.avro"):
            manifest.write_bytes(b"no avro")
        text = text_of(pages.html())
        assert "The files of the table cannot be counted" in text
        assert "Snapshots 1 to 1 of 1" in text
        snapshot_id = lake.load().current_snapshot().snapshot_id
        answer = pages.get(f"/connections/{CONN_ID}/snapshot", name="s.t", snapshot_id=snapshot_id)
        assert "The files cannot be read" in answer.text


class TestEnemiesWriteTables:
    """Names, properties, comments and summaries are text, whatever is in them."""

    @pytest.fixture
    def hostile(self, lake: Lake):
        table = lake.create(properties={EVIL: EVIL, "owner": EVIL}, schema={"id": "long"})
        table.alter([{"add_column": {"name": EVIL, "type": "string", "doc": EVIL}}])
        key = OperationKey(dag_id=EVIL, run_id="../.." + EVIL, task_id=EVIL)
        lake.append([1], operation_key=key, snapshot_properties={EVIL: EVIL, "engine-name": EVIL})
        table = lake.load()
        table.create_branch(EVIL.replace("\u202e", ""))
        return table.refresh()

    @pytest.mark.costly
    def test_nothing_of_it_is_html(self, pages, hostile):
        snapshot_id = hostile.current_snapshot().snapshot_id
        snapshot = pages.get(f"/connections/{CONN_ID}/snapshot", name="s.t", snapshot_id=snapshot_id).text
        for html in (pages.html(), pages.html(branch=EVIL.replace("\u202e", "")), snapshot):
            found = Reader(html)
            assert [tag for tag, _ in found.tags if tag in ("script", "img", "iframe")] == ["script"]
            assert {name for _, attrs in found.tags for name in attrs if name.startswith("on")} == set()
            links = [attrs["href"] or "" for tag, attrs in found.tags if tag == "a"]
            assert [link for link in links if not re.match(r"#|/iceberg/|/dags/", link)] == []
            assert "onerror=alert(1)" in found.text  # as text
            assert "{{ 7 * 7 }}" in found.text
            assert "\u202e" not in html

    def test_the_browser_is_told_to_run_nothing_else(self, pages, lake):
        lake.create()
        answer = pages.table()
        policy = dict(one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["base-uri"] == "'none'"
        for tag, directive in (("script", "script-src"), ("style", "style-src")):
            (own,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
            digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
            assert policy[directive] == f"'sha256-{digest}'"
        assert "style=" not in answer.text
        assert answer.headers["cache-control"] == "no-store"

    def test_addresses_are_encoded(self):
        assert str(render.link("connections", "..", "table", name="a&b=c#d")) == (
            "/iceberg/connections/%2E%2E/table?name=a%26b%3Dc%23d"
        )


class TestSecretsStayInTheApiServer:
    """No page shows a credential of the connection, and none tells whether a guess of one is right."""

    @pytest.fixture
    def secret(self, lake, monkeypatch) -> str:
        connection = lake.connection
        connection["extra"] = {**connection["extra"], "s3.secret-access-key": SECRET, "token": "pa55w0rd"}
        monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps(connection))
        return SECRET

    @pytest.mark.costly
    def test_those_of_a_table_are_hidden_by_their_names(self, pages, lake):
        table = lake.create(properties={"source.password": "hunter2hunter2"})
        table.alter([{"add_column": {"name": "x", "type": "long", "doc": "jdbc:x://me:hunter2hunter2@db/x"}}])
        lake.append([1], snapshot_properties={"token": "hunter2hunter2"})
        html = pages.html()
        snapshot_id = lake.load().current_snapshot().snapshot_id
        snapshot = pages.get(f"/connections/{CONN_ID}/snapshot", name="s.t", snapshot_id=snapshot_id).text
        assert "hunter2" not in html + snapshot
        assert "source.password" in html

    @pytest.mark.costly
    def test_the_texts_of_a_table_are_no_place_to_try_guesses(self, pages, lake, secret):
        """Who writes a guess into a table, an address or a name sees the same, whether it is right or not."""
        for guess in (secret, "pa55w0rd", "a-wrong-guess"):
            name = f"s.{guess}"
            table = lake.create(name, properties={"note": f"is it {guess}?", guess: "x"})
            added = {"add_column": {"name": f"c_{guess}", "type": "long", "doc": f"is it {guess}?"}}
            table.alter([added, {"set_properties": {f"of.{guess}": "x"}}])
            lake.append([1], name, snapshot_properties={"comment": f"from {guess}", "engine-name": guess})
            snapshot_id = lake.load(name).current_snapshot().snapshot_id
            shown = pages.html(name)
            snapshot = pages.get(f"/connections/{CONN_ID}/snapshot", name=name, snapshot_id=snapshot_id).text
            listing = pages.get(f"/connections/{CONN_ID}").text
            missing = pages.table(f"s.no-{guess}").text
            wrong = pages.get(f"/connections/{CONN_ID}/snapshot", name=name, snapshot_id=guess).text
            for html in (shown, snapshot, listing):
                assert "***" not in html, guess
                assert guess in html
            assert [guess in html or "***" in html for html in (missing, wrong)].count(True) == 2

    @pytest.mark.costly
    def test_words_of_an_address_are_not_looked_at(self, pages, lake, secret):
        lake.create()
        answers = [
            pages.table("s.pa55w0rd"),
            pages.get(f"/connections/{CONN_ID}", namespace="pa55w0rd"),
            pages.table(branch="pa55w0rd"),
            pages.get(f"/connections/{CONN_ID}/snapshot", name="s.t", snapshot_id="pa55w0rd"),
        ]
        assert ["pa55w0rd" in one.text and "***" not in one.text for one in answers] == [True] * 4

    def test_an_error_that_tells_a_part_of_the_address_confirms_no_guess(self):
        """Such as the namespace of a table alone."""

        def shown(guess: str) -> str:
            error = NotFoundError(f"there is no table {guess}.t: namespace {guess} does not exist, of {SECRET}")
            return render.error_text(error, ("pa55w0rd", SECRET), (f"{guess}.t",)).replace(guess, "a name")

        assert shown("pa55w0rd") == shown("pa55w0rt")
        assert SECRET not in shown("x")

    @pytest.mark.parametrize("asked", ["`{}`.t", '"{}".t', "`{}`", "s.`{}`"])
    def test_nor_by_another_spelling_of_its_name(self, asked):
        def shown(guess: str) -> str:
            name = join_levels(split_levels(asked.format(guess)))
            error = NotFoundError(f"there is no table {name}, of {SECRET}")
            return render.error_text(error, ("pa55w0rd", SECRET), (asked.format(guess),)).replace(guess, "a name")

        assert shown("pa55w0rd") == shown("pa55w0rt")

    @pytest.mark.costly
    @pytest.mark.parametrize("part", ["listing", "table", "health"])
    def test_errors_may_hold_those_of_the_connection(self, part, pages, lake, secret, monkeypatch):
        lake.create()
        lake.append([1])

        def fail(*_: object, **__: object) -> None:
            raise StorageError(f"refused: {secret} and pa55w0rd, at s3://bucket/{secret}/x")

        owner, name = {
            "listing": (SqlCatalog, "list_namespaces"),
            "table": (SqlCatalog, "read_pointer"),
            "health": (views, "count_files"),
        }[part]
        monkeypatch.setattr(owner, name, fail)
        answer = pages.get(f"/connections/{CONN_ID}") if part == "listing" else pages.table()
        assert "refused: *** and ***, at s3://bucket/***/x" in answer.text
        assert answer.status_code == (200 if part == "health" else 502)

    @pytest.mark.costly
    def test_a_page_of_the_errors_of_documents_confirms_no_guess(self, pages, lake, secret):
        table = lake.create()
        for guess in ("pa55w0rd", "a-wrong1"):
            path = lake.folder / "warehouse" / "s" / "t" / "metadata" / f"{guess}.metadata.json"
            document = metadata_json.to_dict(table.metadata) | {"format-version": guess}
            path.write_text(json.dumps(document))
            (database,) = lake.folder.glob("*.db")
            with closing(sqlite3.connect(database)) as rows, rows:
                rows.execute("update iceberg_tables set metadata_location = ?", (path.as_uri(),))
            answer = pages.table()
            assert answer.status_code == 502
            assert f"/{guess}.metadata.json" in answer.text
            assert "***" not in answer.text


class TestTheListing:
    """Each of its links leads to what it names."""

    def test_a_name_may_have_a_dot(self, pages, lake):
        names = ("s.`x.t`", "s.x.t", "s.`a``b`", 's."5%.\'"')
        uuids = {lake.create(name).metadata.table_uuid for name in names}
        links = [attrs.get("href") or "" for _, attrs in Reader(pages.get(f"/connections/{CONN_ID}").text).tags]
        shown = [pages.client.get(link).text for link in links if "/table?name=" in link]
        assert len(shown) == len(uuids)
        assert {uuid for uuid in uuids for page in shown if uuid in page} == uuids
        spaces = {link for link in links if "?namespace=" in link}
        assert [pages.client.get(link).status_code for link in spaces] == [200, 200]
        assert pages.get(f"/connections/{CONN_ID}", namespace="`s").status_code == 400


class TestTheTable:
    """What the page of a table says."""

    @pytest.fixture
    def text(self, pages, lake) -> str:
        loaded_by_runs(lake)
        return text_of(pages.html("sales.orders"))

    @pytest.mark.costly
    def test_health_timeline_refs_partitions_maintenance_and_schema(self, text):
        for part in (
            "Rows 3,000",
            "3 of 4 partitions would have fewer files after a compaction",
            "Snapshots 1 to 14 of 14, newest first",
            f"load_orders.append {RUN_ID.format(12)}, try 1",
            "−179",
            "end-of-quarter tag",
            "region=eu 660",
            "1 compaction in the snapshots that the table has: 28 fewer files",
            "channel string optional where it was ordered",
            "column channel string is added",
        ):
            assert part in text
        assert text.count("load_orders.append") == 12

    @pytest.mark.costly
    def test_the_history_of_a_branch(self, pages, lake):
        lake.create()
        lake.append([1])
        lake.load().create_branch("audit")
        lake.append([2], branch="audit")
        assert "Snapshots 1 to 2, newest first" in text_of(pages.html(branch="audit"))
        assert "Snapshots 1 to 1, newest first" in text_of(pages.html(branch="main"))

    def test_a_table_without_a_snapshot(self, pages, lake):
        lake.create()
        text = text_of(pages.html())
        assert "Nothing to do" in text
        assert "There is no snapshot." in text

    @pytest.mark.costly
    def test_what_was_worked_out_is_kept_until_the_next_commit(self, pages, lake, monkeypatch):
        lake.create()
        lake.append([1])
        worked_out, real = [], app.views.health_of
        monkeypatch.setattr(app.views, "health_of", lambda table: worked_out.append(table) or real(table))
        for _ in range(3):
            pages.html()
        assert len(worked_out) == 1
        lake.append([2])
        assert "Rows 2" in text_of(pages.html())
        assert len(worked_out) == 2

    def test_a_page_that_fails_says_no_more_than_that(self, pages, lake, monkeypatch):
        lake.create()

        def fail(*_):
            raise RuntimeError(f"with {SECRET}")

        monkeypatch.setattr(app.views, "facts_of", fail)
        answer = pages.table()
        assert answer.status_code == 500
        assert "This page failed" in answer.text
        assert SECRET not in answer.text

    @pytest.mark.costly
    def test_many_snapshots_are_shown_in_pages_of_limited_size(self, pages, lake):
        lake.create()
        lake.append([1])
        head = many_snapshots(lake, 3_000)
        text = text_of(pages.html("s.many"))
        assert "Snapshots 1 to 50 of 3,000, newest first" in text
        assert "3,000 snapshots, which each commit writes again" in text
        html = pages.html("s.many", page=60)
        assert "Snapshots 2,951 to 3,000" in html
        assert "← Newer" in html
        assert "Older →" not in html
        assert len(html) < 200_000
        assert str(head) in pages.html("s.many")


def many_snapshots(lake: Lake, count: int) -> int:
    """Register a table `s.many` with so many snapshots, all with the same files; return the last one."""
    found = lake.load()
    document = metadata_json.to_dict(found.metadata)
    (first,) = document["snapshots"]
    document["snapshots"] = [
        {**first, "snapshot-id": 10**6 + n, "sequence-number": n, "timestamp-ms": first["timestamp-ms"] - count + n}
        | ({"parent-snapshot-id": 10**6 + n - 1} if n > 1 else {})
        for n in range(1, count + 1)
    ]
    last = 10**6 + count
    document |= {"current-snapshot-id": last, "last-sequence-number": count, "snapshot-log": []}
    document["refs"] = {"main": {"snapshot-id": last, "type": "branch"}}
    path = lake.folder / "warehouse" / "s" / "t" / "metadata" / "00009-many.metadata.json"
    path.write_text(json.dumps(document))
    lake.catalog.register_table("s.many", path.as_uri())
    return last


class TestWhatARunCommitted:
    """For a DAG run or a task: its snapshots with files and inputs, on every table that Airflow knows it to write."""

    def path(self, run) -> str:
        return f"/dags/{run.dag_run.dag_id}/committed"

    @pytest.fixture
    def run(self, lake, new_dag, run_dag, pages):
        for name in ("s.t", "s.u"):
            lake.create(name)
        files = str(lake.write_file("a.parquet", [1, 2, 3]))
        with new_dag() as dag:
            append(task_id="one", files=files) >> append(task_id="two", table="s.u", files=files)
        found = run_dag(dag)
        assert found.state == "success"
        return found

    @pytest.mark.costly
    def test_its_snapshots_files_and_tables(self, run, pages, lake):
        run_id = run.dag_run.run_id
        of_run = pages.get(self.path(run), run_id=run_id).text
        of_task = pages.get(self.path(run), run_id=run_id, task_id="one", map_index="-1").text
        for name, in_task in (("s.t", True), ("s.u", False)):
            snapshot_id = str(lake.load(name).current_snapshot().snapshot_id)
            assert snapshot_id in of_run
            assert (snapshot_id in of_task) == in_task
        text = text_of(of_task)
        assert "What this task committed" in text
        assert "Rows added 3" in text
        (file,) = lake.data_files()
        assert file.name in text
        nothing = pages.get(self.path(run), run_id=run_id, task_id="one", map_index="7").text
        assert "Airflow knows no Iceberg table" in nothing

    @pytest.mark.parametrize("encode", [quote, lambda run_id: run_id], ids=["encoded", "as Airflow 3.1 does"])
    def test_of_a_run_whose_id_has_a_time_zone_and_slashes(self, encode, pages, lake, monkeypatch):
        lake.create()
        asked = []
        monkeypatch.setattr(committed, "tables_of", lambda work: asked.append(work) or [])
        run_id = "scheduled__2026-01-01T00:00:00+00:00/a b~é"
        path = f"/iceberg/dags/d/committed?run_id={encode(run_id)}&task_id=a.b&map_index={{MAP_INDEX}}"
        assert pages.client.get(path).status_code == 200
        assert [(one.run_id, one.task_id, one.map_index) for one in asked] == [(run_id, "a.b", None)]

    @pytest.mark.costly
    def test_who_may_not_read_the_connection_learns_nothing_of_the_table(self, run, server, lake):
        viewer = pages_of(server, "viewer")
        text = text_of(viewer.get(self.path(run), run_id=run.dag_run.run_id).text)
        assert "You may not read the connection iceberg_catalog_default" in text
        assert str(lake.load().current_snapshot().snapshot_id) not in text

    @pytest.mark.costly
    def test_another_run_and_all_dags_at_once(self, run, pages):
        assert "Airflow knows no Iceberg table" in pages.get(self.path(run), run_id="another").text
        assert pages.get("/dags/~/committed", run_id=run.dag_run.run_id).status_code == 404

    @pytest.mark.services
    def test_the_links_of_mapped_tasks_lead_to_these_pages(self, lake, new_dag, run_dag, pages):
        lake.create("s.odd&name")
        files = [str(lake.write_file(f"{number}.parquet", [number])) for number in (1, 2)]
        with new_dag() as dag:
            IcebergAppendOperator.partial(task_id="load", table="s.odd&name", spark_conn_id=None).expand(files=files)
        run = run_dag(dag)
        assert run.state == "success"
        shown = as_the_scheduler_has_it(dag).get_task("load")
        for instance in run.dag_run.get_task_instances():
            links = [shown.get_extra_links(instance, name) for name in ("Iceberg table", "Iceberg snapshot")]
            table, snapshot = [pages.client.get(link) for link in links]
            assert (table.status_code, snapshot.status_code) == (200, 200)
            assert "s.odd&name" in text_of(table.text)
            assert f".load[{instance.map_index}]" in text_of(snapshot.text)

    @pytest.mark.costly
    def test_a_table_that_is_gone_since_is_said(self, run, pages, lake):
        lake.catalog.drop_table("s.u")
        text = text_of(pages.get(self.path(run), run_id=run.dag_run.run_id).text)
        assert "s.u" in text
        assert str(lake.load().current_snapshot().snapshot_id) in text

    @pytest.mark.costly
    def test_an_expiry_is_told_on_the_page_of_its_table(self, lake, pages, run_task):
        lake.create()
        lake.append([1])
        lake.append([2])
        expire = operators(
            IcebergExpireSnapshotsOperator, task_id="expire", older_than=timedelta(0), spark_conn_id=None
        )
        assert run_task(expire, retain_last=1).state == "success"
        text = text_of(pages.html())
        assert "Asset events of the table's maintenance" in text
        assert "expired snapshots 1" in text


class TestThePlugin:
    """Airflow finds it, and only the API server pays for it."""

    def test_the_entry_point_names_it(self):
        points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["airflow.plugins"]
        ((_, target),) = points.items()
        module, _, name = target.partition(":")
        found = getattr(import_module(module), name)
        assert issubclass(found, AirflowPlugin)
        assert plugins_manager.is_valid_plugin(found)

    def test_the_places_in_the_ui(self):
        ours = {one["destination"]: one["href"] for one in plugin.IcebergPlugin.external_views}
        task = "/iceberg/dags/{DAG_ID}/committed?run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"
        assert ours == {"nav": "/iceberg/", "dag_run": task.partition("&")[0], "task_instance": task}

    def test_addresses_are_below_the_path_of_airflow(self, monkeypatch):
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.com/airflow/")
        assert addresses.base_path() == "/airflow"
        assert str(render.link("connections", "x")) == "/airflow/iceberg/connections/x"


def test_a_chart_has_a_limited_number_of_points():
    points = [(when, when % 1000) for when in range(100_000)]
    drawn = chart.draw("Rows", points, str)
    assert drawn is not None
    assert len(drawn.line.split()) == chart.MOST_POINTS
    assert drawn.summary.startswith("Rows: from 0 to 999")


def test_what_could_not_be_read_is_read_again():
    """A store that was away for a moment is not shown as away until the next commit."""
    answers = iter([views.Health(small_below=1, error="the store is away"), views.Health(small_below=1)])
    kept = opened.Kept(2)
    assert [kept.get("health", lambda: next(answers)).error for _ in range(3)] == ["the store is away", "", ""]


def test_results_are_kept_for_a_limited_number_of_keys():
    kept = opened.Kept(2)
    made = [kept.get(key, lambda key=key: f"{key}!") for key in "abcab"]
    assert made == ["a!", "b!", "c!", "a!", "b!"]
    assert len(kept._found) == 2


def test_the_snapshot_of_an_input_is_shown():
    entry = {"catalog": "c", "table": "s.orders", "table-uuid": "u", "snapshot-id": "17"}
    run = Run(snapshot_id=1, parent_snapshot_id=None, committed_at_ms=1, operation="append", inputs={"o": entry})
    assert dict(shown_run(run).inputs) == {"o": {"table": "s.orders", "snapshot_id": "17"}}
