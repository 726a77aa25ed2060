"""Applications that run while no worker waits for them: how somebody else asks for their state, and ends them.

Whoever has submitted one leaves a reference, JSON without secrets, by which any process reaches it; the triggerer does.
Here: one class for each kind of cluster that can be asked from outside. Not here: submitting (`backends.spark_submit`),
waiting (`triggers.job`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from airflow_iceberg.backends.yarn import ResourceManager
from airflow_iceberg.errors import InvalidInputError

YARN = "yarn"
# YARN forgets applications that ended long ago, and a resource manager may know one only a moment after it has started.
_LOOKS_FOR_UNKNOWN = 3
# The trigger asks again after a while: it does not wait in one of the triggerer's threads.
_PATIENCE_S = 5.0
# A triggerer gives the end of an application half a minute.
_END_S = 20.0


class Followed(Protocol):
    """An application that was submitted."""

    def look(self) -> str | None:
        """Return how it ended, for messages; None while it runs or waits for its turn.

        Raises:
            IcebergError: no answer, or a refusal.
        """

    def end(self) -> None:
        """End it, and wait until it has ended; safe to be repeated; errors as of `look`."""


class YarnApplication:
    """An application on YARN."""

    def __init__(self, manager: ResourceManager, application_id: str) -> None:
        self._manager = manager
        self._id = application_id
        self._unknown = 0

    def look(self) -> str | None:
        found = self._manager.state(self._id, patience_s=_PATIENCE_S)
        if found is None:
            self._unknown += 1
            return f"YARN does not know {self._id} (any more)" if self._unknown >= _LOOKS_FOR_UNKNOWN else None
        if found.is_running:
            return None
        why = f": {found.diagnostics}" if found.diagnostics else ""
        return f"{self._id} ended on YARN with state {found.state} and final status {found.final_status}{why}"

    def end(self) -> None:
        self._manager.end([self._id], patience_s=_END_S)


def yarn_reference(manager: ResourceManager, application_id: str) -> dict[str, Any]:
    """Return the reference of an application on YARN."""
    return {"kind": YARN, "application_id": application_id, **manager.to_dict()}


def follow(reference: Mapping[str, Any]) -> Followed:
    """Return the application of a reference.

    Raises:
        InvalidInputError: a reference of another version.
    """
    kind = reference.get("kind")
    if kind not in _KINDS:
        raise InvalidInputError(f"a job of kind {kind!r} cannot be followed, expected one of {', '.join(_KINDS)}")
    return _KINDS[kind](reference)


def _yarn(reference: Mapping[str, Any]) -> Followed:
    return YarnApplication(ResourceManager.from_dict(reference), str(reference["application_id"]))


_KINDS: Mapping[Any, Callable[[Mapping[str, Any]], Followed]] = {YARN: _yarn}
