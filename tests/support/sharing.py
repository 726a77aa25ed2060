"""Which worker of pytest-xdist runs what: whole files, and all files of a group (the mark `xdist_group`) on one worker.

With `--dist loadfile`. xdist's own `loadgroup` appends the group to the name of a test, which pytest 9.2 does not let
it; and it would part the tests of a file that is in no group.
"""

import json
import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

_GROUPS = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("dist", "no") == "loadfile":
        config.stash[_GROUPS] = Path(tempfile.mkdtemp(prefix="airflow-iceberg-groups-")) / "groups.json"


def pytest_unconfigure(config: pytest.Config) -> None:
    if _GROUPS in config.stash:
        config.stash[_GROUPS].unlink(missing_ok=True)
        config.stash[_GROUPS].parent.rmdir()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if _GROUPS in node.config.stash:
        node.workerinput["groups"] = str(node.config.stash[_GROUPS])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Each worker writes down the groups, all the same; only workers know the tests."""
    groups = getattr(session.config, "workerinput", {}).get("groups")
    if groups is not None:
        marks = ((item.nodeid, item.get_closest_marker("xdist_group")) for item in session.items)
        part = Path(f"{groups}.{os.getpid()}")
        part.write_text(json.dumps({nodeid: mark.args[0] for nodeid, mark in marks if mark}))
        part.replace(groups)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class ByGroupOrFile(LoadFileScheduling):
        @cached_property
        def groups(self) -> dict[str, str]:
            found: dict[str, str] = json.loads(config.stash[_GROUPS].read_text())
            return found

        def _split_scope(self, nodeid: str) -> str:
            return self.groups.get(nodeid) or super()._split_scope(nodeid)

    return ByGroupOrFile(config, log) if _GROUPS in config.stash else None
