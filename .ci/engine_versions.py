"""Run the tests of the engines in each DuckDB and each Spark that jobs may run on: `make test-versions`.

    .venv/bin/python .ci/engine_versions.py --versions duckdb-2.0 spark-4.3 -- tests/jobs/test_read.py -x

With the environment of the tests; only the engine is another one. The newest release of each version lies in a folder
of its own, build/versions/<engine>-<version>: a DuckDB is found there before that of the environment, a Spark by
SPARK_HOME, as users have one. What came of it is printed, and written to build/versions/results.md.

DuckDB reads Iceberg tables in no test of these, since each version would need extensions of its own.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from airflow_versions import numbers, offered
from environment import ROOT, install, java_home, say

FOLDER = ROOT / "build" / "versions"
# Newer ones in the registry are added: nobody has to remember them.
OLDEST = {"duckdb": (1, 5), "spark": (3, 5)}
PACKAGES = {"duckdb": "duckdb", "spark": "pyspark"}
DUCKDB_TESTS = [
    "tests/operations/test_versions_of_duckdb.py",
    "tests/operations/test_inputs.py",
    "tests/operations/test_bad_inputs.py",
    "tests/operations/test_overwrite_by_sql.py",
    "tests/operations/test_delete_by_sql.py",
    "tests/operations/test_changes_input.py",
    "tests/operations/test_incremental_chain.py",
    "tests/operations/test_updates_found.py",
    "tests/operations/test_upgraded_meanwhile.py",
    "tests/operations/row_level",
    "tests/operations/wap",
    "tests/expressions/test_query.py",
    "tests/expressions/test_merge_sql.py",
    "tests/expressions/test_assignments.py",
    "tests/data/test_variant_rows.py",
    "tests/airflow/test_decorators.py",
    "tests/jobs/test_random_queries.py",
]
SPARK_TESTS = [
    "tests/jobs/test_spark.py",
    "tests/jobs/test_read.py",
    "tests/jobs/test_rewrite_spark.py",
    "tests/jobs/test_spark_sources.py",
    "tests/jobs/test_random_queries.py",
    "tests/jobs/test_spark_program.py",
    "tests/jobs/test_progress.py",
    "tests/operations/test_file_inventory.py",
    "tests/compat/test_hostile_statements.py",
    "tests/airflow/test_submit.py",
    "tests/airflow/test_job_environment.py",
    "tests/airflow/test_connect.py",
]
MARKS = {
    "duckdb": "not services and not spark and not java and not long",
    "spark": "spark and not long",
}


@dataclass(frozen=True)
class Outcome:
    """What came of the tests with one version; `failure` is empty if all of them passed."""

    version: str
    release: str
    counts: str = ""
    minutes: float = 0.0
    failure: str = ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="run the tests of the engines in several versions of them")
    parser.add_argument("--versions", nargs="*", default=[], help="duckdb, spark, duckdb-2.0 or spark-4.3")
    parser.add_argument("tests", nargs="*", default=[], help="what to hand to pytest")
    options = parser.parse_args(arguments)
    python = Path(sys.executable)
    outcomes = [run(python, *each, options.tests) for each in chosen(options.versions)]
    table = "| version | release | tests | minutes | result |\n| --- | --- | --- | --- | --- |"
    for one in outcomes:
        result = one.failure or "passed"
        table += f"\n| {one.version} | {one.release} | {one.counts} | {one.minutes:.0f} | {result} |"
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "results.md").write_text(f"{time.strftime('%Y-%m-%d')}\n\n{table}\n")
    print(table)
    return int(not outcomes or any(one.failure for one in outcomes))


def chosen(wanted: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the engine, the version and the newest release of each version that is wanted; all of them for none."""
    known = []
    for engine, package in PACKAGES.items():
        newest: dict[str, str] = {}
        releases = [each for each in offered(package) if re.fullmatch(r"[\d.]+", each)]
        for release in sorted(releases, key=numbers, reverse=True):
            if numbers(release)[:2] >= OLDEST[engine]:
                newest.setdefault(".".join(release.split(".")[:2]), release)
        known += [(engine, version, newest[version]) for version in sorted(newest, key=numbers)]
    names = {f"{engine}-{version}" for engine, version, _ in known} | set(PACKAGES)
    for unknown in sorted(set(wanted) - names):
        sys.exit(f"no version {unknown}; there are {', '.join(sorted(names))}")
    for engine, version, release in known:
        if not wanted or engine in wanted or f"{engine}-{version}" in wanted:
            yield engine, version, release


def run(python: Path, engine: str, version: str, release: str, tests: Sequence[str]) -> Outcome:
    """Run the tests with a version."""
    home = FOLDER / f"{engine}-{version}"
    package = PACKAGES[engine]
    if not list(home.glob(f"{package}-{release}.dist-info")):
        shutil.rmtree(home, ignore_errors=True)
        install(python, ["--no-deps", "--target", str(home), f"{package}=={release}"])
    named = [each for each in tests if (ROOT / each.partition("::")[0]).exists()]
    selected = [] if named else DUCKDB_TESTS if engine == "duckdb" else SPARK_TESTS
    report = FOLDER / f"{engine}-{version}.xml"
    command = [str(python), "-m", "pytest", "-m", MARKS[engine], f"--junit-xml={report}", *tests, *selected]
    say(f"{engine} {release}: {' '.join(command[1:])}")
    started = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environ(python, engine, version, home), check=False).returncode
    return Outcome(
        version=f"{engine} {version}",
        release=release,
        counts=counted(report),
        minutes=(time.monotonic() - started) / 60,
        failure=f"pytest failed with exit code {done}" if done else "",
    )


def environ(python: Path, engine: str, version: str, home: Path) -> dict[str, str]:
    """Return the variables with which the tests find the engine."""
    javas = [8, 11, 17] if version.startswith("3.") else [17, 21]
    java = java_home(python, javas)
    known = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"} | ({"JAVA_HOME": java} if java else {})
    if engine == "duckdb":
        return known | {"PYTHONPATH": os.pathsep.join([str(home), str(ROOT)])}
    return known | {"PYTHONPATH": str(ROOT), "SPARK_HOME": str(home / "pyspark")}


def counted(report: Path) -> str:
    """Return how many tests passed, failed and were skipped."""
    if not report.exists():
        return "none"
    suites = ElementTree.parse(report).getroot().iter("testsuite")
    total, failed, skipped = 0, 0, 0
    for suite in suites:
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    counts = {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count or what == "passed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
