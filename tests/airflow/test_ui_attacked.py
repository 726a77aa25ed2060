"""The pages about tables under attack: by who writes tables or addresses, and by what is slow or replaced."""

import asyncio
import json
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

from airflow_iceberg.catalogs.load import load_catalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import StorageError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.table import Table
from airflow_iceberg.ui import access, app, chart, opened, render, snapshots
from tests.airflow.conftest import CONN_ID, DAY, Lake
from tests.airflow.ui_pages import Pages, as_server, pages_of, plugins_only
from tests.support.airflow_home import register
from tests.support.http_server import HttpServer, Reply

SECRET = "sw0rdfish-of-the-lake"


@pytest.fixture(scope="module")
def server(airflow_db):
    with as_server():
        yield plugins_only()


@pytest.fixture
def pages(server, lake: Lake) -> Pages:
    return pages_of(server, "op")


@pytest.fixture
def forged(lake: Lake) -> Callable[..., str]:
    """Registers a table `s.forged` with one snapshot, whose metadata was changed by an enemy."""

    def make(change: Callable[[dict[str, Any]], Any]) -> str:
        lake.create()
        lake.append([1])
        lake.append([2])
        document = metadata_json.to_dict(lake.load().metadata)
        change(document)
        path = lake.folder / "warehouse" / "s" / "t" / "metadata" / "00009-forged.metadata.json"
        path.write_text(json.dumps(document))
        lake.catalog.register_table("s.forged", path.as_uri())
        return "s.forged"

    return make


def snapshot_page(pages: Pages, name: str, snapshot_id: int) -> Any:
    return pages.get(f"/connections/{CONN_ID}/snapshot", name=name, snapshot_id=snapshot_id)


class TestMetadataOfAnEnemy:
    """Whatever is in it, a page says what can be said, and is of limited size."""

    @pytest.mark.costly
    def test_absurd_numbers(self, pages, forged):
        numbers = ["-5", "9" * 400, "NaN", "1e999", "0x10"]
        names = ["total-files-size", "total-records", "added-files-size", "deleted-records", "added-data-files"]

        def change(document: dict[str, Any]) -> None:
            first, last = document["snapshots"]
            first["summary"] |= dict(zip(names, numbers, strict=True))
            last["summary"] |= dict(zip(names, reversed(numbers), strict=True))

        assert "Snapshots 1 to 2 of 2" in pages.html(forged(change))

    @pytest.mark.costly
    def test_parents_in_a_circle(self, pages, forged):
        def change(document: dict[str, Any]) -> None:
            first, second = document["snapshots"]
            first["parent-snapshot-id"] = second["snapshot-id"]

        assert pages.table(forged(change)).status_code in (200, 502)

    @pytest.mark.services
    def test_texts_of_ten_million_characters(self, pages, forged):
        huge = "<b>" + "password=hunter2hunter2 " * 420_000

        def change(document: dict[str, Any]) -> None:
            document["properties"] |= {"note": huge, huge[:2_000_000]: "x", "short": "y" * 50_000}
            document["schemas"][0]["fields"][0]["doc"] = huge
            inputs = {f"i{number}": {"table": f"s.t{number}"} for number in range(10_000)}
            document["snapshots"][-1]["summary"] |= {"engine-name": huge, "airflow.inputs": json.dumps(inputs)}

        name = forged(change)
        found = (pages.html(name), snapshot_page(pages, name, lake_head(pages, name)).text)
        for html in found:
            assert len(html) < 200_000
            assert "hunter2" not in html
            assert "<b>pass" not in html
        assert f"({len(huge):,} characters, not shown)" in found[0]
        assert "and 9,980 more" in found[0]

    @pytest.mark.costly
    @pytest.mark.parametrize("place", ["file:///etc/passwd", "http://{host}/latest/meta-data/", "s3://other/list.avro"])
    def test_manifests_elsewhere_are_not_read(self, place, pages, forged):
        asked: list[Any] = []
        with_keys = HttpServer(lambda request: asked.append(request) or Reply(body=b"the keys of this machine"))

        def change(document: dict[str, Any]) -> None:
            for snapshot in document["snapshots"]:
                snapshot["manifest-list"] = place.format(host=with_keys.uri.removeprefix("http://"))

        try:
            name = forged(change)
            html = pages.html(name) + snapshot_page(pages, name, lake_head(pages, name)).text
        finally:
            with_keys.close()
        assert "The files of the table cannot be counted" in html
        assert "The files cannot be read" in html
        assert "root:x:" not in html
        assert "the keys" not in html
        assert asked == []

    @pytest.mark.costly
    def test_a_pointer_to_another_file_shows_nothing_of_it(self, pages, lake):
        lake.create()
        file = lake.folder / "private.txt"
        file.write_text(f"the key is {SECRET}")
        (path,) = [one for one in lake.folder.rglob("*.db") if b"iceberg_tables" in one.read_bytes()]
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("update iceberg_tables set metadata_location = ?", (file.as_uri(),))
        answer = pages.table()
        assert answer.status_code in (400, 404, 502)
        assert SECRET[:6] not in answer.text

    def test_numbers_that_no_clock_and_no_disk_has(self):
        many = 10**400
        assert render.size(many) == render.size(-many).removeprefix("−")
        assert "just now" in render.ago(many)
        assert "days ago" in render.ago(-many)
        assert str(render.moment(many)) == str(many)
        drawn = chart.draw("Size", [(0, -(2**62)), (1, 5)], str)
        assert drawn is not None
        heights = [float(point.partition(",")[2]) for point in drawn.line.split()]
        assert all(0 <= height <= chart.HEIGHT for height in heights)


