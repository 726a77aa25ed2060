"""The short run: some thousand inputs of each kind, and every input that once broke a rule."""

import multiprocessing
import os
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_iceberg.format.decompression import unzstd_by_arrow
from tests.fuzz import runner
from tests.fuzz.mutation import corpus, crashers, make_input
from tests.fuzz.runner import check, run
from tests.fuzz.targets import TARGETS
from tests.support.sampling import SEED, sampled, some

RUNS = {"metadata": 4000, "manifest": 3000, "manifest_list": 4000, "vector": 8000, "variant": 8000, "table": 200}
CRASHERS = [(target, path) for target in TARGETS for path in crashers(target)]


@pytest.fixture(autouse=True)
def patient(monkeypatch) -> None:
    """Machines that run tests are slow at times; `make fuzz` is strict."""
    monkeypatch.setattr(runner, "SECONDS", 20.0)


class TestDamagedFiles:
    """Whatever stands in a file, reading it gives our own errors, in bounded time and memory."""

    @pytest.mark.costly
    @pytest.mark.sample(2)
    @pytest.mark.generated
    @pytest.mark.parametrize("target", TARGETS)
    def test_mutated_samples(self, target: str) -> None:
        runs = sampled(RUNS[target])
        outcome = run(target, seed=SEED, numbers=range(runs))
        assert [finding.problem for finding in outcome.findings] == []
        assert outcome.inputs == runs
        # Inputs that are all refused at their first byte would prove little.
        assert outcome.accepted > runs // 100

    @pytest.mark.parametrize(("target", "path"), CRASHERS, ids=lambda value: getattr(value, "name", value))
    def test_what_once_broke_a_rule(self, target: str, path: Path) -> None:
        check(TARGETS[target], corpus(target)[0])  # what is imported on the way is no input's memory
        assert check(TARGETS[target], path.read_bytes()) in ("", "refused")

    @pytest.mark.costly
    @pytest.mark.generated
    @pytest.mark.parametrize("target", TARGETS)
    def test_the_samples_themselves_are_read(self, target: str) -> None:
        problems = [check(TARGETS[target], data) for data in some(corpus(target))]
        assert set(problems) <= {"", "refused"}
        assert problems.count("") > len(problems) // 2


class TestTheRules:
    """What breaks a rule is found, or the runs above would say nothing."""

    def test_an_error_that_is_not_ours(self) -> None:
        assert "ZeroDivisionError" in check(lambda data: 1 / len(data), b"")

    @pytest.mark.costly
    def test_much_memory(self) -> None:
        # A process of its own: the peak of this one may be that of a test before.
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=lambda: sender.send(check(lambda data: bytearray(b"x") * (400 << 20), b""))
        )
        process.start()
        assert "MB of memory" in receiver.recv()
        process.join()

    def test_much_time(self, monkeypatch) -> None:
        monkeypatch.setattr(runner, "SECONDS", 0.0)
        assert "took" in check(lambda data: sum(range(100_000)), b"")

    @pytest.mark.costly
    def test_a_process_that_dies(self, monkeypatch) -> None:
        first = make_input("variant", 0, 1)
        monkeypatch.setitem(TARGETS, "variant", lambda data: os._exit(3) if data == first else None)
        outcome = run("variant", seed=0, numbers=range(5))
        assert [(finding.number, finding.problem) for finding in outcome.findings] == [(1, "the process died (3)")]

    @pytest.mark.costly
    @pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the size of a process")
    def test_damaged_frames_leave_no_memory_behind(self) -> None:
        """The buffers that pyarrow keeps are never written to: only the size of the address space shows them."""
        damaged, sizes = pa.compress(bytes(range(256)) * 8192, "zstd", asbytes=True)[:-4], []
        for _ in range(2):
            for _ in range(300):
                with pytest.raises(OSError):
                    unzstd_by_arrow(damaged)
            sizes.append(int(Path("/proc/self/status").read_text().partition("VmSize:")[2].split()[0]))
        assert sizes[1] - sizes[0] < 100 << 10  # kB
