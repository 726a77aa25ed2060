"""Processes of one test that work at the same time, on what a process forks from that has imported everything already.

Each starts in milliseconds where a new interpreter would take a second. What they fork from has opened nothing: no
connection, no thread of a driver.
"""

import multiprocessing
import subprocess
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.catalogs.races", "sqlalchemy"])


def run_processes(
    target: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], *, seconds: float = 500
) -> list[Any]:
    """Run a function in processes of their own, which begin together, and return what it returned in each.

    Args:
        target: of a module, so that the processes can import it.
        arguments: of each process.
        seconds: how long all of them may take.

    Raises:
        AssertionError: one has failed, with its traceback; none is left running.
    """
    ready = _context.Barrier(len(arguments), timeout=300)
    running = []
    deadline = time.monotonic() + seconds
    try:
        for each in arguments:
            receiver, sender = _context.Pipe(duplex=False)
            process = _context.Process(target=_answer, args=(sender, ready, target, each), daemon=True)
            process.start()
            sender.close()  # so that the other end is closed when the process dies
            running.append((process, receiver))
        results = [_result(receiver, deadline - time.monotonic()) for _, receiver in running]
        for process, _ in running:
            process.join(10)
        return results
    finally:
        for process, receiver in running:
            process.kill()
            process.join()
            receiver.close()


def end_process(process: subprocess.Popen[Any], *, seconds: float = 60) -> None:
    """Let a process end that answers until its input does; kill it after these seconds."""
    process.stdin.close()
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _answer(sender: Connection, ready: Any, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        ready.wait()
        sender.send((target(*arguments), None))
    except BaseException:
        sender.send((None, traceback.format_exc()))


def _result(receiver: Connection, seconds: float) -> Any:
    assert receiver.poll(max(0.0, seconds)), "a process did not come to its end in time"
    try:
        result, error = receiver.recv()
    except EOFError:
        raise AssertionError("a process died without an answer") from None
    assert error is None, error
    return result
