"""`airflow iceberg …`: what a person on call types, and what the terminal shows."""

import importlib.metadata
import io
import json
import logging
import os
import re
import shlex
import socket
import subprocess
import sys
from argparse import Namespace
from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest
import yaml
from airflow.cli import cli_parser

from airflow_iceberg.cli.commands import get_iceberg_commands
from airflow_iceberg.cli.doctor import _catalog, _screen, _spark, _versions
from airflow_iceberg.commit.operation_key import OperationKey
from tests.support.airflow_versions import needs_commands
from tests.test_docs import DOCS

pytestmark = needs_commands
SECRET = "sesame-open-4711"
KEY = OperationKey(dag_id="daily_load_of_all_orders", run_id="scheduled__2026-01-01T00:00:00+00:00", task_id="load")


@pytest.fixture
def run(airflow_db, lake, capsys, monkeypatch):
    """Return a function that runs a command line in this process, and returns what it has printed."""
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as a command sets it in its own process
    parser = cli_parser.get_parser()
    log = logging.getLogger("airflow_iceberg")
    level = log.level

    def run(*words, code=0):
        args = parser.parse_args(["iceberg", *words])
        if code:
            with pytest.raises(SystemExit) as caught:
                args.func(args)
            # Python prints the text of an exit to stderr, and returns 1.
            return str(caught.value.code)
        args.func(args)
        return capsys.readouterr().out

    yield run
    log.setLevel(level)  # a command lowers it for its process, which is that of the other tests here


@pytest.fixture
def table(lake):
    table = lake.create(
        "s.t", {"id": "long", "day": "string"}, partition_by=["day"], properties={"my-password": SECRET}
    )
    table.append(pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]}), operation_key=KEY)
    table.append(pa.table({"id": [4], "day": ["a"]}))
    table.create_branch("audit")
    return table


class TestTheCommands:
    """They are Airflow's: they are offered by its command line, with its arguments."""

    def test_airflow_offers_them(self):
        (group,) = get_iceberg_commands()
        shown = cli_parser.get_parser().parse_args(["iceberg", "runs", "s.t", "-o", "json"])
        assert (shown.output, shown.iceberg_conn_id, shown.limit) == ("json", "iceberg_catalog_default", 20)
        assert {one.name for one in group.subcommands} >= {"show", "snapshots", "refs", "files", "runs", "doctor"}

    @pytest.mark.costly
    def test_the_program_prints_json_and_nothing_else(self, airflow_db, lake, table):
        done = program("runs", "s.t", "--output", "json")
        newest, oldest = json.loads(done.stdout)
        assert (oldest["dag_id"], oldest["operation_key"]) == (KEY.dag_id, str(KEY))
        assert newest["snapshot_id"] == str(table.metadata.current_snapshot().snapshot_id)
        assert done.returncode == 0

    @pytest.mark.services
    def test_the_program_fails_without_a_traceback(self, lake):
        done = program("show", "s.missing")
        assert (done.returncode, done.stdout) == (1, "")
        assert "s.missing" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr


def program(*words):
    command = [sys.executable, "-m", "airflow", "iceberg", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ, timeout=120)


