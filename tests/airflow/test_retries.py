"""Which errors are retried and when, and what the log of a failed task says first."""

from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    FormatError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
    StalePlanError,
    StorageError,
    UnsupportedError,
    advised,
)
from airflow_iceberg.retries import IcebergRetryPolicy, advice, airflow_failures, to_airflow
from tests.support.airflow_versions import RetryAction, needs_policies


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


REFUSED = caused(StorageError("no access to s3://b/x"), PermissionError("403"))
FINAL = [
    InvalidInputError("bad"), NotFoundError("no table"), FormatError("broken"), UnsupportedError("not yet"),
    IncompatibleChangeError("superseded"), CommitUnknownError("lost", is_final=True), REFUSED,
]  # fmt: skip
AGAIN = [CommitConflictError("lost race"), StalePlanError("stale"), CommitUnknownError("?"), StorageError("away")]


class TestWhatFailsAtOnce:
    """What no retry can mend is not tried again, with a policy and without."""

    @pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
    def test_without_a_policy(self, error):
        assert type(to_airflow(error)) is AirflowFailException

    @needs_policies
    @pytest.mark.parametrize("error", [*FINAL, ModuleNotFoundError("No module named 's3fs'"), PermissionError("/x")])
    def test_with_a_policy(self, error):
        wrapped = caused(AirflowException("the task failed"), error)
        for raised in (error, wrapped):
            decision = IcebergRetryPolicy().evaluate(raised, 1, 3)
            assert (decision.action, decision.reason) == (RetryAction.FAIL, f"no retry helps: {error}")

    def test_what_to_do_about_an_outcome_that_no_retry_tells(self):
        error = CommitUnknownError("lost", is_final=True)
        assert advice(error).startswith("look in the table whether the rows are there, since nothing else can tell; ")
        told = advised(CommitUnknownError("it has format version 2, asked was 3", is_final=True), "look at the table")
        assert advice(told) == "look at the table; then mark the task as successful, or clear it"

    def test_a_denial_that_another_error_tells_of(self):
        denied = StorageError("no access to s3://b/y")
        denied.is_denied = True
        assert type(to_airflow(caused(StorageError("cannot delete 3 files"), denied))) is AirflowFailException


class TestWhatIsTriedAgain:
    """A lost race soon and at random, an unknown outcome after a while, all else as the task says."""

    @pytest.mark.parametrize("error", AGAIN, ids=lambda error: type(error).__name__)
    def test_without_a_policy(self, error):
        assert type(to_airflow(error)) is AirflowException

    @needs_policies
    @pytest.mark.parametrize("error", AGAIN[:2])
    def test_writers_who_met_do_not_meet_again(self, error):
        policy = IcebergRetryPolicy(conflict_delay=timedelta(seconds=4), most_delay=timedelta(seconds=60))
        for try_number, longest in ((1, 4), (2, 8), (3, 16), (9, 60), (5000, 60)):
            decisions = [policy.evaluate(to_airflow_with_cause(error), try_number, 5001) for _ in range(50)]
            assert {decision.action for decision in decisions} == {RetryAction.RETRY}
            delays = [decision.retry_delay.total_seconds() for decision in decisions]
            assert longest / 2 <= min(delays) < max(delays) <= longest

    @needs_policies
    def test_an_unknown_outcome(self):
        policy = IcebergRetryPolicy(unknown_delay=timedelta(seconds=7))
        decision = policy.evaluate(CommitUnknownError("no answer"), 1, 3)
        assert (decision.action, decision.retry_delay) == (RetryAction.RETRY, timedelta(seconds=7))
        assert decision.reason == "the next try looks for the commit first: no answer"

    @needs_policies
    @pytest.mark.parametrize("error", [StorageError("away"), IcebergError("killed"), ValueError("of another package")])
    def test_all_else(self, error):
        assert IcebergRetryPolicy().evaluate(error, 1, 3).action is RetryAction.DEFAULT

    @needs_policies
    def test_a_cause_that_is_its_own_cause_ends(self):
        one, two = ValueError("one"), ValueError("two")
        one.__cause__, two.__cause__ = two, one
        assert IcebergRetryPolicy().evaluate(one, 1, 3).action is RetryAction.DEFAULT

    @needs_policies
    def test_it_can_be_written_down(self):
        policy = IcebergRetryPolicy(conflict_delay=timedelta(seconds=1))
        assert IcebergRetryPolicy.deserialize(policy.serialize()).serialize() == policy.serialize()


def to_airflow_with_cause(error: IcebergError) -> Any:
    return caused(to_airflow(error), error)


class TestTheLogOfAFailedTask:
    """Its first line says what happened, the second one what to do."""

    @pytest.mark.parametrize("error", [*FINAL, *AGAIN, IcebergError("the job was killed")])
    def test_two_lines(self, error, caplog):
        with pytest.raises(AirflowException), airflow_failures():
            raise error
        what, to_do = caplog.messages
        assert what == f"what happened: {error}"
        assert to_do.startswith("what to do: ")
        tells_of_a_clear = "clear" in to_do
        assert tells_of_a_clear == (type(to_airflow(error)) is AirflowFailException)

    def test_no_two_kinds_say_the_same(self, caplog):
        for error in (*FINAL, *AGAIN):
            with pytest.raises(AirflowException), airflow_failures():
                raise error
        assert len(set(caplog.messages[1::2])) == len([*FINAL, *AGAIN])
