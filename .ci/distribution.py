"""Build the wheel and the sdist into dist/, and look whether a user can install them: `make dist`.

    python .ci/distribution.py          # build, check, install with pip and with uv
    python .ci/distribution.py --demo   # and run the demo from the installed wheel, with a real Spark
    python .ci/distribution.py --tag v0.1.0   # fail at once if that is not the version, or the changelog lacks its day

Checked is: `twine check --strict`; that the wheel, which is built from the sdist, has every module and file of the
package, and nothing else; that it installs into an empty environment, with pip and with uv, and that Airflow knows the
provider there. The programs run in folders from which this repository cannot be imported. All of it is in build/dist.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from environment import ROOT, ensure_venv, java_home, requirements, say, uv_environment

WORK = ROOT / "build" / "dist"
PACKAGE = "airflow_iceberg"
# What an installation must be able to do, where nothing but it is there.
LOOK = """
import importlib, importlib.metadata, sys
import airflow_iceberg
assert not airflow_iceberg.__file__.startswith(sys.argv[1]), f"{airflow_iceberg.__file__} is the repository's"
from airflow.providers_manager import ProvidersManager
assert "airflow-iceberg" in ProvidersManager().providers, "Airflow does not know the provider"
assert ProvidersManager().hooks["iceberg_catalog"].connection_type == "iceberg_catalog"
for name in ("operators", "sensors", "triggers", "hooks"):
    package = importlib.import_module(f"airflow_iceberg.{name}")
    for each in package.__all__:
        getattr(package, each)
print("airflow-iceberg", airflow_iceberg.__version__, "with Airflow", importlib.metadata.version("apache-airflow"))
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="build the wheel and the sdist, and check them")
    parser.add_argument("--demo", action="store_true", help="run the demo from the installed wheel")
    parser.add_argument("--tag", help="the tag of a release, which has to be that of the version and of the changelog")
    options = parser.parse_args(arguments)
    if options.tag:
        check_tag(options.tag)
    tools = ensure_venv(WORK / "tools")
    run([tools, "-m", "pip", "install", "--quiet", "uv", *requirements(["dist"])])
    wheel, sdist = build(tools)
    check_contents(wheel, sdist)
    run([tools, "-m", "twine", "check", "--strict", wheel, sdist])
    by_pip = empty("pip")
    run([by_pip, "-m", "pip", "install", "--quiet", wheel])
    look(by_pip)
    by_uv = empty("uv")
    demo = [f"{wheel}[spark,duckdb]", *requirements(["demo"])] if options.demo else [wheel]
    run([tools.parent / "uv", "pip", "install", "--quiet", "--python", by_uv, *demo], env=uv_environment(tools))
    look(by_uv)
    if options.demo:
        run_demo(by_uv, sdist)
    say(f"{wheel.relative_to(ROOT)} and {sdist.relative_to(ROOT)} are complete")
    return 0


def check_tag(tag: str, root: Path = ROOT) -> None:
    """A release has its version as its tag, and the day on which it was made at the top of the changelog."""
    text = (root / PACKAGE / "__init__.py").read_text()
    version = text.partition('__version__ = "')[2].partition('"')[0]
    if tag != f"v{version}":
        sys.exit(f"distribution: the tag is {tag}, expected v{version}, the version of {PACKAGE}/__init__.py")
    heading = next((line for line in (root / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")), "")
    if not re.fullmatch(rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        sys.exit(f"distribution: CHANGELOG.md begins with {heading!r}, expected '## {version} (the day as 2026-01-31)'")


def run(command: Sequence[object], *, env: dict[str, str] | None = None, cwd: Path = ROOT) -> None:
    words = [str(word) for word in command]
    without = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if subprocess.run(words, env=without | (env or {}), cwd=cwd, check=False).returncode:
        sys.exit(f"distribution: {' '.join(words)[:300]} failed")


def build(tools: Path) -> tuple[Path, Path]:
    """Build the sdist of the repository, and the wheel of the sdist."""
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    run([tools.parent / "uv", "build", "--quiet", "--python", tools, "--out-dir", folder], env=uv_environment(tools))
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """The wheel has what git has of the package, and its description; the sdist what a packager needs besides."""
    with zipfile.ZipFile(wheel) as opened:
        found = set(opened.namelist())
        entry_points = next(opened.read(name).decode() for name in found if name.endswith("entry_points.txt"))
    expected = {name for name in files_of_git() if name.startswith(f"{PACKAGE}/")}
    described = {name for name in found if ".dist-info/" in name}
    if found - described != expected:
        sys.exit(f"distribution: the wheel and the package differ in {sorted((found - described) ^ expected)[:10]}")
    for group in ("apache_airflow_provider", *extra_entry_points()):
        if f"[{group}]" not in entry_points:
            sys.exit(f"distribution: the wheel has no entry point {group}")
    with tarfile.open(sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    missing = {"pyproject.toml", "README.md", "LICENSE", ".ci/readme.py", "dags_examples/demo.py", "Makefile"} - names
    if missing:
        sys.exit(f"distribution: the sdist lacks {sorted(missing)}")


def extra_entry_points() -> list[str]:
    """Return the entry points of the project beside the provider's: a plugin of Airflow is one."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    return [line.removeprefix("[project.entry-points.").strip('"]') for line in lines if "entry-points." in line]


def files_of_git() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", PACKAGE]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def empty(name: str) -> Path:
    """Return the Python of an environment with nothing in it but pip."""
    shutil.rmtree(WORK / name, ignore_errors=True)
    return ensure_venv(WORK / name)


def look(python: Path) -> None:
    """Use the installation, as Airflow does, from a folder without anything."""
    folder = WORK / "nowhere"
    folder.mkdir(exist_ok=True)
    known = {"AIRFLOW_HOME": str(folder), "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
    run([python, "-I", "-c", LOOK, ROOT / PACKAGE], cwd=folder, env=known)
    run([python.parent / "airflow", "iceberg", "--help"], cwd=folder, env=known)


def run_demo(python: Path, sdist: Path) -> None:
    """Run the examples of the sdist with the wheel; each has its own folder, and nothing of the repository."""
    with tarfile.open(sdist) as opened:
        wanted = [each for each in opened.getmembers() if "/dags_examples/" in each.name]
        opened.extractall(WORK, members=wanted, filter="data")
    folder = WORK / sdist.name.removesuffix(".tar.gz")
    java = java_home(python, [17, 21])
    run([python, folder / "dags_examples" / "demo.py"], cwd=folder, env={"JAVA_HOME": java} if java else {})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
