"""Functions for workers show no secret wherever Spark writes them; on a server: `tests/airflow/test_connect.py`."""

import ast
import contextlib
import json
import os
import random
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkFiles, cloudpickle

import airflow_iceberg
from airflow_iceberg.format import types as t
from airflow_iceberg.format.schemas.schema import Schema
from airflow_iceberg.jobs.protocol.source import Source
from airflow_iceberg.jobs.sources.unit import Unit
from airflow_iceberg.jobs.spark.encrypted import KEY_VARIABLE, encrypted
from airflow_iceberg.jobs.spark.worker import Worker
from airflow_iceberg.jobs.task import StageUnits, Write
from airflow_iceberg.table import Table
from tests.jobs.builders import IO, make_plan
from tests.jobs.submissions import HERE
from tests.jobs.test_spark_program import wait_for
from tests.support.builders import new_catalog
from tests.support.spark_programs import SPARK_4, SPARK_35, submission

SECRET = "st0rage-s3cret"
STORAGE = {"s3.access-key-id": "k", "s3.secret-access-key": SECRET, "s3.region": "ü"}
SIGNED = f"https://h/a.csv?X-Amz-Signature={SECRET}"


class Context:
    def __init__(self):
        self.environment = {"PYTHONHASHSEED": "0"}


class Session:
    def __init__(self):
        self.sparkContext = Context()


class Connected:
    __module__ = "pyspark.sql.connect.session"

    def __init__(self):
        self.sent = {}

    def addArtifacts(self, path, *, file):
        assert file
        self.sent[Path(path).name] = Path(path).read_bytes()


def worker():
    unit = Unit(location=SIGNED, file_format="csv", size_bytes=1)
    made = Worker(plan=SECRET.encode(), storage=STORAGE, max_failures=1)
    return made, made.with_specs([StageUnits(number=0, units=(unit,), staging=Write())])


class TestWhatIsSent:
    """A function is plain here and on a worker of the session that has the key, and on no way between the two."""

    def test_neither_storage_nor_plan_nor_tasks_nor_the_key(self):
        session, (_, function) = Session(), worker()
        sent = [cloudpickle.dumps(encrypted(session, function)) for _ in range(2)]
        assert SECRET.encode() in cloudpickle.dumps(function)
        key = bytes.fromhex(session.sparkContext.environment[KEY_VARIABLE])
        for each in sent:
            for plain in (SECRET.encode(), b"s3.region", b"Amz", key, key.hex().encode(), b"StageUnits"):
                assert plain not in each
        assert sent[0] != sent[1]

    def test_a_worker_with_the_key_has_the_function(self, monkeypatch):
        session, (own, function) = Session(), worker()
        sent = cloudpickle.dumps(encrypted(session, function))
        with pytest.raises(KeyError):
            cloudpickle.loads(sent)
        key = session.sparkContext.environment[KEY_VARIABLE]
        monkeypatch.setenv(KEY_VARIABLE, key)
        found = cloudpickle.loads(sent).__closure__[0].cell_contents.__self__
        assert replace(found, specs=None) == own
        monkeypatch.setenv(KEY_VARIABLE, key[::-1])
        with pytest.raises((ValueError, cloudpickle.pickle.UnpicklingError, EOFError, KeyError, IndexError)):
            cloudpickle.loads(sent)

    def test_a_session_has_one_key_of_its_own(self):
        """Workers with other variables would be other processes."""
        first, second = Session(), Session()
        for session in (first, first, second):
            encrypted(session, print)
        assert first.sparkContext.environment.keys() == {"PYTHONHASHSEED", KEY_VARIABLE}
        keys = [each.sparkContext.environment[KEY_VARIABLE] for each in (first, second)]
        assert len({*keys}) == len(keys)
        assert {*map(len, keys)} == {64}

    def test_on_spark_connect_the_key_is_a_file_of_the_session(self, tmp_path, monkeypatch):
        session, (own, function) = Connected(), worker()
        sent = [cloudpickle.dumps(encrypted(session, function)) for _ in range(2)][1]
        ((name, key),) = session.sent.items()
        assert not {SECRET.encode(), key} & {sent[at : at + n] for n in (14, 32) for at in range(len(sent))}
        monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
        monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
        with pytest.raises(FileNotFoundError):
            cloudpickle.loads(sent)
        (tmp_path / name).write_bytes(key)
        found = cloudpickle.loads(sent).__closure__[0].cell_contents.__self__
        assert replace(found, specs=None) == own

    def test_a_large_function_costs_little(self):
        import time

        session, data = Session(), os.urandom(8 << 20)

        def large(batches):
            return data

        start = time.process_time()
        cloudpickle.dumps(encrypted(session, large))
        assert time.process_time() - start < 2

    def test_every_function_of_this_package_is_sent_so(self):
        """Whatever gives Spark a function to run on workers: its first argument is encrypted where it is given."""
        shipping = {"mapInArrow", "mapInPandas", "foreachPartition", "foreach", "mapPartitions", "map", "flatMap"}
        shipping |= {
            "applyInPandas",
            "applyInArrow",
            "pandas_udf",
            "arrow_udf",
            "udf",
            "udtf",
            "broadcast",
            "parallelize",
        }
        found, plain = 0, []
        for path in (Path(airflow_iceberg.__file__).parent / "jobs" / "spark").glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in shipping:
                    found += 1
                    if not ast.unparse(node.args[0]).startswith("encrypted("):
                        plain.append(f"{path.name}: {ast.unparse(node)}")
        assert (plain, found) == ([], 4)