def lake_head(pages: Pages, name: str) -> int:
    """Return the newest snapshot that the page of a table links to."""
    found = re.search(r"snapshot_id=(\d+)", pages.html(name))
    assert found is not None
    return int(found[1])


class TestSecretsAtTheEdgeOfWhatIsShown:
    """A text is cut after secrets were removed from it: half of one would be shown."""

    @pytest.mark.parametrize("cut", range(0, len(SECRET) + 1, 3))
    def test_of_the_connection_in_errors(self, cut):
        for head in ("x" * (2_000 - cut), SECRET * 10 + "x" * (2_000 - cut - 10 * len("***"))):
            shown = render.error_text(StorageError(f"{head}{SECRET}{'y' * 9_000}"), (SECRET,))
            assert SECRET[:3] not in shown[:2_000]

    @pytest.mark.parametrize("asked", ["", "h", "hunter2", "s.hunter2hunter2", "xhunter2hunter2x", "refused"])
    def test_no_word_of_an_address_uncovers_one(self, asked):
        text = f"refused: hunter2hunter2; there is no table {asked}"
        assert render.error_text(StorageError(text), ("hunter2hunter2",), (asked,)) == text.replace(
            "hunter2hunter2", "***", 1
        )

    def test_a_name_of_very_many_levels_makes_few_patterns(self):
        """They are looked for at each place of an error, and hold up all pages meanwhile."""
        for name in ("." * 1_000, "a." * 500, "/" * 1_000):
            assert len(list(render._told((name,)))) < 100, name
            assert render.error_text(StorageError(f"no {name}"), ("hunter2",), (name,)).startswith("no ")
        assert len(list(render._told(("a.b.c",)))) == 7

    @pytest.mark.parametrize("cut", [0, 10, 60])
    def test_in_the_values_of_a_table(self, cut):
        for secret in (
            "password=hunter2hunter2 ",
            f"s3://me:{'hunter2' * 100}@host/x",
            '"password": "hunter2 hunter2"',
        ):
            (_, shown), *_ = snapshots.properties_of({"note": "x " * ((2_000 - cut) // 2) + secret + "y" * 9_000})
            assert "hunter" not in shown[:2_000]
        for document in ('{"note": "x", "password": ["hunter2hunter2"]', ' [{"token": {"of": "hunter2hunter2"'):
            (_, shown), *_ = snapshots.properties_of({"note": document + " " * 9_000})
            assert shown.endswith("characters, not shown)")

    @pytest.mark.parametrize("cut", [0, 5, 10, 20, 40, 600])
    def test_those_that_are_recognised_by_what_is_around_them(self, cut):
        for secret in ("password=hunter2hunter2 ", f"s3://me:{'hunter2' * 100}@host/x"):
            assert "hunter" not in render.message("x " * ((2_000 - cut) // 2) + secret + "y" * 9_000)[:2_000]


class TestAddressesOfAnEnemy:
    """They lead to no other host, to no other user's rights, and into no log."""

    def test_no_answer_leads_to_another_host(self, pages, lake):
        for conn_id in ("//evil.example.com", "https://evil.example.com", "\\evil.example.com", "a\r\nSet-Cookie: b=c"):
            answer = pages.get("/open", connection=conn_id)
            assert answer.status_code == 303
            assert re.fullmatch(r"/iceberg/connections/[\w%.-]+", answer.headers["location"])
            assert "set-cookie" not in answer.headers
        # An address with a slash at its end is none, rather than one at the host that the request names.
        answer = pages.client.get(f"/iceberg/connections/{CONN_ID}/", headers={"Host": "evil.example.com"})
        assert (answer.status_code, answer.headers.get("location")) == (404, None)

    @pytest.mark.costly
    def test_what_is_no_name(self, pages, lake):
        lake.create()
        paths = [
            "/connections/a%0d%0ab/table?name=s.t",
            "/connections/%00/table?name=s.t",
            "/connections/..%2f..%2fetc/table?name=s.t",
            "/connections/iceberg_catalog_default/table?name=s.t%0d%0ax",
            "/connections/iceberg_catalog_default/table?name=s%2f..%2ft",
            "/connections/iceberg_catalog_default/table?name=s.t&page=99999999999999999999",
            "/connections/iceberg_catalog_default?namespace=..%2f..",
            "/dags/%00/committed?run_id=r",
            "/dags/a%0ab/committed?run_id=r",
            "/dags/d/committed?run_id=%00",
            "/dags/d/committed?run_id=r&task_id=%0a",
            "/open",
        ]
        answers = {path: pages.client.get(f"/iceberg{path}").status_code for path in paths}
        assert {path: status for path, status in answers.items() if status not in (400, 404, 502)} == {}

    @pytest.mark.costly
    def test_each_answer_is_of_html_that_nobody_keeps(self, pages, server, lake):
        lake.create()
        answers = [
            pages.table(),
            pages.get("/"),
            pages.get("/open", connection="x"),
            pages.table("no.such"),
            pages.table(page=0),
            pages.get("/no/such/page"),
            pages.client.post("/iceberg/"),
            pages_of(server, None).table(),
            pages_of(server, "viewer").table(),
        ]
        assert [one.status_code for one in answers] == [200, 200, 303, 404, 400, 404, 405, 401, 403]
        for one in answers:
            assert one.headers["cache-control"] == "no-store"
            assert one.headers["x-content-type-options"] == "nosniff"
            assert one.headers["content-security-policy"].startswith("default-src 'none'")

    def test_a_page_that_fails_writes_one_line_of_the_address_into_the_log(self, pages, lake, monkeypatch, caplog):
        monkeypatch.setattr(app, "connect", lambda _: 1 / 0)
        assert pages.client.get("/iceberg/connections/a%1b[31mERROR forged").status_code == 500
        (said,) = [one.getMessage() for one in caplog.records if one.getMessage().startswith("cannot show ")]
        assert "ERROR forged" in said
        assert "\x1b" not in said


class TestUsersWithoutRights:
    """What one user has made the server remember is shown to nobody who may not see it."""

    @pytest.mark.costly
    def test_a_page_that_is_kept(self, pages, server, lake):
        lake.create()
        lake.append([1])
        snapshot_id = lake_head(pages, "s.t")
        assert snapshot_page(pages, "s.t", snapshot_id).status_code == 200
        viewer = pages_of(server, "viewer")
        for answer in (viewer.table(), snapshot_page(viewer, "s.t", snapshot_id)):
            assert answer.status_code == 403
            assert str(snapshot_id) not in answer.text

    @pytest.mark.costly
    def test_a_dag_that_is_named_by_the_key_of_another_ones_snapshot(self, pages, forged, monkeypatch):
        for dag_id in ("open_dag", "hidden_dag"):
            with DAG(dag_id, schedule=None, start_date=DAY) as dag:
                EmptyOperator(task_id="load")
            register(dag)
        hidden = str(OperationKey(dag_id="hidden_dag", run_id="r", task_id="load"))

        def change(document: dict[str, Any]) -> None:
            first, last = (one["summary"] for one in document["snapshots"])
            first |= {"airflow.watermarks": json.dumps({"s.t": {"by": [hidden]}}), "kept": "of another writer"}
            last |= {"airflow.dag-id": "open_dag", "airflow.published-operation-key": hidden}

        name = forged(change)
        ids = list(dict.fromkeys(re.findall(r"snapshot_id=(\d+)", pages.html(name))))
        assert len(ids) == 2
        assert all("hidden_dag" in snapshot_page(pages, name, one).text for one in ids)
        allowed = {"open_dag"}
        monkeypatch.setattr(type(access.get_auth_manager()), "get_authorized_dag_ids", lambda *_, **__: allowed)
        texts = [snapshot_page(pages, name, one).text for one in ids]
        assert not any("hidden_dag" in text for text in texts)
        assert "of another writer" in "".join(texts)
        assert "hidden_dag" not in pages.html(name)

    def test_rules_that_ask_a_server_do_not_hold_up_airflow(self):
        asked: list[int] = []
        assert asyncio.run(access._may(lambda *_: asked.append(threading.get_ident()), None))
        assert asked != [threading.get_ident()]


class TestTwoThingsAtOnce:
    """A table is replaced, or expires, while a page is made or kept."""

    @pytest.mark.costly
    def test_a_table_that_was_made_again_under_the_same_names(self, pages, lake, monkeypatch):
        """Metadata files of a Hadoop catalog have numbers for names, which begin again."""
        warehouse = (lake.folder / "hadoop").as_uri()
        hadoop = {"conn_type": "iceberg_catalog", "extra": {"type": "hadoop", "warehouse": warehouse}}
        monkeypatch.setenv("AIRFLOW_CONN_HADOOP", json.dumps(hadoop))
        catalog = load_catalog("hadoop", type="hadoop", warehouse=warehouse)
        catalog.create_namespace("s")
        heads, locations = [], []
        for _ in range(2):
            table = Table.create(catalog, "s.t", schema={"id": "long"})
            heads.append(str(table.append(pa.table({"id": [1]})).snapshot_id))
            locations.append(table.refresh().metadata_location)
            html = pages.table(conn_id="hadoop").text
            assert [head in html for head in heads] == [False] * (len(heads) - 1) + [True]
            catalog.drop_table("s.t", purge=True)
        assert locations[0] == locations[1]

    @pytest.mark.costly
    def test_an_expiry_between_the_load_and_the_read_is_not_kept(self, pages, lake, monkeypatch):
        lake.create()
        lake.append([1])
        gone: dict[Path, bytes] = {}
        real = opened.Opened.table

        def expired(self: Any, name: str) -> Any:
            found = real(self, name)
            for path in (lake.folder / "warehouse" / "s" / "t" / "metadata").glob("*.avro"):
                gone[path] = path.read_bytes()
                path.unlink()
            return found

        monkeypatch.setattr(opened.Opened, "table", expired)
        assert "The files of the table cannot be counted" in pages.html()
        monkeypatch.setattr(opened.Opened, "table", real)
        for path, data in gone.items():
            path.write_bytes(data)
        assert "The files of the table cannot be counted" not in pages.html()


@pytest.mark.costly
def test_more_dags_than_are_asked_for_hide_all_of_them(pages, forged):
    def change(document: dict[str, Any]) -> None:
        keys = [
            str(OperationKey(dag_id=f"d{number}", run_id="r", task_id="t")) for number in range(snapshots.MOST_DAGS)
        ]
        first, last = (one["summary"] for one in document["snapshots"])
        first |= {f"airflow.published-{number}": key for number, key in enumerate(keys)}
        last |= first | {"airflow.one-more": str(OperationKey(dag_id="hidden_dag", run_id="r", task_id="t"))}

    name = forged(change)
    last, first = list(dict.fromkeys(re.findall(r"snapshot_id=(\d+)", pages.html(name))))
    assert "airflow.published-0" in snapshot_page(pages, name, int(first)).text
    text = snapshot_page(pages, name, int(last)).text
    assert "airflow.published-0" not in text
    assert "hidden_dag" not in text


def test_the_dags_that_a_summary_names():
    key = str(OperationKey(dag_id="a/b", run_id="r", task_id="t"))
    summary = {
        "airflow.dag-id": "d",
        "airflow.operation-key": key,
        "engine": key.replace("a", "c"),
        "airflow.inputs": "{}",
    }
    assert snapshots.named_dags(summary) == ("d", "a/b")
