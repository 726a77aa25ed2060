"""The commands of `airflow iceberg` and their arguments; what they do is imported when one of them runs."""

from __future__ import annotations

from typing import Any

from airflow.cli.cli_config import (
    ARG_OUTPUT,
    ARG_VERBOSE,
    ARG_YES,
    ActionCommand,
    Arg,
    CLICommand,
    GroupCommand,
    lazy_load_command,
)


def _arg(*names: str, **options: Any) -> Arg:
    return Arg(names, **options)  # type: ignore[no-untyped-call]


_TABLE = _arg(
    "table", help="The namespace and name of the table, sales.orders; a level with a dot in backticks, 'sales.`x.t`'"
)
_CONNECTION = _arg(
    "--iceberg-conn-id",
    help="The id of the catalog's connection (default: iceberg_catalog_default)",
    default="iceberg_catalog_default",
)
_SPARK = _arg(
    "--spark-conn-id", help="The id of a Spark connection to look at (default: spark_default)", default="spark_default"
)
_BRANCH = _arg("--branch", help="Only the history of this branch or tag")
_AT = _arg("--at", help="A branch, a tag or a snapshot id (default: main)")
_LIMIT = _arg("--limit", help="The largest number of rows to show (default: 20)", type=int, default=20)
_DAG_ID = _arg("--dag-id", help="The id of the DAG")
_RUN_ID = _arg("--run-id", help="The id of the DAG run")
_TASK_ID = _arg("--task-id", help="The id of the task")
_MAP_INDEX = _arg("--map-index", help="The index of a mapped task", type=int)
_MAIN = _arg("--branch", help="The branch to change (default: main)", default="main")
_KEY = _arg("--operation-key", help="The operation key of a task, as the command runs prints it with -o json")
_DRY_RUN = _arg("--dry-run", help="Change nothing, and say what would be changed", action="store_true")
_LEFT = _arg("left", help="sales.orders, or sales.orders#<branch, tag or snapshot id>; with --table only the latter")
_RIGHT = _arg("right", help="The same of what it is compared with")
_OF_TABLE = _arg("--table", help="The table of which both are branches, tags or snapshot ids")
_KEYS = _arg("--key", help="The columns that identify a row, with commas between")
_COMMON = (_CONNECTION, ARG_OUTPUT, ARG_VERBOSE)


def _command(name: str, text: str, *args: Arg, module: str = "show") -> ActionCommand:
    function = lazy_load_command(f"airflow_iceberg.cli.{module}.{name}")
    return ActionCommand(name=name, help=text, func=function, args=(*args, *_COMMON))


def get_iceberg_commands() -> list[CLICommand]:
    """Return the commands; Airflow calls this when its command line is parsed."""
    commands = (
        _command("show", "Show a table: location, format, schema, partitions, size, properties", _TABLE),
        _command("snapshots", "List the snapshots of a table, newest first", _TABLE, _BRANCH, _LIMIT),
        _command("refs", "List the branches and tags of a table", _TABLE),
        _command("files", "List the data and delete files of a table", _TABLE, _AT, _LIMIT),
        _command(
            "runs",
            "Show which DAG run, task and try made which snapshot, newest first",
            *(_TABLE, _DAG_ID, _RUN_ID, _TASK_ID, _BRANCH, _LIMIT),
        ),
        _command(
            "diff",
            "Compare two snapshots, branches or tables: schema, properties, partitions and rows",
            *(_LEFT, _RIGHT, _OF_TABLE, _KEYS, _LIMIT),
            module="history",
        ),
        _command(
            "undo",
            "Take back what a DAG run or a task has changed, or say with --dry-run what that would be",
            *(_TABLE, _KEY, _DAG_ID, _RUN_ID, _TASK_ID, _MAP_INDEX, _MAIN, _DRY_RUN, ARG_YES),
            module="history",
        ),
        _command(
            "doctor",
            "Test the connection, the store, Spark and Java, and show the versions",
            _SPARK,
            module="doctor",
        ),
    )
    return [GroupCommand(name="iceberg", help="Look into Apache Iceberg tables", subcommands=commands)]