def traces(*folders):
    """Return the files below folders that show the secret or have the key, and the size of the largest file."""
    shown, largest = [], 0
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):  # a temporary file that is gone
                if path.is_file():
                    data = path.read_bytes()
                    largest = max(largest, len(data))
                    if SECRET.encode() in data or KEY_VARIABLE.encode() in data:
                        shown.append(str(path))
    return shown, largest


@pytest.mark.slow
@pytest.mark.services
@pytest.mark.parametrize(
    "version", [pytest.param(SPARK_4, marks=pytest.mark.spark), pytest.param(SPARK_35, marks=pytest.mark.java)]
)
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_no_file_of_spark_shows_a_secret_of_a_large_function(version, end, tmp_path):
    """While the jobs run, after the session's end, and after a kill: no file below `spark.local.dir`, and no event."""
    folder, local, events = (tmp_path / name for name in ("order", "local", "events"))
    for made in (folder, local, events):
        made.mkdir()
    text = "".join(random.Random(7).choices("abcdefghijklmnop", k=1_500_000))
    catalog = new_catalog(tmp_path / "lake")
    catalog.create_namespace("s")
    described = Schema((t.NestedField(id=1, name="id", type=t.LongType(), required=False, doc=text),))
    table = Table.create(catalog, "s.described", schema=described)
    table.append(pa.table({"id": range(3)}))
    plan = make_plan(tmp_path / "append", Source.from_sql(f"select id, 'a' as name from range(5) -- {text}"))
    IO.create(plan.location, plan.to_json())
    order = {"table": table.metadata_location, "plans": [plan.location], "storage": STORAGE}
    (folder / "order.json").write_text(json.dumps(order))
    command, environ = submission(version, tmp_path)
    settings = {"spark.local.dir": local, "spark.eventLog.enabled": "true", "spark.eventLog.dir": events}
    settings |= {"spark.eventLog.compress": "false", "spark.broadcast.compress": "false"}
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    process = subprocess.Popen(
        [*command, *options, "--master", "local[2]", str(HERE / "secrets_program.py"), str(folder)],
        cwd=tmp_path,
        env={**environ, "SPARK_LOCAL_DIRS": str(local)},
        stdin=subprocess.DEVNULL,
        stdout=(tmp_path / "log").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait_for(lambda: (folder / "ran").exists() or process.poll() is not None)
        assert (folder / "ran").exists(), (tmp_path / "log").read_text()[-3000:]
        shown, largest = traces(local, events)
        assert (shown, largest > len(text)) == ([], True), "the functions are in files"
        if end == "stopped":
            (folder / "stop").touch()
            wait_for((folder / "stopped").exists)
            assert traces(local, events)[0] == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    shown, largest = traces(local, events)
    assert (shown, largest > len(text)) == ([], True), "what Spark leaves behind"
