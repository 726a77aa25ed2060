"""Tables as assets of Airflow: their URIs, and the events of what tasks commit to them.

`iceberg://<connection id>/<namespace>/<table>` gets an event for each commit that changes the rows of main. The same
with `?event=maintenance` gets those of compactions and expiries and of changes of the table itself, and with
`?branch=audit` those of another branch: neither starts a DAG that waits for rows. Not here: what was committed
(`operations.reports`), lineage (`lineage`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.definitions.asset import AssetRef, AssetUriRef

from airflow_iceberg.catalogs.names import join_levels, split_levels
from airflow_iceberg.errors import InvalidInputError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_iceberg.commit.open_table import OpenTable
    from airflow_iceberg.commit.write_result import OperationResult
    from airflow_iceberg.operations.reports.commit import CommitReport

SCHEME = "iceberg"
DEFAULT_CONN_ID = "iceberg_catalog_default"
MAIN = "main"
_MAINTENANCE = ("event", "maintenance")
MAX_PARTITION_EVENTS = 100
"""How many of the partitions that a commit has touched have an event."""
PARTITION_KEYS = ("path", "value")
_EXPECTED = "expected iceberg://<connection id>/<namespace>/<table>, with each part URL-encoded"


def asset_uri(
    table: str, iceberg_conn_id: str = DEFAULT_CONN_ID, *, maintenance: bool = False, branch: str = MAIN
) -> str:
    """Return the URI of a table's asset: `iceberg://iceberg_catalog_default/sales/orders`.

    Args:
        table: the namespace and name of the table, `sales.orders`; each level is one part of the URI's path.
        iceberg_conn_id: the id of the catalog's connection; another connection to the same catalog gives another asset.
        maintenance: the asset of what changes no rows: compaction, expiry, a new column.
        branch: the branch of the table whose commits the asset is about.

    Raises:
        ValueError: not a namespace and a name.
    """
    parts = split_levels(table)
    if len(parts) < 2 or not all(part.strip() for part in parts) or not iceberg_conn_id.strip():
        raise ValueError(f"table {table!r} of connection {iceberg_conn_id!r} has no asset, expected 'namespace.table'")
    path = "/".join(quote(part, safe="") for part in parts)
    # In this order: Airflow sorts them.
    query = urlencode([*([("branch", branch)] if branch != MAIN else []), *([_MAINTENANCE] if maintenance else [])])
    return f"{SCHEME}://{quote(iceberg_conn_id, safe='')}/{path}" + (f"?{query}" if query else "")


def iceberg_asset(
    table: str,
    iceberg_conn_id: str = DEFAULT_CONN_ID,
    *,
    maintenance: bool = False,
    branch: str = MAIN,
    extra: Mapping[str, Any] | None = None,
    **more: Any,
) -> Asset:
    """Return a table's asset, for the schedule of a DAG: `schedule=[iceberg_asset("sales.orders")]`.

    It is the same asset that tasks with this table and connection have as outlet. Its name is its URI: an asset with
    another name and the same URI would be a conflict, which Airflow refuses.

    Args:
        table, iceberg_conn_id, maintenance, branch: as of `asset_uri`.
        extra: the asset's own extra.
        more: other arguments of `Asset`, such as watchers.

    Raises:
        ValueError: not a namespace and a name.
    """
    uri = asset_uri(table, iceberg_conn_id, maintenance=maintenance, branch=branch)
    return Asset(name=uri, uri=uri, extra=dict(extra or {}), **more)


def table_of_uri(uri: str) -> tuple[str, str]:
    """Return the connection id and the table of an asset's URI.

    Args:
        uri: `iceberg://<connection>/<namespace>/<table>`.

    Raises:
        ValueError: not the URI of a table.
    """
    parts = urlsplit(uri)
    path = [unquote(part) for part in parts.path.strip("/").split("/")]
    if parts.scheme != SCHEME or not parts.netloc or len(path) < 2 or not all(path):
        raise ValueError(f"{uri!r} is not the URI of a table: {_EXPECTED}")
    return unquote(parts.netloc), join_levels(path)


def sanitize_uri(parts: SplitResult) -> SplitResult:
    """Return the URI of a table's asset in its one form; Airflow calls this for each `iceberg://` URI.

    Raises:
        ValueError: not the URI of a table.
    """
    conn_id, table = table_of_uri(parts.geturl())
    given = parse_qsl(parts.query)
    query = dict(given)
    branch, event = query.pop("branch", MAIN), query.pop("event", None)
    if query or event not in (None, _MAINTENANCE[1]) or len(given) > len({name for name, _ in given}):
        raise ValueError(
            f"{parts.geturl()!r} has the query {parts.query!r}, expected none, 'branch=<name>', "
            f"'event=maintenance', or both"
        )
    return urlsplit(asset_uri(table, conn_id, maintenance=event is not None, branch=branch))


# -- the assets of a task ----------------------------------------------------------------------------------------------


def asset_of(
    table: object, iceberg_conn_id: object, *, maintenance: bool = False, branch: object = MAIN
) -> Asset | None:
    """Return the asset of a task's table; None if a template or another task will name it, or if it is wrong."""
    if not all(is_named(given) for given in (table, iceberg_conn_id, branch)):
        return None
    try:
        return iceberg_asset(str(table), str(iceberg_conn_id), maintenance=maintenance, branch=str(branch))
    except ValueError:
        # The task will say what is wrong; parsing a DAG must not.
        return None


