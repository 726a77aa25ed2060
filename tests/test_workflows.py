"""What runs at a code host is what runs at home: workflows and hooks call make's targets, with one list of versions."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.airflow_home import ROOT
from tests.support.ci_programs import program

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# One target, and variables for it. Of a host's values only a version of this file and the tag, which `on` restricts.
COMMAND = re.compile(r"make (?P<target>[a-z-]+)(?: [A-Z]+=(?:\$\{\{ matrix\.\w+ \}\}|[\w.-]+|\"[\w $.-]+\"))*")
ACTION = re.compile(r"^[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+$")


def loaded(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def jobs() -> Iterator[dict[str, Any]]:
    for path in WORKFLOWS:
        yield from loaded(path)["jobs"].values()


def commands() -> list[str]:
    return [step["run"] for job in jobs() for step in job.get("steps", ()) if "run" in step]


def target_of(command: str) -> str | None:
    """Return the target of make that a command calls, None if it does anything else."""
    found = COMMAND.fullmatch(command)
    return found["target"] if found and re.search(rf"^{found['target']}:", MAKEFILE, re.MULTILINE) else None


def matrix(name: str) -> list[str]:
    (found,) = [values for job in jobs() if (values := job.get("strategy", {}).get("matrix", {}).get(name)) is not None]
    assert isinstance(found, list)
    return found


class TestWorkflowsCallMake:
    """A step is a target of make, or an action that sets something up; what is done stands in the Makefile."""

    def test_each_command(self) -> None:
        assert len(commands()) > 5
        assert [each for each in commands() if target_of(each) is None] == []

    @pytest.mark.parametrize(
        "other",
        [
            "pip install x",
            "make tests",
            "make test && pip list",
            "make test\npip list",
            "make dist ARGS='$(id)'",
            "make",
        ],
    )
    def test_anything_else_would_be_found(self, other: str) -> None:
        assert target_of(other) is None

    def test_all_checks_of_a_change_are_among_them(self) -> None:
        steps = set(re.findall(r"^.*\bstep ([\w-]+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE))
        assert steps >= {"lint", "test"}
        assert steps | {"docs", "test-airflow", "dist"} == {target_of(each) for each in commands()}

    def test_a_hidden_shell_or_checkout_is_none(self) -> None:
        """What a step has beside `run` and `uses` could change what its command does."""
        keys = {key for job in jobs() for step in job.get("steps", ()) for key in step}
        assert keys == {"run", "uses", "with"}
        assert not [job for job in jobs() if {"env", "defaults"} & job.keys()]


class TestWorkflowsAreTrustedWithLittle:
    """They read the repository and nothing else, and an action is the commit that somebody has looked at."""

    @pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
    def test_permissions_and_actions(self, path: Path) -> None:
        text, workflow = path.read_text(), loaded(path)
        assert workflow["permissions"] == {"contents": "read"}
        assert not [job for job in workflow["jobs"].values() if "permissions" in job or "secrets" in job]
        used = re.findall(r"uses: (.*)", text)
        assert [each for each in used if not each.startswith("./.github/") and not ACTION.match(each)] == []
        assert text.count("actions/checkout@") == text.count("persist-credentials: false")

    def test_an_action_has_one_version(self) -> None:
        used = {each for path in WORKFLOWS for each in re.findall(r"uses: ([\w-]+/.*)", path.read_text())}
        assert len(used) == len({each.partition("@")[0] for each in used}) == 3


class TestVersions:
    """Those that are tested are those that the package says it works with."""

    def test_of_python(self) -> None:
        start = "Programming Language :: Python :: 3."
        declared = [f"3.{each.removeprefix(start)}" for each in PROJECT["classifiers"] if each.startswith(start)]
        assert matrix("python") == declared
        assert PROJECT["requires-python"] == f">={declared[0]}"
        setups = [
            step["with"]["python-version"]
            for job in jobs()
            for step in job.get("steps", ())
            if "setup-python" in str(step)
        ]
        named = {word for setup in setups for word in re.sub(r"\$\{\{ matrix\.python \}\}", "", setup).split()}
        assert named <= set(declared)

    def test_of_airflow(self) -> None:
        versions = program("airflow_versions")
        assert matrix("airflow") == [".".join(each.split(".")[:2]) for each in versions.DAYS]
        assert matrix("airflow")[0] == ".".join(map(str, versions.OLDEST))
        assert f"apache-airflow>={matrix('airflow')[0]}" in PROJECT["dependencies"]


class TestHooksBeforeACommit:
    """They are what `make lint` runs, with its tools: no version can be another one."""

    def test_they_are_the_lines_of_make_lint(self) -> None:
        recipe = re.search(r"^lint: .*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
        assert recipe is not None
        lines = [line.strip().removeprefix("@").replace("$(VENV)", ".venv") for line in recipe[1].splitlines()]
        (local,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
        assert local["repo"] == "local"
        assert [hook["entry"] for hook in local["hooks"]] == lines
        assert all(hook["language"] == "system" and hook["pass_filenames"] is False for hook in local["hooks"])


class TestTemplates:
    """The forms of issues can be read, and their addresses are those of the project."""

    @pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
    def test_a_form(self, path: Path) -> None:
        form = loaded(path)
        if path.stem != "config":
            assert form["name"]
            assert form["description"]
            ids = [each["id"] for each in form["body"] if each["type"] != "markdown"]
            assert ids
            assert len(ids) == len(set(ids))
        for address in re.findall(r"https://[^\s)]+", path.read_text()):
            assert address.startswith(PROJECT["urls"]["Source"])
            page = address.partition("/blob/main/")[2]
            assert not page or (ROOT / page).is_file()
