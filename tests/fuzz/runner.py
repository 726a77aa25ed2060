"""Holds inputs to the rules: only our own errors, a second, a hundred megabytes.

Inputs run in a process of their own, whose memory is limited and which tells by a number in a file which input it is
at: one that dies is a finding like any other. Peak memory only grows, so that what one input adds to it is what it took
more than any before.
"""

import contextlib
import json
import multiprocessing
import os
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from airflow_iceberg.errors import IcebergError
from tests.fuzz.mutation import corpus, make_input
from tests.fuzz.targets import TARGETS
from tests.support.peak_memory import peak_bytes

SECONDS = 1.0
SECONDS_PER_MEGABYTE = 10.0
"""What an input may take, and what a large one may take in addition."""
MEMORY_BYTES = 150 << 20
ADDRESS_SPACE_BYTES = 8 << 30
STUCK_SECONDS = 60.0
FINDINGS = Path("build/fuzz")
Read = Callable[[bytes], object]
Trial = Callable[[str, int, int | None], tuple[Read, bytes]]
"""Takes a target, the seed and a number; returns what reads the input, and the input: without a number a sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """An input that broke a rule."""

    target: str
    number: int
    problem: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a run.

    Attributes:
        accepted: how many inputs were read without an error, which tells whether mutations go deep.
        slowest: seconds of processor time of the slowest input.
    """

    inputs: int
    accepted: int
    slowest: float
    findings: tuple[Finding, ...]


def trial_of(target: str, seed: int, number: int | None) -> tuple[Read, bytes]:
    return TARGETS[target], corpus(target)[0] if number is None else make_input(target, seed, number)


def check(target: Read, data: bytes, *, limit_s: float | None = None) -> str:
    """Run one input and return what rule it broke: "" for none, "refused" for one of our own errors."""
    before, start = peak_bytes(), time.process_time()
    result = ""
    try:
        target(data)
    except IcebergError:
        result = "refused"
    except BaseException:
        return traceback.format_exc(limit=-6)
    seconds, grown = time.process_time() - start, peak_bytes() - before
    if seconds > (SECONDS if limit_s is None else limit_s) + SECONDS_PER_MEGABYTE * len(data) / (1 << 20):
        return f"took {seconds:.1f} s for {len(data)} bytes"
    if grown > MEMORY_BYTES + 50 * len(data):
        return f"took {grown >> 20} MB of memory for {len(data)} bytes"
    return result


def run(
    target: str, *, seed: int, numbers: Iterable[int], trial: Trial = trial_of, limit_s: float | None = None
) -> Outcome:
    """Run inputs of a target by their numbers; every one is run, whatever the others do."""
    left, findings, accepted, inputs, slowest = list(numbers), [], 0, 0, 0.0
    while left and len(findings) < 20:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            notes = Path(folder)
            arguments = (partial(trial, target, seed), left, notes, limit_s)
            process = multiprocessing.get_context("fork").Process(target=_work, args=arguments)
            process.start()
            _watch(process, notes)
            for line in _lines(notes):
                inputs, accepted = inputs + line["inputs"], accepted + line["accepted"]
                slowest = max(slowest, line["slowest"])
                findings += [Finding(target=target, number=n, problem=text) for n, text in line["findings"]]
            if process.exitcode == 0:
                break
            at = int((notes / "at").read_text())
            findings.append(Finding(target=target, number=at, problem=f"the process died ({process.exitcode})"))
            inputs += 1
            left = left[left.index(at) + 1 :]
    return Outcome(inputs=inputs, accepted=accepted, slowest=slowest, findings=tuple(findings))


def run_and_report(shares: Mapping[str, int], *, seed: int, **more: Any) -> int:
    """Run so many inputs of each target, keep and name what breaks a rule, and return the exit code."""
    print(f"seed {seed}", flush=True)
    findings = 0
    for target, runs in shares.items():
        start = time.monotonic()
        outcome = run(target, seed=seed, numbers=range(runs), **more)
        findings += len(outcome.findings)
        print(
            f"{target}: {outcome.inputs} inputs, {outcome.accepted} read without an error, slowest "
            f"{outcome.slowest:.2f} s, {len(outcome.findings)} findings, {time.monotonic() - start:.0f} s",
            flush=True,
        )
        for finding in outcome.findings:
            FINDINGS.mkdir(parents=True, exist_ok=True)
            path = FINDINGS / f"{target}-{seed}-{finding.number}"
            path.write_bytes(more.get("trial", trial_of)(target, seed, finding.number)[1])
            print(f"--- {path}\n{finding.problem}", flush=True)
    return 1 if findings else 0


def _watch(process: multiprocessing.Process, notes: Path) -> None:
    """Wait for the end of a process, and make one if it stays at one input for too long."""
    last, since = "", time.monotonic()
    while process.is_alive():
        process.join(0.5)
        now = (notes / "at").read_text() if (notes / "at").exists() else ""
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since > STUCK_SECONDS:
            process.kill()


def _lines(notes: Path) -> Iterator[dict]:
    path = notes / "report"
    for line in path.read_text().splitlines() if path.exists() else ():
        yield json.loads(line)


def _work(
    trial: Callable[[int | None], tuple[Read, bytes]], numbers: list[int], notes: Path, limit_s: float | None
) -> None:
    """Run inputs in this process, which ends with it; a line is written now and then."""
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    function, data = trial(None)
    with contextlib.suppress(Exception):  # the inputs will show it again
        function(data)  # what is imported on the way is no input's memory
    at = os.open(notes / "at", os.O_CREAT | os.O_WRONLY)
    with (notes / "report").open("w") as report:
        line = {"inputs": 0, "accepted": 0, "slowest": 0.0, "findings": []}
        for number in numbers:
            os.pwrite(at, f"{number:<20}".encode(), 0)
            function, data = trial(number)
            start = time.process_time()
            problem = check(function, data, limit_s=limit_s)
            line["slowest"] = max(line["slowest"], time.process_time() - start)
            line["inputs"] += 1
            line["accepted"] += not problem
            if problem not in ("", "refused"):
                line["findings"].append((number, problem))
            if line["inputs"] >= 500 or line["findings"]:
                report.write(json.dumps(line) + "\n")
                report.flush()
                line = {"inputs": 0, "accepted": 0, "slowest": 0.0, "findings": []}
        report.write(json.dumps(line) + "\n")
    os._exit(0)