class TestWhatIsShown:
    """The state and the history of a table, in a terminal of 80 columns."""

    @pytest.fixture(autouse=True)
    def _narrow(self, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")

    @pytest.mark.costly
    @pytest.mark.parametrize(
        "words",
        [["show", "s.t"], ["snapshots", "s.t"], ["refs", "s.t"], ["files", "s.t"], ["runs", "s.t"], ["doctor"]],
        ids=" ".join,
    )
    def test_fits_the_terminal_and_shows_no_secret(self, run, table, words):
        shown = run(*words)
        assert max(map(len, shown.splitlines())) <= 80
        assert SECRET not in shown
        assert SECRET not in run(*words, "-o", "json")

    def test_runs(self, run, table):
        header, _, newest, *older = run("runs", "s.t").splitlines()
        assert header.split() == ["snapshot_id", "committed_at", "task", "run", "try", "rows"]
        assert "(airflow-iceb" in newest
        assert any(line.startswith(str(table.snapshots()[0].snapshot_id)) for line in older)
        assert "+3" in "".join(older)

    def test_a_snapshot_id_is_never_broken(self, run, table):
        shown = run("snapshots", "s.t")
        assert all(str(one.snapshot_id) in shown for one in table.snapshots())

    def test_files_of_a_branch_a_snapshot_and_main(self, run, table):
        first = table.snapshots()[0].snapshot_id
        for at, count in (("audit", 3), (str(first), 2), ("main", 3)):
            assert len(json.loads(run("files", "s.t", "--at", at, "-o", "json"))) == count
        assert "nowhere" in run("files", "s.t", "--at", "nowhere", code=1)

    def test_yaml_and_plain(self, run, table):
        (facts,) = yaml.safe_load(run("show", "s.t", "-o", "yaml"))
        assert (facts["rows"], facts["snapshot_id"]) == ("4", str(table.refresh().current_snapshot().snapshot_id))
        assert [line.split()[0] for line in run("refs", "s.t", "-o", "plain").splitlines()][1:3] == ["main", "audit"]

    def test_a_limit(self, run, table):
        assert len(json.loads(run("runs", "s.t", "--limit", "1", "-o", "json"))) == 1
        assert "expected 1 or more" in run("runs", "s.t", "--limit", "0", code=1)

    def test_an_empty_table(self, run, lake):
        lake.create("s.e", {"id": "long"})
        assert run("runs", "s.e").strip() == "No data found"
        assert "s.e" in run("show", "s.e")


class TestForgedNames:
    """Names in a table may hold what a terminal would obey, and what Airflow's console would take for its markup."""

    def test_control_characters_are_not_printed(self, run, lake):
        table = lake.create("s.f", {"id": "long"})
        key = OperationKey(dag_id="d\x1b[31m\x07", run_id="[/bold] [red]x", task_id="t\r\n")
        table.append(pa.table({"id": [1]}), operation_key=key)
        for output in ("table", "plain"):
            shown = run("runs", "s.f", "-o", output)
            assert not {"\x1b", "\x07", "\r"} & set(shown)
        assert "[/bold]" in run("runs", "s.f", "-o", "plain")
        assert json.loads(run("runs", "s.f", "-o", "json"))[0]["run_id"] == key.run_id

    @pytest.mark.costly
    def test_nor_those_in_names_of_columns(self, run, lake):
        left, right = (lake.create(f"s.{name}", {"a\x1b[31m\nb": "long"}) for name in ("f1", "f2"))
        left.append(pa.table({"a\x1b[31m\nb": [1]}))
        right.append(pa.table({"a\x1b[31m\nb": [2]}))
        for output in ("table", "plain"):
            assert "\x1b" not in run("diff", "s.f1", "s.f2", "-o", output)


class TestDiff:
    """Two tables, or two branches or snapshots of one."""

    @pytest.mark.costly
    def test_of_branches_and_snapshots(self, run, table, lake):
        lake.load().append(pa.table({"id": [9], "day": ["b"]}), branch="audit")
        first = str(table.snapshots()[0].snapshot_id)
        for words in (["--table", "s.t", "main", "audit"], ["s.t#main", "s.t#audit"], ["s.t", "s.t#audit"]):
            assert "1 added, 0 removed, 0 updated" in run("diff", *words)
        (found,) = json.loads(run("diff", "--table", "s.t", first, "audit", "-o", "json"))
        assert found["counts"] == {"added": "2", "removed": "0", "updated": "0"}
        assert sorted(row["id"] for row in found["rows"]) == ["4", "9"]
        assert "none" in run("diff", "s.t", "s.t#main")
        assert "nowhere" in run("diff", "s.t", "s.t#nowhere", code=1)

    @pytest.mark.costly
    def test_of_names_with_dots(self, run, lake):
        """What a command prints is what another one takes; a sign of a place may be in the name."""
        lake.create("s.x.t")
        for name in ("s.`x.t`", "s.`x#.t`"):
            lake.create(name)
            lake.append([1], name)
            assert json.loads(run("show", name, "-o", "json"))[0]["table"] == name
        assert "none" in run("diff", "s.`x#.t`#main", 's."x#.t"')
        assert "1 removed" in run("diff", "s.`x.t`", "s.x.t", "--key", "id")
        assert "is no name" in run("show", "s.`x.t", code=1)

    @pytest.mark.costly
    def test_of_tables(self, run, table, lake):
        lake.create("s.o", {"id": "long"}).append(pa.table({"id": [1, 7]}))
        shown = run("diff", "s.t", "s.o", "--key", "id", "--limit", "2")
        assert "column day is removed" in shown
        assert "1 added, 3 removed, 0 updated" in shown
        assert SECRET not in shown
        assert len(shown.partition("_change")[2].splitlines()) == 4


class TestUndo:
    """It asks first, and says what it would do; with `--dry-run` that is all."""

    def rows(self, lake):
        return lake.load().scan().count()

    def test_a_dry_run_changes_nothing(self, run, table, lake):
        of_run = ("--dag-id", KEY.dag_id, "--run-id", KEY.run_id, "--task-id", KEY.task_id, "--map-index")
        assert "map index 3" in run("undo", "s.t", *of_run, "3", "--dry-run", code=1)
        (found,) = json.loads(run("undo", "s.t", *of_run, "-1", "--dry-run", "-o", "json"))
        assert (found["outcome"], found["removed_records"], len(found["files"])) == ("dry_run", "3", 2)
        assert self.rows(lake) == 4

    @pytest.mark.parametrize(("answer", "rows"), [("y\n", 1), ("n\n", 4), ("", 4)])
    def test_it_asks(self, run, table, lake, monkeypatch, answer, rows):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        run("undo", "s.t", "--dag-id", KEY.dag_id, "--run-id", KEY.run_id, code=0 if rows == 1 else 1)
        assert self.rows(lake) == rows

    @pytest.mark.costly
    def test_what_is_undone_is_seen_in_the_runs(self, run, table, lake):
        run("undo", "s.t", "--dag-id", KEY.dag_id, "--run-id", KEY.run_id, "--yes")
        newest, _, oldest = json.loads(run("runs", "s.t", "-o", "json"))
        assert (newest["undoes"], oldest["undone_by"]) == ([oldest["snapshot_id"]], newest["snapshot_id"])
        assert "nothing" in run("undo", "s.t", "--dag-id", KEY.dag_id, "--run-id", KEY.run_id, "--yes")

    def test_an_unknown_run(self, run, table):
        assert "/s/t is of DAG 'd', run 'r'; `airflow iceberg runs`" in run(
            "undo", "s.t", "--dag-id", "d", "--run-id", "r", code=1
        )


class TestDoctor:
    """Connection, store, Spark, Java and versions, on one screen."""

    @pytest.mark.services
    def test_a_healthy_installation(self, run, table):
        rows = json.loads(run("doctor", "-o", "json"))
        found = {(row["about"], row["what"]): row["status"] for row in rows}
        assert found["versions", "airflow-iceberg"] == "ok"
        assert found["catalog iceberg_catalog_default", "read a table"] == "ok"
        assert ("Spark", "Java for this Spark") in found
        assert len(rows) < 25
        java = next(row["found"] for row in rows if row["what"] == "Java for this Spark")
        assert re.match(r"Java (17|21) in /", java)

    @pytest.mark.costly
    def test_one_screen_of_80_columns_shows_all_of_it(self, table, lake, monkeypatch):
        mistyped = {**lake.connection, "extra": {**lake.connection["extra"], "s3.endpiont": SECRET}}
        monkeypatch.setenv("AIRFLOW_CONN_MISTYPED", json.dumps(mistyped))
        rows = [*_versions(), *_spark("none"), *_catalog(Namespace(iceberg_conn_id="mistyped"))]
        lines = list(_screen(rows, 80))
        shown = "\n".join(lines).replace("\n" + 11 * " ", " ")
        # The folder of a test is longer than a user's.
        assert len(lines) <= 24 + shown.count(lake.folder.name)
        assert max(map(len, lines)) <= 80
        assert lines[0] == "versions"
        assert lines[1].startswith("  ok       Python 3")
        assert "\n  ok       read a table: s.t\n" in shown
        assert shown.endswith(
            "\n  look at  nothing reads the field 's3.endpiont' of the connection; write 's3.endpoint' if that is meant"
        )
        assert SECRET not in shown

    def test_what_a_missing_package_is_needed_for(self, monkeypatch):
        def version(name: str) -> str:
            if name in ("duckdb", "thrift"):
                raise importlib.metadata.PackageNotFoundError
            return "9999"

        monkeypatch.setattr("importlib.metadata.version", version)
        found = {row["what"]: (row["status"], row["found"]) for row in _versions()}
        needed = "needed for queries and merges without Spark: install airflow-iceberg[duckdb]"
        assert found["duckdb"] == ("missing", needed)
        assert found["thrift"] == ("missing", "needed for a Hive Metastore: install airflow-iceberg[hive]")

    def test_a_spark_connection_that_is_none(self, airflow_db, monkeypatch):
        assert next(_spark("nowhere"))["found"].startswith("it does not exist; needed for jobs on Spark")
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "http", "host": "spark://127.0.0.1:1"}))
        row = next(_spark("lake"))
        assert (row["status"], row["found"]) == ("missing", "it is of type 'http', expected spark or spark_connect")

    @pytest.mark.services
    @pytest.mark.parametrize(("conn_type", "host"), [("spark_connect", "127.0.0.1"), ("spark", "spark://127.0.0.1")])
    def test_a_spark_that_is_away_and_one_that_answers(self, run, table, monkeypatch, conn_type, host):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            monkeypatch.setenv(
                "AIRFLOW_CONN_LAKE",
                json.dumps({"conn_type": conn_type, "host": host, "port": port, "password": SECRET}),
            )
            assert self.spark_row(run) == {"status": "ok", "found": f"type {conn_type}, {host}:{port}"}
        away = self.spark_row(run)
        assert away["status"] == "missing"
        assert away["found"].startswith(f"could not connect to 127.0.0.1:{port} (")
        assert "check host and port" in away["found"]

    def spark_row(self, run):
        shown = run("doctor", "--spark-conn-id", "lake", "-o", "json")
        assert SECRET not in shown
        (row,) = [row for row in json.loads(shown) if row["what"] == "connection lake"]
        return {name: row[name] for name in ("status", "found")}

    def test_versions_with_known_vulnerabilities(self, run, table, monkeypatch):
        monkeypatch.setattr(
            "importlib.metadata.version",
            lambda name: {"apache-airflow": "3.1.8", "requests": "2.33.0"}.get(name, "9999"),
        )
        found = {row["what"]: row for row in _versions()}
        assert (found["requests"]["status"], found["requests"]["found"]) == ("ok", "2.33.0")
        assert found["apache-airflow"]["status"] == "old"
        assert found["apache-airflow"]["found"] == "3.1.8: it has known vulnerabilities; install 3.2.2 or later"

    @pytest.mark.costly
    def test_a_catalog_that_fails(self, run, monkeypatch, capsys):
        broken = {
            "conn_type": "iceberg_catalog",
            "host": "http://127.0.0.1:1/x",
            "password": SECRET,
            "extra": {"type": "rest"},
        }
        monkeypatch.setenv("AIRFLOW_CONN_BROKEN", json.dumps(broken))
        error = run("doctor", "--iceberg-conn-id", "broken", code=1)
        assert "could not connect to 127.0.0.1:1" in error
        shown = capsys.readouterr().out
        assert "check the port" in " ".join(shown.split())
        assert SECRET not in shown + error

    @pytest.mark.costly
    def test_a_connection_that_does_not_exist(self, run, capsys):
        assert "could not read the connection" in run("doctor", "--iceberg-conn-id", "missing", code=1)


