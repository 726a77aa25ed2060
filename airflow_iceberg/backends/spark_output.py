"""The cause of a job's end by the output of spark-submit, in one sentence with what to do.

Only the wording of an error depends on it, with one exception: a driver that lacks a package cannot write a result, and
says so in its output alone. No retry installs it there. Not here: reading the output (`_submit_hook`) and the job's own
errors (`jobs.spark`).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from airflow_iceberg.backends.pages import SparkPages, pages_told
from airflow_iceberg.redaction import said

_LACKS_PACKAGE = (
    "the Python of the driver, {python}, cannot run the job: {why}; install the package there, or set "
    "spark.pyspark.driver.python (PYSPARK_DRIVER_PYTHON) to a Python that has it"
)
_LACKS_STORE = "the Python of the driver cannot use {location}: {why}; install {requirement} there"
# In this order: an earlier cause explains the later ones. "{master}" is the connection's, other names in braces are
# groups of the pattern.
_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"All masters are unresponsive",
        "no Spark master answers at {master}; check the connection's host, and that a Spark of this version runs there",
    ),
    (
        r"InvalidClassException: org\.apache\.spark.*local class incompatible",
        "the cluster at {master} runs another version of Spark than this machine; set SPARK_HOME to that version",
    ),
    (
        r"ConnectException: Call From \S+ to (?P<at>\S+) failed|Retrying connect to server: (?P<to>\S+?)[.;,]? Already",
        "no YARN resource manager answers at {at}{to}; check HADOOP_CONF_DIR, and that the resource manager runs",
    ),
    (
        r"(?:KubernetesClientException|ConnectException|UnknownHostException): .*(?:[Cc]onnect|[Kk]ubernetes|resolve)",
        "the cluster at {master} does not answer; check the connection's host",
    ),
    (
        r"System memory (?P<got>\d+) must be at least (?P<expected>\d+)",
        "the driver has too little memory: {got} bytes, expected at least {expected}; raise driver_memory",
    ),
    (
        r"Executor memory (?P<got>\d+) must be at least (?P<expected>\d+)",
        "the executors have too little memory: {got} bytes, expected at least {expected}; raise executor_memory",
    ),
    (
        r"Required (?P<who>AM|executor) memory .*is above the max threshold \((?P<most>[^)]*)\)",
        (
            "the cluster allows {most} of memory at most, less than the {who} requests; lower driver_memory or "
            "executor_memory"
        ),
    ),
    (
        (
            r"^(?:Error: )?(?P<why>Too small (?:maximum|initial) heap|Invalid maximum heap size\S*"
            r"|Could not reserve enough space\b[^.]*)"
        ),
        "Java does not start with this driver_memory: {why}; choose another amount",
    ),
    (
        r"java\.lang\.OutOfMemoryError: (?P<what>[\w ]+)",
        "Java ran out of memory ({what}); raise driver_memory or executor_memory",
    ),
    (
        r"Cannot run program \"(?P<program>[^\"]+)\".*No such file",
        (
            "Spark cannot start {program}, there is no such file; set spark.pyspark.python (PYSPARK_PYTHON) to a "
            "Python that driver and executors have"
        ),
    ),
    (
        r"Python in worker has different version:? (?P<got>\S+) than that in driver:? (?P<expected>[\d.]+\d)",
        (
            "the executors run Python {got} and the driver Python {expected}; set spark.pyspark.python "
            "(PYSPARK_PYTHON) to the driver's version"
        ),
    ),
    (
        r"^(?:airflow_iceberg: )?cannot import airflow_iceberg under (?P<python>\S+) \((?P<why>[^)]*)\)",
        _LACKS_PACKAGE,
    ),
    (
        (
            r"^airflow_iceberg: cannot read the job plan .{1,1000}: cannot use (?P<location>.{1,1000}): the driver of "
            r"its store is not installed \((?P<why>[^)]{1,200})\), run: pip install '(?P<requirement>[^']{1,100})'"
        ),
        _LACKS_STORE,
    ),
    (r"^airflow_iceberg: (?P<why>cannot read the job plan .{1,1000})", "{why}"),
    (
        r"ExecutorLostFailure.*(?:exit code 137|[Oo]ut ?[Oo]f ?[Mm]emory|OOM)",
        "an executor was killed, most often because memory ran out; raise executor_memory",
    ),
    (
        r"Python worker exited unexpectedly",
        (
            "a Python worker of the executors was killed, most often because memory ran out; raise executor_memory or "
            "spark.executor.memoryOverhead"
        ),
    ),
    (r"Exception in thread \"main\" [\w.$]+: (?P<why>.{1,500})", "spark-submit failed: {why}"),
    (
        r"Initial job has not accepted any resources",
        (
            "the cluster at {master} gives the job no executors; request less memory or fewer cores, or wait until "
            "workers are free"
        ),
    ),
)
_LONGEST_LINE, _LONGEST_MESSAGE = 4_096, 32_768
_OF_KILLER = "most often memory ran out: give the worker more, or the job less"
_OF_CODE = "read the end of spark-submit's output, in the group above"
_OF_PACKAGES = {number for number, (_, sentence) in enumerate(_CAUSES) if sentence in (_LACKS_PACKAGE, _LACKS_STORE)}
_PATTERNS = tuple((re.compile(pattern), sentence) for pattern, sentence in _CAUSES)
# Most lines match none of them, and one search is faster than all.
_ANY = re.compile("|".join(re.sub(r"\(\?P<\w+>", "(?:", pattern) for pattern, _ in _CAUSES), re.MULTILINE)


@dataclass(kw_only=True, slots=True)
class SparkOutput:
    """The causes in the output of one spark-submit.

    Attributes:
        master: the master that the job was submitted to.
        exit_code: the exit code of spark-submit; a negative one is the number of the signal that ended it.
        tell: called with the application's pages, once they are known, and again when its own page is.
    """

    master: str
    exit_code: int | None = None
    tell: Callable[[SparkPages], None] | None = None
    _pages: SparkPages | None = None
    _seen: dict[int, tuple[str, str]] = field(default_factory=dict)

    def watched(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines, and remember the causes in them."""
        for line in lines:
            self._look(line)
            self._find_pages(line)
            yield line

    def cause(self, message: str = "", *, died: bool) -> str | None:
        """Return why the job ended, None when nothing is known.

        Args:
            message: the message of the job's own error, which is searched like its output.
            died: whether the job ended without an error of its own, so that its exit code matters.
        """
        self._look(message)
        said = "; ".join(filter(None, self._said()))
        killer = self._killer() if died else None
        if killer is not None:
            # An earlier message need not be the cause.
            return f"{killer}; its output says: {said}" if said else f"{killer}; {_OF_KILLER}"
        if not said and died and self.exit_code:
            return f"the driver ended with exit code {self.exit_code}; {_OF_CODE}"
        return said or None

    def advice(self, *, died: bool) -> str | None:
        """Return what to do about the cause, as it stands in it; None if nobody knows."""
        advice = self._said()[1]
        if advice or not died or self._seen:
            return advice or None
        return _OF_KILLER if self._killer() is not None else _OF_CODE

    def lacks_package(self, *, died: bool) -> bool:
        """Tell whether the cause is a package that the driver lacks: it says so instead of starting Spark."""
        # After a signal, what was said before need not be the cause.
        is_killed = died and self._killer() is not None
        return bool(self._seen) and min(self._seen) in _OF_PACKAGES and not is_killed

    def _said(self) -> tuple[str, str]:
        return self._seen[min(self._seen)] if self._seen else ("", "")

    def _find_pages(self, line: str) -> None:
        pages = pages_told(line)
        if pages is None or self.tell is None:
            return
        known = self._pages
        # The first application alone: a later line may be of the job's own code.
        if known is None or (known.application_id == pages.application_id and known.page is None and pages.page):
            self._pages = pages
            self.tell(pages)

    def _look(self, text: str) -> None:
        # Rows may be in it, of any length: some patterns take time by the square of it.
        text = "\n".join(line[:_LONGEST_LINE] for line in _without_middle(text).splitlines())
        if not _ANY.search(text):
            return
        # Before parts of it are taken: what is left of a secret may tell no longer that it is one.
        text = said(text)
        for number, (pattern, sentence) in enumerate(_PATTERNS):
            match = pattern.search(text)
            if match:
                groups = {name: value or "" for name, value in match.groupdict().items()}
                happened, _, to_do = sentence.partition("; ")
                told = (text.format(master=self.master, **groups) for text in (happened, to_do))
                self._seen.setdefault(number, (next(told), next(told)))

    def _killer(self) -> str | None:
        code = self.exit_code or 0
        if code < 0:
            return f"spark-submit was killed by {_signal(-code)}"
        if code - 128 in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT):
            return f"the driver was killed by {_signal(code - 128)}"
        return None


def _without_middle(text: str) -> str:
    """Return the beginning and the end of a long text: the last lines of a traceback say what has happened.

    The end begins with a whole line: what is left of a secret may tell no longer that it is one.
    """
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    _, _, end = text[-half:].partition("\n")
    return f"{text[:half]}\n{end}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
