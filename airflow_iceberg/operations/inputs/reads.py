"""What of a table's changes is read: a digest, which a watermark holds.

A watermark says up to which snapshot changes were read, and the next run begins after it. If that run reads others of
them, with another filter, then those before the watermark that only it would have read are never read, or read twice by
the one that had read them. So the next run has to read the same:

- the rows that the filter selects, with the values of its placeholders; columns count by their field ids
- the kind of the changes, `mode`
- of a changelog the columns, since a row of which no selected column has changed is no change

Not here: the query, which may do with the rows whatever it likes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from airflow_iceberg.commit.runs.consumed import WAYS_OUT, Range
from airflow_iceberg.errors import IncompatibleChangeError
from airflow_iceberg.expressions.json import expression_to_json
from airflow_iceberg.expressions.tree import Expression
from airflow_iceberg.jobs.protocol.pinned import PinnedChanges


def reads_of(changes: PinnedChanges, row_filter: Expression, fields: Sequence[str]) -> str:
    """Return a digest of what is read.

    Args:
        row_filter: the predicate, bound to the columns of the table.
        fields: the names of the columns.
    """
    columns = sorted(set(fields)) if changes.mode == "changelog" else []
    text = json.dumps([changes.mode, columns, _plain(expression_to_json(row_filter))], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(document: Any) -> Any:
    """Return a predicate without what may differ although it selects the same: names of columns, and an order."""
    if not isinstance(document, dict):
        return document
    plain = {name: _plain(value) for name, value in document.items()}
    if isinstance(document.get("column"), dict) and document["column"].get("id") is not None:
        plain["column"] = document["column"]["id"]
    if "of" in document:
        plain["of"] = sorted((_plain(one) for one in document["of"]), key=json.dumps)
    if document.get("is") in ("in", "not-in"):
        plain["literals"] = sorted(document["literals"], key=json.dumps)
    return plain


def check_same_reads(changes: PinnedChanges, known: Range | None) -> None:
    """Check that what is read after a watermark was read before it.

    Raises:
        IncompatibleChangeError: something else was.
    """
    if known is None or known.reads == changes.reads:
        return
    raise IncompatibleChangeError(
        f"what is read of the changes is not what was read up to snapshot {known.to_snapshot_id}: row_filter, its "
        f"parameters, mode, or the columns of a changelog have changed, so that rows would be left out or read twice; "
        f"nothing was committed; take back what was changed, give each filter of a mapped task a consumer of its own, "
        f"or {WAYS_OUT}: since={known.to_snapshot_id} goes on, without the rows that were left out before"
    )
