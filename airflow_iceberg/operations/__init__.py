"""What can be done to a table: a request gives a result. Plans, runs the job, commits, cleans up; one module each.

Importing this package imports no operation: `operations.append` is imported when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_iceberg.operations import (
        add_files,
        alter_table,
        append,
        create_table,
        delete,
        new_rows,
        overwrite,
        register_table,
    )
    from airflow_iceberg.operations.existing import migration, new_table
    from airflow_iceberg.operations.history import undo
    from airflow_iceberg.operations.refs import (
        branch,
        cherry_pick,
        fast_forward,
        publish_changes,
        rollback,
        set_current_snapshot,
        tag,
    )
    from airflow_iceberg.operations.row_level import merge, update

__all__ = [
    "add_files",
    "alter_table",
    "append",
    "branch",
    "cherry_pick",
    "create_table",
    "delete",
    "fast_forward",
    "merge",
    "migration",
    "new_rows",
    "new_table",
    "overwrite",
    "publish_changes",
    "register_table",
    "rollback",
    "set_current_snapshot",
    "tag",
    "undo",
    "update",
]
_FOLDERS = {
    **dict.fromkeys(("branch", "cherry_pick", "fast_forward", "publish_changes"), "refs"),
    **dict.fromkeys(("rollback", "set_current_snapshot", "tag"), "refs"),
    **dict.fromkeys(("migration", "new_table"), "existing"),
    "undo": "history",
    **dict.fromkeys(("merge", "update"), "row_level"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(".".join(filter(None, (__name__, _FOLDERS.get(name), name))))
