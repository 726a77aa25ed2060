"""What servers, clusters, drivers and programs say has no secret in it before Airflow, a log or a person gets it."""

import ast
import asyncio
import errno
import importlib
import logging
import pickle
import pkgutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from botocore.exceptions import ClientError

import airflow_iceberg
from airflow_iceberg.backends.following import Followed
from airflow_iceberg.backends.kubernetes import _pod
from airflow_iceberg.backends.spark_output import SparkOutput
from airflow_iceberg.backends.yarn import _application
from airflow_iceberg.errors import (
    FormatError,
    IcebergError,
    InvalidInputError,
    StorageError,
    advised,
    described,
    store_error,
)
from airflow_iceberg.jobs.protocol.result import JobError
from airflow_iceberg.jobs.spark.errors import as_iceberg_error, text_of
from airflow_iceberg.retries import airflow_failures, from_event, function_failures, shown_error, to_event
from airflow_iceberg.triggers._event import event_of, stored_failures

PACKAGE = Path(airflow_iceberg.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
# Each in a notation of its own; the text around it stays.
SAID = (
    "cannot log in with password: Zq9Secret1",
    "X-Api-Key: Zq9Secret1",
    "refused postgresql://me:Zq9/Secret1@db/x",
    '{"access_token": "Zq9Secret1"}',
    "<name>fs.s3a.secret.key</name><value>Zq9Secret1</value>",
    "Authorization: Bearer Zq9Secret1",
    "--conf spark.x.password=Zq9Secret1",
    "jdbc:x://h;user=me;Password='Zq9Secret1'",
)
MARK = "Secret1"


@pytest.fixture(params=SAID, ids=range(len(SAID)))
def said_by(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestErrors:
    """An error of this package has no secret in its message, whoever makes it of what."""

    @pytest.mark.costly
    def test_of_every_class(self) -> None:
        for found in pkgutil.walk_packages(airflow_iceberg.__path__, "airflow_iceberg."):
            if not found.name.endswith((".plugin", "__main__", "main")):
                importlib.import_module(found.name)
        wrong = []
        for kind in _classes(IcebergError):
            if not kind.__module__.startswith("airflow_iceberg"):
                continue
            try:
                error = kind("password=Zq9Secret1")
            except TypeError:
                continue  # made of other things than of a message
            if MARK in str(error) + repr(error) + repr(error.args):
                wrong.append(kind)
        assert wrong == []

    def test_nor_where_it_goes(self, said_by: str) -> None:
        error = StorageError(f"cannot read s3://b/f: {said_by}")
        broken = FormatError("unexpected end", path=f"s3://b/f?{said_by}")
        for one in (error, broken, described(ValueError(said_by)), store_error("cannot read", OSError(5, said_by))):
            shown = str(one) + repr(one) + repr(to_event(one)) + repr(JobError.from_exception(one).to_dict())
            assert MARK not in shown + str(from_event(to_event(one)))
            assert "***" in str(one)

    @pytest.mark.parametrize("told", [airflow_failures, function_failures])
    def test_nor_what_airflow_logs_with_its_causes(self, told: Any, said_by: str, caplog: Any) -> None:
        caplog.set_level(logging.DEBUG)

        def fails(error: Exception, cause: Exception) -> None:
            try:
                try:
                    raise KeyError(said_by)
                except KeyError:
                    raise cause  # noqa: B904 - the context is a part of what is shown
            except type(cause) as found:
                raise error from found

        def fail(error: Exception, cause: Exception) -> str:
            with pytest.raises(Exception, match=r".") as raised, told():
                fails(error, cause)
            return "".join(traceback.format_exception(raised.value)) + repr(raised.value)

        cause = RuntimeError(f"of the driver: {said_by}")
        for error in (InvalidInputError(said_by), StorageError("no"), RuntimeError(said_by), ImportError(said_by)):
            shown = fail(error, cause)
            assert MARK not in shown + caplog.text, error
            assert "in fails" in shown, "the traceback is kept"

    def test_an_error_of_others_without_one_stays_what_it_is(self) -> None:
        error = ValueError("no such day")
        with pytest.raises(ValueError, match="no such day") as raised, airflow_failures():
            raise error
        assert raised.value is error
        assert shown_error(error) is error
        shown = shown_error(ValueError("password=Zq9Secret1"))
        assert (isinstance(shown, ValueError), str(shown), type(shown).__name__) == (True, "password=***", "ValueError")
        shown = shown_error(UnicodeDecodeError("utf-8", b"password=Zq9Secret1", 0, 1, "password=Zq9Secret1"))
        assert MARK not in str(shown) + repr(shown)
        with pytest.raises(AirflowFailException), airflow_failures():
            raise ImportError("no module: password=Zq9Secret1")

    def test_a_stand_in_is_what_callers_decide_by(self) -> None:
        full: Any = shown_error(OSError(errno.ENOSPC, "no room: password=Zq9Secret1", "f"))
        assert (full.errno, full.filename, MARK in str(full)) == (errno.ENOSPC, "f", False)
        answer = {"Error": {"Code": "SlowDown", "Message": "token=Zq9Secret1"}, "HTTPStatusCode": 503}
        asked = ClientError(answer, "PutObject")
        asked.__cause__ = ValueError("no")
        shown: Any = shown_error(asked)
        assert isinstance(shown, ClientError)
        assert shown.response == {"Error": {"Code": "SlowDown", "Message": "token=***"}, "HTTPStatusCode": 503}
        for one in (full, shown, shown_error(KeyError("password=Zq9Secret1"))):
            again = pickle.loads(pickle.dumps(one))  # to another process
            assert (type(again).__name__, str(again)) == (type(one).__name__, str(one))

    def test_groups_and_notes(self) -> None:
        group = ExceptionGroup("several", [ValueError("password=Zq9Secret1"), KeyError("id")])
        shown: Any = shown_error(group)
        assert isinstance(shown, ExceptionGroup)
        assert [type(one).__name__ for one in shown.exceptions] == ["ValueError", "KeyError"]
        noted = ValueError("no such day")
        noted.add_note("sent with X-Api-Key: Zq9Secret1")
        told = shown_error(noted)
        assert isinstance(told, ValueError)
        assert told.__notes__ == ["sent with X-Api-Key: ***"]
        for one in (shown, told):
            assert MARK not in "".join(traceback.format_exception(one))

    def test_advice_has_none_and_stays_a_part_of_the_message(self) -> None:
        error = advised(InvalidInputError("cannot log in"), "correct the option password=Zq9Secret1")
        assert str(error) == f"cannot log in; {error.advice}"
        assert MARK not in str(error)
        assert error.what_happened == "cannot log in"


def _classes(kind: type[IcebergError]) -> Iterator[type[IcebergError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _classes(each)


class TestClusters:
    """How an application ended, and why it waits, say YARN and Kubernetes, in part in the words of the job."""

    def test_diagnostics_of_yarn(self, said_by: str) -> None:
        document = {"id": "application_1700000000000_0001", "state": "FAILED", "diagnostics": f"failed: {said_by}"}
        found = _application(document)
        assert MARK not in found.ending + repr(found)
        assert "failed: " in found.ending

    def test_messages_of_pods(self, said_by: str) -> None:
        ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": said_by}}
        waits = {"waiting": {"reason": said_by, "message": said_by}}
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said_by}]
        for phase, state in (("Failed", ended), ("Pending", waits)):
            status = {"phase": phase, "message": said_by, "containerStatuses": [{"state": state}]}
            found = _pod({"metadata": {"name": "p", "uid": "u"}, "status": {**status, "conditions": conditions}})
            assert MARK not in found.ending + found.waiting + repr(found)
            assert found.reason

    def test_what_is_followed(self, said_by: str, caplog: Any) -> None:
        running = SimpleNamespace(is_running=True, waiting=said_by, ending="", has_tag=lambda _: True)
        ended = SimpleNamespace(is_running=False, waiting="", ending=said_by, has_tag=lambda _: True)
        for state in (running, ended):
            manager: Any = SimpleNamespace(state=lambda _id, state=state, **_: state)
            told = Followed(manager, "app", cluster="X", tag="t").look()
            assert MARK not in str(told) + caplog.text

    def test_the_output_of_spark_submit(self, said_by: str) -> None:
        output = SparkOutput(master="yarn", exit_code=1)
        list(
            output.watched(
                [
                    f'Exception in thread "main" x.Y: {said_by}\n',
                    f"airflow_iceberg: cannot read the job plan p: {said_by}",
                ]
            )
        )
        assert MARK not in str(output.cause(died=True)) + str(output.advice(died=True)) + repr(output)

    def test_at_the_end_of_what_is_kept(self) -> None:
        output = SparkOutput(master="yarn", exit_code=1)
        login = "postgresql://me:Zq9Secret1Zq9Secret1@db/x"
        list(output.watched([f'Exception in thread "main" x.Y: {"x " * 235}{login}']))
        assert MARK not in str(output.cause(died=True))

    def test_errors_of_spark(self, said_by: str) -> None:
        python = f"Traceback (most recent call last):\n  File x\nValueError: {said_by}\n"
        for error in (RuntimeError(said_by), RuntimeError(python), RuntimeError(f"(org.x.Y) [Z] {said_by}")):
            assert MARK not in text_of(error) + str(as_iceberg_error(error))
            assert "***" in text_of(error)


class TestEvents:
    """Airflow stores the events of triggers, and the traceback of one that fails."""

    def test_no_text_of_an_event_has_one(self, said_by: str) -> None:
        content = {"status": "ended", "message": said_by, "result": {"a": [said_by]}, "n": 1}
        event = asyncio.run(event_of(content, left={"key": "ab12"}))
        assert MARK not in repr(event.payload)
        assert (event.payload["left"], event.payload["n"]) == ({"key": "ab12"}, 1)

    def test_nor_the_traceback_of_a_trigger(self, said_by: str) -> None:
        with pytest.raises(Exception, match=r".") as raised, stored_failures():
            raise RuntimeError(said_by)
        assert MARK not in "".join(traceback.format_exception(raised.value))

    def test_events_are_made_in_one_place(self) -> None:
        makers = {
            path.relative_to(PACKAGE).as_posix()
            for path in MODULES
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "TriggerEvent"
        }
        assert makers == {"triggers/_event.py"}


class TestLogs:
    """Errors of others are logged through `said`; those of this package have no secret."""

    OURS = {kind.__name__ for kind in _classes(IcebergError)} | {"NoAnswerError", "MovedError"}

    def test_every_module(self) -> None:
        found = [
            f"{path.relative_to(PACKAGE)}:{call.lineno}: {ast.unparse(call)}"
            for path in MODULES
            for call in self.unclean(ast.parse(path.read_text()))
        ]
        assert found == []

    def unclean(self, module: ast.Module) -> Iterator[ast.Call]:
        for handler in ast.walk(module):
            if not isinstance(handler, ast.ExceptHandler) or handler.name is None or self.is_ours(handler.type):
                continue
            for call in ast.walk(handler):
                is_log = isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[0] in ("log", "logging")
                if is_log and any(isinstance(each, ast.Name) and each.id == handler.name for each in call.args):
                    yield call

    def is_ours(self, kind: ast.expr | None) -> bool:
        kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
        return all(each is not None and ast.unparse(each).split(".")[-1] in self.OURS for each in kinds)

    def test_one_is_seen(self) -> None:
        text = (
            "try:\n    x()\nexcept (OSError, IcebergError) as e:\n    log.info('%s', e)\n    log.info('%s', said(e))\n"
        )
        assert len(list(self.unclean(ast.parse(text)))) == 1
        assert list(self.unclean(ast.parse(text.replace("OSError, ", "")))) == []


class TestALongMessage:
    """Its middle is left out: its last lines say what has happened."""

    def test_the_cause_is_in_its_end(self) -> None:
        error = IcebergError(f"it failed {'x ' * 50_000}\nCaused by: no heap\n{' at a.b.C' * 1_000}")
        assert str(error).startswith("it failed x")
        assert "Caused by: no heap" in str(error)
        assert len(str(error)) < 33_000

    def test_the_end_begins_with_no_secret(self) -> None:
        for before in (0, 1, 5, 9):
            text = f"{'x ' * 30_000}password: hunter22{' y' * 5_996}{'z' * before}"
            assert "hunter" not in str(IcebergError(text)), before
            assert "unter22" not in str(IcebergError(text)), before