def is_named(given: object) -> bool:
    """Tell whether an argument is a name, and no template or value of another task that will give one."""
    return isinstance(given, str) and "{{" not in given and "{%" not in given


def with_asset(known: Sequence[Any], asset: Asset | None) -> list[Any]:
    """Return the inlets or outlets of a task with an asset, unless its author has given the same one."""
    return list(known) if asset is None or _same(known, asset) is not None else [*known, asset]


def input_assets(inputs: object, iceberg_conn_id: object) -> Iterable[Asset]:
    """Yield the assets of the tables that a task reads, as far as they are known when its DAG is parsed."""
    for given in inputs.values() if isinstance(inputs, Mapping) else ():
        fields = given if isinstance(given, Mapping) else {"table": given} if isinstance(given, str) else None
        named = fields.get if fields is not None else lambda name, one=given: getattr(one, name, None)
        asset = asset_of(named("table"), named("iceberg_conn_id") or iceberg_conn_id)
        if asset is not None:
            yield asset


def _same(known: Sequence[Any], asset: Asset) -> Any:
    return next((one for one in known if _is(one, asset)), None)


def _is(outlet: Any, asset: Asset) -> bool:
    return isinstance(outlet, Asset | AssetUriRef) and outlet.uri == asset.uri


def declare_asset(operator: Any) -> Asset | None:
    """Give a task the asset that it tells of its commits as outlet; return it if the author has not given the same."""
    operator.names_branch = is_named(operator.told_branch())
    own, known = own_asset(operator), operator.outlets
    operator.outlets = with_asset(known, own)
    return own if len(operator.outlets) > len(known) else None


def own_asset(operator: Any) -> Asset | None:
    """Return the asset that a task tells of its commits; None if a template names it, or nobody is to be told.

    A branch that a template names has none: each run would leave one in Airflow's database.
    """
    branch, is_maintenance = operator.told_branch(), not operator.changes_rows()
    if not operator.asset_events or (branch != MAIN and not operator.names_branch):
        return None
    return asset_of(operator.table, operator.iceberg_conn_id, maintenance=is_maintenance, branch=branch)


def verb_of(operator: Any) -> str:
    """Return the word for what a task does: `set_current_snapshot` of an `IcebergSetCurrentSnapshotOperator`.

    A class that the author of a DAG, or a decorator, derives from an operator does the same.
    """
    for kind in type(operator).__mro__:
        named = re.fullmatch(r"Iceberg(\w+)Operator", kind.__name__)
        if named and kind.__module__.startswith("airflow_iceberg."):
            return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", named[1]).lower()
    return type(operator).__module__.rpartition(".")[2]


# -- the events of a task ----------------------------------------------------------------------------------------------


def check_partition_keys(given: object) -> None:
    """Check what the partitions are to be called; raises InvalidInputError."""
    if given not in PARTITION_KEYS:
        raise InvalidInputError(f"unknown partition_keys {given!r}; one of {', '.join(PARTITION_KEYS)}")


def tell_assets(operator: Any, context: Context, result: OperationResult, opened: Callable[[], OpenTable]) -> None:
    """Let Airflow make the events of a task when it has succeeded.

    Those of the table's asset tell what was committed, in whichever try; those of other outlets have the task's result,
    except aliases, which name no asset by themselves.

    Args:
        operator: a `TableOperator`.
        opened: returns the table, after the commit.
    """
    from airflow.sdk.execution_time.context import OutletEventAccessors

    given, own, ours = list(operator.outlets or ()), own_asset(operator), _assets_of(operator)
    for outlet in given:
        if isinstance(outlet, Asset | AssetRef) and not any(_is(outlet, asset) for asset in ours):
            context["outlet_events"][outlet].extra.update(result.to_xcom())
    added = operator.added_asset  # in `given`, but not by the author
    told = [asset for asset in ours if asset == own or (asset != added and _same(given, asset) is not None)]
    if added not in (None, own):
        _without_event(operator, added)
    if not told or not isinstance(context.get("outlet_events"), OutletEventAccessors):
        return  # no task of Airflow's has events elsewhere
    report = _report(operator, result, opened)
    for asset in told:
        if report is None:
            _without_event(operator, asset)
        else:
            keys = report.partitions.values if operator.partition_keys == "value" else report.partitions.names
            _add_event(operator, context, asset, report.to_event(), keys)


