"""Run the Airflow tests in each Airflow from 3.1 on: `make test-airflow`, with VERSIONS="3.1 3.2.2" for some of them.

    python .ci/airflow_versions.py --versions 3.1 -- tests/airflow/test_hooks.py -x

Each version has an environment of its own, build/airflow/<version>, made with the constraints that Airflow publishes
for it. Where these cannot be read (set AIRFLOW_CONSTRAINTS to an address or a file of your own, with {version} and
{python} in it), they are made as Airflow makes them: the newest packages that fit all providers together, of those that
the registry had on the day after the version was published. Either way it is made only if the bounds of pyproject.toml,
extras included, allow it.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from environment import ROOT, ensure_venv, java_home, requirements, say, uv_environment

OLDEST = (3, 1)
PUBLISHED_AT = "https://raw.githubusercontent.com/apache/airflow/constraints-{version}/constraints-{python}.txt"
# The day after a version was published. Of a version that is not here the newest packages are taken.
DAYS = {"3.1.8": "2026-03-12", "3.2.2": "2026-05-30", "3.3.2": "2026-09-18"}
# What the tests compare with, Spark among it, is of versions of its own, and no part of an installation.
PINNED_BY_TESTS = re.compile(
    r"(pyspark|pyspark-client|grpcio\S*|opentelemetry\S*|googleapis-common-protos|protobuf|duckdb|pyiceberg|pytest\S*|moto|hypothesis|flask\S*)==",
    re.I,
)
# Extras of newer versions than some constraints pin (docs/tested-versions.md), and those that need system libraries.
EXTRAS_APART = {"spark", "duckdb", "hive-kerberos", "kerberos"}
MARKS = "not services and not java and not long and not generated"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="run the Airflow tests in several versions of Airflow")
    parser.add_argument("--versions", nargs="*", default=[], help="3.1 for its newest release, or 3.1.8")
    parser.add_argument("--only-resolve", action="store_true", help="say whether the bounds allow it, and run nothing")
    parser.add_argument("tests", nargs="*", default=[], help="what to hand to pytest")
    options = parser.parse_args(arguments)
    outcomes = {version: run(version, options) for version in chosen(options.versions, offered())}
    for version, failure in outcomes.items():
        say(f"Airflow {version}: {failure or 'passed'}")
    return int(not outcomes or any(outcomes.values()))


def offered(package: str = "apache-airflow") -> list[str]:
    """Return the releases of a package in the registry, the newest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    line = re.search(r"Available versions: (.*)", listed)
    return [each.strip() for each in line[1].split(",")] if line else []


def chosen(wanted: Sequence[str], releases: Iterable[str]) -> list[str]:
    """Return the newest release of each minor version, or those that are wanted; the oldest first."""
    newest: dict[str, str] = {}
    for release in sorted((each for each in releases if re.fullmatch(r"[\d.]+", each)), key=numbers, reverse=True):
        if numbers(release) >= OLDEST:
            newest.setdefault(".".join(release.split(".")[:2]), release)
    found = [newest.get(each, each) for each in wanted] or list(newest.values())
    return sorted(found, key=numbers)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def run(version: str, options: argparse.Namespace) -> str:
    """Return what failed for a version, or nothing."""
    python = ensure_venv(ROOT / "build" / "airflow" / version)
    if not (python.parent / "uv").exists():
        subprocess.run([python, "-m", "pip", "install", "--quiet", "uv"], check=True)
    constraints = resolve(python, version)
    if constraints is None:
        return "the bounds of pyproject.toml do not allow its packages, see above"
    if options.only_resolve:
        return ""
    packages = [f"apache-airflow=={version}", "--constraint", str(constraints), *requirements(["test"])]
    words = [
        python.parent / "uv",
        "pip",
        "install",
        "--quiet",
        "--python",
        python,
        "--editable",
        f"{ROOT}[spark,duckdb]",
    ]
    if subprocess.run([*words, *packages], env=os.environ | uv_environment(python), check=False).returncode:
        return "its packages and those of the tests cannot be installed, see above"
    named = [each for each in options.tests if (ROOT / each.partition("::")[0]).exists()]
    command = [str(python), "-m", "pytest", "-m", MARKS, *options.tests, *([] if named else ["tests/airflow"])]
    say(f"Airflow {version}: {' '.join(command[1:])}")
    java = java_home(python, [17, 21])
    known = os.environ | {"PYTHONPATH": str(ROOT)} | ({"JAVA_HOME": java} if java else {})
    done = subprocess.run(command, cwd=ROOT, env=known, check=False).returncode
    return f"pytest failed with exit code {done}" if done else ""


def resolve(python: Path, version: str) -> Path | None:
    """Write the constraints of a version, with which our own dependencies must resolve; None if they do not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        text for name, texts in project["optional-dependencies"].items() if name not in EXTRAS_APART for text in texts
    ]
    constraints, found = python.parent / "published.txt", python.parent / "constraints.txt"
    if (text := published(python, version)) is not None:
        say(f"Airflow {version}: with its published constraints")
        constraints.write_text(text)
    else:
        day = DAYS.get(version)
        say(f"Airflow {version}: with constraints made of the packages of {day or 'today'}")
        until = [] if day is None else ["--exclude-newer", day]
        if not compiled(python, [f"apache-airflow[all]=={version}"], constraints, until):
            return None
    ours = [f"apache-airflow=={version}", *project["dependencies"], *extras]
    # What its constraints do not name, such as sqlglot, is free.
    if not compiled(python, ours, found, ["--constraint", str(constraints)]):
        return None
    lines = [line for line in found.read_text().splitlines() if not PINNED_BY_TESTS.match(line)]
    found.write_text("\n".join(lines) + "\n")
    return found


def compiled(python: Path, wanted: Sequence[str], found: Path, options: Sequence[str]) -> bool:
    """Write the newest versions that fit what is wanted; False if there are none."""
    command = [python.parent / "uv", "pip", "compile", "--quiet", "--python", python, "--no-header", "--no-annotate"]
    known = os.environ | uv_environment(python)
    words = [*command, *options, "--output-file", found, "-"]
    return not subprocess.run(words, input="\n".join(wanted), env=known, text=True, check=False).returncode


def published(python: Path, version: str) -> str | None:
    """Return the text of Airflow's constraints, None if it cannot be read here."""
    asked = subprocess.run(
        [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=True
    )
    address = os.environ.get("AIRFLOW_CONSTRAINTS", PUBLISHED_AT).format(version=version, python=asked.stdout.strip())
    if address.startswith("/"):
        return Path(address).read_text() if Path(address).exists() else None
    try:
        with urllib.request.urlopen(address, timeout=20) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, TimeoutError) as error:
        say(f"Airflow {version}: no constraints at {address} ({error})")
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
