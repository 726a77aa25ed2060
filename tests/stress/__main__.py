"""The stress as a program: starts the actors, kills them and starts them again, and asks the judge in the end.

python -m tests.stress --seconds 600 --catalog sqlite|hadoop --format-version 2|3 --seed N
"""

import argparse
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from airflow_iceberg.table import Table
from tests.stress.actors import NAME, ROLES, Actor, Stage
from tests.stress.judge import judge, write
from tests.stress.rows import SCHEMA

# So many of each role.
CAST = {"append": 3, "delete": 2, "overwrite": 2}
PROPERTIES = {
    "commit.manifest.min-count-to-merge": "6",
    "commit.retry.min-wait-ms": "20",
    "commit.retry.max-wait-ms": "500",
    "write.metadata.previous-versions-max": "20",
}


def main() -> int:
    """Run, print what happened, and return 1 for damage."""
    options = _options()
    folder = Path(options.folder or tempfile.mkdtemp(prefix="stress-"))
    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage(folder, options.catalog, options.format_version, options.seed, options.mortality)
    # In processes of their own: nothing that holds a thread or a connection may be there when actors are forked.
    _rehearse(stage)
    assert _in_a_process(lambda: make_table(stage)) == 0
    troupe = _Troupe(stage, options.actors, rounds=options.rounds)
    deaths = troupe.perform(options.seconds, kill_every_s=options.kill_every)
    if troupe.broken:
        print(f"an actor ended with an error that nobody expects: {troupe.broken}; see {folder / 'logs'}")
    verdict = judge(stage)
    verdict.faults += [f"{name} ended with an error that nobody expects" for name in troupe.broken]
    verdict.counts["deaths"] = deaths
    write(verdict, folder)
    print(json.dumps({"faults": verdict.faults[:20], **verdict.counts}, indent=1))
    return 1 if verdict.faults else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.stress")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--rounds", type=int, help="end after so many operations of each actor instead")
    parser.add_argument("--catalog", choices=("sqlite", "hadoop"), default="sqlite")
    parser.add_argument("--format-version", type=int, choices=(2, 3), default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="an empty one; a temporary one that stays by default")
    parser.add_argument("--mortality", type=float, default=0.1, help="share of tries that die, or hear nothing")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds between kills from outside, 0 for none")
    parser.add_argument("--actors", type=json.loads, default={}, help='how many of each role: {"append": 2}')
    return parser.parse_args()


def make_table(stage: Stage) -> None:
    catalog = stage.open_catalog()
    catalog.create_namespace("db")
    properties = {**PROPERTIES, "format-version": str(stage.version)}
    if stage.seed % 2:
        properties["write.metadata.delete-after-commit.enabled"] = "true"
    Table.create(catalog, NAME, schema=SCHEMA, partition_by=["part"], properties=properties)


def _rehearse(stage: Stage) -> None:
    """Import what the actors import as they go, so that who starts again does not spend his life on that."""
    folder = stage.folder / "rehearsal"
    folder.mkdir()
    other = replace(stage, folder=folder, mortality=0.0, pause_s=0.0)

    def act() -> None:
        make_table(other)
        for role in ROLES * 2:
            Actor(other, role, role, rounds=2).act()
        (folder / "modules").write_text("\n".join(sys.modules))

    assert _in_a_process(act) == 0
    for name in (folder / "modules").read_text().split():
        with suppress(ImportError):
            importlib.import_module(name)


class _Troupe:
    """The actors' processes."""

    def __init__(self, stage: Stage, cast: dict[str, int], *, rounds: int | None) -> None:
        self._stage = stage
        self._rounds = rounds
        self._roles = {f"{role}{number}": role for role in ROLES for number in range(cast.get(role, CAST.get(role, 1)))}
        self._running: dict[int, str] = {}
        self.broken: list[str] = []

    def perform(self, seconds: float, *, kill_every_s: float) -> int:
        """Let them act until the time is over or all have come to their end; return how many died."""
        dice, deaths = random.Random(self._stage.seed), 0
        for name in self._roles:
            self._start(name)
        end = time.monotonic() + seconds
        next_kill = time.monotonic() + kill_every_s
        while self._running:
            now = time.monotonic()
            if self._rounds is None and now > end:
                (self._stage.folder / "over").touch()
            elif kill_every_s and now > next_kill:
                next_kill = now + kill_every_s * dice.uniform(0.3, 1.7)
                os.kill(dice.choice(sorted(self._running)), signal.SIGKILL)
            deaths += self._reap()
            time.sleep(0.02)
        return deaths

    def _reap(self) -> int:
        """Start those again that died; return their number."""
        deaths = 0
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            name = self._running.pop(pid)
            if os.WIFSIGNALED(status):
                deaths += 1
                self._start(name)
            elif os.WEXITSTATUS(status):
                # Not damage in itself, but nobody knows why: everybody stops.
                self.broken.append(name)
                (self._stage.folder / "over").touch()
        return deaths

    def _start(self, name: str) -> None:
        role = self._roles[name]
        self._running[_fork(lambda: Actor(self._stage, role, name, rounds=self._rounds).act(), self._log(name))] = name

    def _log(self, name: str) -> Path:
        path = self._stage.folder / "logs" / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        return path


def _in_a_process(work: Callable[[], None]) -> int:
    _, status = os.waitpid(_fork(work, None), 0)
    return status


def _fork(work: Callable[[], None], log: Path | None) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        if log is not None:
            descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