def _assets_of(operator: Any) -> list[Asset]:
    """Return all assets of a task's table that may be told of it: the author may have given the task another one."""
    branches, kinds = dict.fromkeys((MAIN, operator.told_branch())), (False, True)
    found = (
        asset_of(operator.table, operator.iceberg_conn_id, maintenance=kind, branch=branch)
        for branch in branches
        for kind in kinds
    )
    return [asset for asset in found if asset is not None]


def _report(operator: Any, result: OperationResult, opened: Callable[[], OpenTable]) -> CommitReport | None:
    from airflow_iceberg.operations.reports.commit import NO_COMMIT, CommitReport

    if result.outcome in NO_COMMIT:
        return None
    report = CommitReport.of(
        opened(),
        result,
        verb=verb_of(operator),
        most_partitions=MAX_PARTITION_EVENTS,
        is_move=operator.changes_rows(),
    )
    _warn_of_cut(operator, report)
    return report


def _warn_of_cut(operator: Any, report: CommitReport) -> None:
    touched = report.partitions
    if touched.count > len(touched.names):
        operator.log.warning(
            "%s: the commit touched %d partitions, and only the first %d have events; DAGs that run once per partition "
            "do not run for the others",
            *(report.result.table, touched.count, len(touched.names)),
        )


def tell_write(
    context: Context,
    table: OpenTable,
    result: OperationResult,
    *,
    iceberg_conn_id: str,
    verb: str,
    partition_keys: str,
    is_maintenance: bool = False,
    told: dict[str, Sequence[str]] | None = None,
) -> None:
    """Let Airflow make the events of a write that a function of a DAG file has made; those of several add up.

    Args:
        told: the fields of the event of the task's write before, by the asset's URI; replaced by those of this one.
    """
    from airflow.sdk.execution_time.context import OutletEventAccessors

    from airflow_iceberg.operations.reports.commit import NO_COMMIT, CommitReport

    branch = MAIN if is_maintenance else getattr(result, "branch", getattr(result, "ref", MAIN))
    asset = asset_of(table.name, iceberg_conn_id, maintenance=is_maintenance, branch=branch)
    is_told = isinstance(context.get("outlet_events"), OutletEventAccessors) and result.outcome not in NO_COMMIT
    if asset is None or not is_told:
        return
    if "?" in asset.uri and _same(context["task"].outlets or (), asset) is None:
        return  # of another branch than main, which may have another name in each run; or of maintenance
    is_move = not is_maintenance
    report = CommitReport.of(table, result, verb=verb, most_partitions=MAX_PARTITION_EVENTS, is_move=is_move)
    _warn_of_cut(context["task"], report)
    keys = report.partitions.values if partition_keys == "value" else report.partitions.names
    event, fields = report.to_event(), {} if told is None else told
    extra = context["outlet_events"][_same(context["task"].outlets or (), asset) or asset].extra
    for name in fields.get(asset.uri, ()):  # what this write does not say is not true of it
        extra.pop(name, None)
    fields[asset.uri] = tuple(event)
    _add_event(context["task"], context, asset, event, keys)


def _without_event(operator: Any, asset: Asset) -> None:
    """Let no event tell of a task that has committed nothing: without its outlet Airflow makes none."""
    operator.outlets = [one for one in operator.outlets if not _is(one, asset)]


def _add_event(
    operator: Any, context: Context, asset: Asset, event: Mapping[str, Any], partition_keys: Sequence[str]
) -> None:
    """Let Airflow make the events of a commit when the task has succeeded.

    Events with a partition key start DAGs with a `PartitionedAssetTimetable`, once for each key, and no others; an
    event without one starts all others. So a commit that touched partitions has both. What no DAG file declares (a
    table whose name comes from a template) becomes an asset by the way of an alias, which has no partitions.
    """
    events: Any = context["outlet_events"]
    outlet = _same(operator.outlets, asset) or asset
    declared = _is_declared(operator, asset)
    if not hasattr(events[outlet], "add_partitions"):
        partition_keys = ()  # before Airflow 3.3
    if partition_keys:
        events[outlet].add_partitions(list(partition_keys))
    if partition_keys or declared:
        events[outlet].extra.update(event)
        operator.outlets = with_asset(operator.outlets, asset)
    else:
        _without_event(operator, asset)
    # A run with a partition key of its own hands it to each event without one.
    has_key = getattr(context.get("dag_run"), "partition_key", None) is not None
    if (partition_keys and not has_key) or not (partition_keys or declared):
        alias = AssetAlias(asset.uri)
        events[alias].add(outlet, extra=dict(event))
        operator.outlets = [*operator.outlets, alias]


def _is_declared(operator: Any, asset: Asset) -> bool:
    """Whether the DAG file, as Airflow knows it, has the asset as an outlet of the task."""
    if not operator.has_dag():
        return False
    return _same(operator.dag.get_task(operator.task_id).outlets or (), asset) is not None
