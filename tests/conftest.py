"""What holds for every test: an Airflow home of the session's own, and Spark on the loopback interface."""

import atexit
import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from tests.support.airflow_home import migrate, point_airflow_at
from tests.support.java_classes import BRIEF, JVM_OPTIONS
from tests.support.sampling import LeftOut, use_profile
from tests.support.spark_programs import SPARK_4_CONNECT, SparkPrograms, is_spark_3

# At import, not in a fixture: test modules import airflow while they are collected.
AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="airflow-iceberg-tests-"))
SESSION_PID = os.getpid()


# Files that outlive a test's process are looked at, but never those that outlive the machine.
os.fsync = lambda _: None


@atexit.register
def remove_airflow_home() -> None:
    """Leave nothing behind; a process forked by a test must not take the folder away from the session."""
    if os.getpid() == SESSION_PID:
        shutil.rmtree(AIRFLOW_HOME, ignore_errors=True)


point_airflow_at(AIRFLOW_HOME)
use_profile()
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF)


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    """The folder that Airflow lives in during this session."""
    return AIRFLOW_HOME


@pytest.fixture(scope="session")
def airflow_db(airflow_home: Path) -> Path:
    """Airflow's database, made once per session; gives the folder that Airflow lives in."""
    migrate(airflow_home)
    return airflow_home


@pytest.fixture(scope="session")
def spark_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SparkPrograms]]:
    """Gives a running Spark of a version, which is started for the first test that asks."""
    with ExitStack() as running:

        @cache
        def start(version: str) -> SparkPrograms:
            if version == SPARK_4_CONNECT and is_spark_3(version):
                pytest.skip("the package of Spark 3.5 has no Spark Connect")
            return running.enter_context(SparkPrograms(version, tmp_path_factory.mktemp(version)))

        yield start


pytest_plugins = ["tests.support.sharing"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without looking for garbage: millions of objects are made, and stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# So many seconds before the end of a run no generated case is begun any more.
GENERATED_END_S = 900
# Fixtures of a session that cost more than any test: who asks for the same one runs on the same worker.
SHARED = ("java", "spark_of", "iceberg_java", "iceberg_java_hive_4")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first: no worker has a long one left when the others are done."""
    left_out = LeftOut()
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.generated)
        for name in left_out.marks_of(item):
            item.add_marker(getattr(pytest.mark, name))
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.timeout(0))
        shared = [name for name in SHARED if name in getattr(item, "fixturenames", ())]
        if shared:
            item.add_marker(pytest.mark.xdist_group(shared[-1]))
    long = {item.path for item in items if any(item.get_closest_marker(name) for name in ("slow", "spark", "java"))}
    items.sort(
        key=lambda item: (
            item.get_closest_marker("xdist_group") is None,
            item.get_closest_marker("generated") is not None,
            item.path not in long,
        )
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out tests against services when the time of a run is up: what is cut off from outside is lost.

    `.ci/run` says when that is. Generated cases are left out earlier: of those `make test` has a sample.
    """
    until = os.environ.get("AIRFLOW_ICEBERG_TEST_SERVICES_UNTIL")
    if until and any(item.get_closest_marker(mark) for mark in ("services", "costly")):
        left_s = float(until) - time.time()
        if left_s < (GENERATED_END_S if item.get_closest_marker("generated") else 0):
            pytest.skip("left out: the time of this run is up")


class Failures:
    """Says each failure as it happens: a run that is stopped from outside prints no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            words = crash.message if crash else report.longreprtext.strip()
            self.terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}): {words[:300]}")


def pytest_sessionstart(session: pytest.Session) -> None:
    # Where tests are handed to workers, the worker's own terminal is seen by nobody.
    plugins = session.config.pluginmanager
    terminal = plugins.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        plugins.register(Failures(terminal))