def test_an_error_shows_no_secret_of_the_connection(run, monkeypatch):
    broken = {
        "conn_type": "iceberg_catalog",
        "host": f"postgresql://me:{SECRET}@127.0.0.1:1/x",
        "extra": {"type": "sql"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN", json.dumps(broken))
    error = run("show", "s.t", "--iceberg-conn-id", "broken", code=1)
    assert SECRET not in error
    assert "\n" not in error.strip() or "Traceback" not in error


PAGE = DOCS / "command-line.md"
# What differs from run to run: ids, times, sizes, places, versions, and how wide columns become by them.
VOLATILE = (
    (r"\b\d{16,19}\b", "<id>"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(-\w+)*", "<uuid>"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?(\.\d+)?([+]00:00|Z| UTC)?", "<time>"),
    (r"(file:)?/{1,3}[\w./=-]+", "<place>"),
    (r"\b\d+(\.\d+)? (B|kB|KB|KiB|MB)\b", "<size>"),
    (r"\b\d{3,}\b", "<number>"),
    (r"=+", "="),
    (r"\s+", " "),
)


def settled(text: str) -> list[str]:
    """Return the words of an output that are the same in each run, line by line."""
    lines = []
    for line in text.splitlines():
        for pattern, word in VOLATILE:
            line = re.sub(pattern, word, line)
        lines.append(line.strip())
    return [line for line in lines if line]


def shown_on_the_page() -> list[tuple[str, str]]:
    """Return the commands of the page, each with the output under it."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [(command.removeprefix("$ "), output) for command, _, output in (block.partition("\n") for block in blocks)]


class TestThePage:
    """The page about the command line shows what the commands print."""

    @pytest.fixture
    def orders(self, lake, monkeypatch):
        monkeypatch.setenv("COLUMNS", "400")  # nothing is wrapped
        table = lake.create(
            "sales.orders", {"id": "long", "day": "date", "amount": "decimal(9, 2)"}, partition_by=["day"]
        )
        for day in (1, 2):
            rows = {"id": [day * 10, day * 10 + 1], "day": [date(2026, 1, day)] * 2, "amount": [Decimal("9.50")] * 2}
            key = OperationKey(dag_id="load_orders", run_id=f"scheduled__2026-01-0{day}", task_id="load")
            table.append(pa.table(rows), operation_key=key)
        table.create_tag("v1")
        table.create_branch("audit")
        late = {"id": [30], "day": [date(2026, 1, 2)], "amount": [Decimal("1.00")]}
        table.append(pa.table(late), branch="audit")

    def test_every_command_is_on_it(self):
        (group,) = get_iceberg_commands()
        shown = {command.split()[2] for command, _ in shown_on_the_page()}
        assert shown == {one.name for one in group.subcommands}

    @pytest.mark.services
    def test_the_outputs_are_real(self, run, orders):
        for command, output in shown_on_the_page():
            _, _, *words = shlex.split(command)
            printed = run(*words)
            if words[0] == "doctor":  # what is found, and whether there is a Java, is of the machine
                printed, output = (
                    "\n".join(
                        re.sub(r"^  .{8}|:.*| [0-9,].*", "", line)
                        for line in re.sub(r"\n {11}", " ", text).splitlines()
                    )
                    for text in (printed, output)
                )
            assert settled(printed) == settled(output), command
