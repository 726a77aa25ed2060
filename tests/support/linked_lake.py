"""A local warehouse with the tables `db.t` and `db.victim` in any catalog, and an attacker who links and respells.

The folder `foreign` beside the warehouse has the same names and files, so that each path that leads there is found.
"""

import json
import os
import shutil
import uuid
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.inventory.manifests import read_entries, read_manifests
from airflow_iceberg.storage import load_file_io
from airflow_iceberg.storage.stores.store import parse_location
from airflow_iceberg.table import Table
from tests.support.builders import age, reachable
from tests.support.gate_verbs import ENDS, EXPIRES, OPERATIONS, ROWS, Spot
from tests.support.kernel_watch import KernelWatch
from tests.support.local_calls import ForeignCallError, LocalCalls, content
from tests.support.memory import MemoryCatalog
from tests.support.recording import commit_foreign_file, forged
from tests.support.rest_stand_in import RestStandIn

KEY = OperationKey(dag_id="dag", run_id="run", task_id="task")
PROPERTIES = {
    "format-version": "2",
    "gc.enabled": "true",
    "write.delete.mode": "merge-on-read",
    "commit.retry.num-retries": "1",
    "commit.retry.min-wait-ms": "1",
    "commit.status-check.num-retries": "1",
    "commit.status-check.min-wait-ms": "1",
    "commit.status-check.max-wait-ms": "1",
}

# How a folder is spelled, from the folder that holds it, its links and its real name.
SPELLINGS = (
    "{}",
    "file:{}",
    "file://{}",
    "FILE://{}",
    "file://localhost{}",
    "FILE://LOCALHOST{}",
    "{}/",
    "{}//",
    "{}/.",
    "/.{}",
    "//{}",
    "file://{}/./",
    "{}/x/..",
    "{}/../t",
    "{}/%2e%2e/t",
    "{}/%2e",
    "file://{}/%2e%2e/%2e%2e/db/t",
    "{}/data/../../t",
)
THROUGH = ("warehouse", "lake", "outer/warehouse")
LINKED = (
    "namespace", "table", "metadata", "data", "data/day=a", ".staging", ".quarantine", "current metadata",
    "a manifest", "a data file",
)  # fmt: skip
FORGED = (
    "location", "write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path",
    "manifest list", "data file", "statistics", "metadata log",
)  # fmt: skip
# How a namespace is forged whose table names the files of `db.t`: its location, or its name, which is a table's or that
# of a folder of a partition. The last one is a table of others in such a namespace, whose files `db.t` names.
SPACES = ("location", "name", "name=value", "below")
# Where a forged location leads: the foreign folder, a link to it below the table, the table's own folder, and a link
# below the table to its own folder; the other table's folder, and a folder outside with links into the middle of it.
TARGETS = ("foreign", "a link to foreign", "own", "a link to own", "victim", "links into victim")


@dataclass(frozen=True)
class Attack:
    """What an attacker does; see the lists above.

    Attributes:
        linked: what becomes a link to its namesake in the foreign folder; None for nothing.
        forged: what metadata says anew; None for nothing.
        space: how a namespace is forged; None for none. With "below" it is `db.t` with which something is done.
        target, spelling, through: where to, and how that is written.
    """

    linked: str | None = None
    forged: str | None = None
    space: str | None = None
    target: str = "own"
    spelling: str = "{}"
    through: str = "warehouse"

    @property
    def is_honest(self) -> bool:
        """Whether the metadata still leads to the same files, so that all of them are in use."""
        if self.space is not None:
            return False
        return self.linked is None and (self.forged is None or self.target in ("own", "a link to own"))


# -- the lake ----------------------------------------------------------------------------------------------------------


class Lake:
    """See above.

    Args:
        home: a folder that is made.
        properties: of the catalog, but for its warehouse; the types `memory` and `stand-in` are this package's tests'.

    Attributes:
        is_served_here: whether the catalog's server itself reads and writes the files of tables, and follows links:
            then only the calls of this process count.
    """

    def __init__(self, home: Path, properties: dict[str, str]) -> None:
        self.home, self.properties = home, properties
        self._spaces: list[tuple[str, ...]] = []
        self._evil: Path | None = None
        self._inner: Path | None = None
        self.warehouse, self.foreign = home / "warehouse", home / "foreign"
        self.kind = properties["type"]
        self.is_served_here = self.kind == "rest"
        self.warehouse.mkdir(parents=True, exist_ok=True)
        self.server = RestStandIn() if self.kind == "stand-in" else None
        builder = {"type": "memory"} if self.server else properties
        self._memory = MemoryCatalog(io=load_file_io(), warehouse=self.warehouse.as_uri(), namespaces=())
        catalog = self.opened("file://{}", builder=builder)
        catalog.create_namespace("db")
        table, self.victim = (
            Table.create(
                catalog, name, schema={"id": "long", "day": "string"}, partition_by=["day"], properties=PROPERTIES
            )
            for name in ("db.t", "db.victim")
        )
        for _ in range(2):
            table.append(ROWS, operation_key=KEY if table.metadata.snapshots else None)
            self.victim.append(ROWS)
        table.append(ROWS, branch="audit", create_branch=True)
        self.folder = Path(_plain(table.location))
        for name in ("data/day=a/orphan.parquet", ".staging/old/plan.json"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
        age(self.warehouse)
        self.state = table.catalog.load("db.t")
        self.documents = {
            str(each.identifier): (each.metadata_location, metadata_json.to_dict(each.metadata))
            for each in (table, self.victim.refresh())
        }
        self.live = {_plain(path) for path in reachable(table)}
        self.live_now = {_plain(path) for path in _reachable_now(table)}
        shutil.copytree(self.warehouse, self.foreign)
        shutil.copytree(self.warehouse, home / "backup")
        (home / "lake").symlink_to(self.warehouse)
        (home / "outer").symlink_to(home)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()

    def opened(self, spelling: str, through: str = "warehouse", builder: dict[str, str] | None = None) -> Any:
        """Return a new catalog; the spelling is that of its warehouse."""
        warehouse = spelling.format(f"{self.home}/{through}")
        given = builder or self.properties
        if given["type"] == "memory":
            catalog = MemoryCatalog(io=load_file_io(), warehouse=warehouse, namespaces=())
            catalog._pointers, catalog._properties = self._memory._pointers, self._memory._properties
            return catalog
        if given["type"] == "stand-in":
            assert self.server is not None
            return load_catalog("prod", type="rest", uri=self.server.uri, warehouse=warehouse)
        return load_catalog("prod", **{**given, "warehouse": warehouse})

    def reset(self) -> None:
        """Undo what the last attack and operation have done."""
        self._forget_spaces()
        shutil.rmtree(self.warehouse)
        shutil.copytree(self.home / "backup", self.warehouse)
        shutil.rmtree(self.home / "aside", ignore_errors=True)
        shutil.rmtree(self.home / "into", ignore_errors=True)
        if self.server is not None:
            self.server.tables = dict(self.documents)
        elif self.kind != "hadoop":
            self._point_to(self.state.metadata_location)

    def _point_to(self, location: str) -> None:
        catalog = self.opened("file://{}")
        for table in catalog.list_tables("db"):
            if table.name != "victim":
                with suppress(IcebergError):
                    catalog.drop_table(table)
        metadata = metadata_json.read(load_file_io().read(location), path=location)
        self._swap(catalog, TableId.of("db.t"), location, metadata)

    def _swap(self, catalog: Any, table: TableId, location: str, metadata: TableMetadata) -> None:
        """Let a catalog know a table, as other programs do: without the checks that are ours."""
        if self.kind == "rest":
            space = catalog._server.config.namespace_text(table.namespace)
            address = f"{self.properties['uri']}/v1/namespaces/{space}/register"
            requests.post(address, json={"name": table.name, "metadata-location": location}, timeout=30)
        else:
            catalog.swap_metadata(table, base=None, new=location, metadata=metadata)

    # -- attacks -------------------------------------------------------------------------------------------------------

    def carry_out(self, attack: Attack) -> tuple[str, Spot]:
        """Return the name of the table to do something with, and where the attacker likes it to look."""
        place = self._place(attack)
        spot = Spot(location=place, names=_names_below(_real(place)))
        name = "db.t" if attack.space is None else self._make_space(attack.space, place)
        if attack.forged is not None:
            self._forge(attack.forged, place)
        if attack.linked is not None:
            self._link(self._path_of(attack.linked))
        return name, spot

    def _place(self, attack: Attack) -> str:
        below = self.folder.relative_to(self.warehouse)
        name = f"{attack.through}/{below}"
        if attack.target == "foreign":
            name = f"{attack.through.replace('warehouse', 'foreign').replace('lake', 'foreign')}/{below}"
        elif attack.target == "victim":
            name = f"{attack.through}/{Path(_plain(self.victim.location)).relative_to(self.warehouse)}"
        elif attack.target == "links into victim":
            (self.home / "into").mkdir()
            for inner in ("data", "metadata", "in"):
                place = Path(_plain(self.victim.location)) / ("data" if inner == "in" else inner)
                (self.home / "into" / inner).symlink_to(place)
            name = "into/in" if attack.forged == "location" else "into"
        elif attack.target.startswith("a link"):
            (self.folder / "in").symlink_to(self.folder if "own" in attack.target else self.foreign / below)
            name = f"{name}/in"
        return attack.spelling.format(f"{self.home}/{name}")

    def _path_of(self, linked: str) -> Path:
        folder = self.folder
        name = self.state.metadata_location.rpartition("/")[2]
        files = [path for path in sorted((folder / "data").rglob("*.parquet")) if "orphan" not in path.name]
        singles = {
            "current metadata": folder / "metadata" / name,
            "a manifest": next(iter(sorted((folder / "metadata").glob("*-m*.avro"))), folder / "metadata" / name),
            "a data file": files[0],
        }
        return {"namespace": folder.parent, "table": folder, **singles}.get(linked, folder / linked)

    def _link(self, place: Path) -> None:
        (self.home / "aside").mkdir()
        if place.exists():
            place.rename(self.home / "aside" / place.name)
        place.symlink_to(self.foreign / place.relative_to(self.warehouse))

    def _forge(self, what: str, place: str) -> None:
        if what == "data file":
            name = str(self._path_of("a data file").relative_to(self.folder))
            with suppress(IcebergError):
                commit_foreign_file(self.opened("file://{}"), "db.t", f"{place}/{name}")
            return

        def change(document: dict[str, Any]) -> None:
            def respelled(path: str) -> str:
                return f"{place}/metadata/{path.rpartition('/')[2]}"

            if what == "location":
                document["location"] = place
            elif what.startswith("write."):
                document["properties"][what] = f"{place}/{'metadata' if 'metadata' in what else 'data'}"
                document["properties"]["write.object-storage.enabled"] = "true" if "object" in what else "false"
            elif what == "manifest list":
                last = document["snapshots"][-1]
                last["manifest-list"] = respelled(last["manifest-list"])
            elif what == "statistics":
                snapshot, path = document["snapshots"][0]["snapshot-id"], respelled(self.state.metadata_location)
                entry = {"snapshot-id": snapshot, "statistics-path": path, "file-size-in-bytes": 1}
                document["statistics"] = [{**entry, "file-footer-size-in-bytes": 1, "blob-metadata": []}]
                document["partition-statistics"] = [entry]
            else:
                document["metadata-log"] = [
                    {**each, "metadata-file": respelled(each["metadata-file"])} for each in document["metadata-log"]
                ]
                document["properties"] |= {
                    "write.metadata.delete-after-commit.enabled": "true",
                    "write.metadata.previous-versions-max": "1",
                }

        folder, _, name = self.state.metadata_location.rpartition("/")
        new = f"v{int(name[1:].partition('.')[0]) + 1}" if self.kind == "hadoop" else "00099-forged"
        new = f"{folder}/{new}.metadata.json"
        load_file_io().create(new, forged(self.state.metadata, change))
        if self.server is not None:
            document = metadata_json.to_dict(self.state.metadata)
            change(document)
            self.server.tables["db.t"] = (new, document)
        elif self.kind != "hadoop":
            with suppress(IcebergError):  # a metastore refuses a location of which it knows no store
                self._point_to(new)

    # -- namespaces ----------------------------------------------------------------------------------------------------

    def _make_space(self, space: str, place: str) -> str:
        """Make a namespace as others can, with a table in it; return the name of the table to do something with."""
        if space == "below":
            return self._make_inner(place)
        if self.kind == "hadoop" and space == "location":
            space = "name"  # it has no locations
        below, name = ("", "data") if space != "name=value" else ("/day=a", "u")
        levels = {"location": ("evil",), "name": ("db", "t"), "name=value": ("db", "t", "day=a")}[space]
        made = self._create_space(levels, f"{place}{below}")
        if made is None:
            return "db.t"
        table = TableId(namespace=made, name=name)
        home = f"{self.folder.joinpath(*made[2:], name)}" if self.kind == "hadoop" else f"{place}{below}/{name}"
        self._put(table, home)
        return str(table)

    def _create_space(self, levels: tuple[str, ...], location: str) -> tuple[str, ...] | None:
        """Create a namespace of these levels, or, where that is refused, another one with this location."""
        if self.server is not None:
            self.server.spaces[".".join(levels)] = {"location": location}
            return levels
        if self.kind == "hadoop":  # a folder is one
            return levels
        catalog = self.opened("file://{}")
        for name, properties in ((levels, {}), (levels, {"location": location}), (("evil",), {"location": location})):
            if levels == ("evil",) and not properties:
                continue
            with suppress(IcebergError):
                for depth in range(1, len(name) + 1):
                    # Without the checks that are ours: others have other programs.
                    with suppress(IcebergError):
                        catalog._create_namespace(name[:depth], properties if depth == len(name) else {})
                if catalog.namespace_exists(name):
                    self._spaces.append(name)
                    return name
        return None

    def _make_inner(self, place: str) -> str:
        """Put a whole table of others into a folder of a partition of `db.t`, and let `db.t` name its files."""
        inner = self.folder / "day=b" / "u"
        shutil.copytree(Path(_plain(self.victim.location)), inner)
        for path in (inner / "metadata").glob("*.metadata.json"):
            path.unlink()
        metadata = self.victim.metadata
        document = {**metadata_json.to_dict(metadata), "location": str(inner), "table-uuid": str(uuid.uuid4())}
        (inner / "metadata" / "v1.metadata.json").write_text(json.dumps(document))
        self._inner = inner
        for name in (name for name in _names_below(inner) if name.startswith("data/")):
            with suppress(IcebergError):
                commit_foreign_file(self.opened("file://{}"), "db.t", f"{place}/day=b/u/{name}")
        with suppress(IcebergError):
            Table.load(self.opened("file://{}"), "db.t").delete("id > 0")
        return "db.t"

    def _put(self, table: TableId, home: str) -> None:
        """Let a name be a table at a place, whose snapshots are those of `db.t`."""
        folder, pointer = Path(_real(home)) / "metadata", f"{home}/metadata"
        if not folder.is_relative_to(self.warehouse.resolve()):
            folder = self.warehouse / "attackers" / "x" / "metadata"
            pointer = str(folder)
        name = "v1.metadata.json" if self.kind == "hadoop" else "00099-forged.metadata.json"
        identity = str(uuid.uuid4())
        document = {**metadata_json.to_dict(self.state.metadata), "location": home, "table-uuid": identity}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(document | {"metadata-log": []}))
        self._evil = folder
        if self.server is not None:
            self.server.tables[str(table)] = (f"{pointer}/{name}", document)
        elif self.kind != "hadoop":
            with suppress(IcebergError):
                catalog, new = self.opened("file://{}"), f"{pointer}/{name}"
                metadata = metadata_json.read((folder / name).read_bytes(), path=new)
                self._swap(catalog, table, new, metadata)

    def _forget_spaces(self) -> None:
        self._evil = self._inner = None
        if self.server is not None:
            self.server.spaces.clear()
        elif self.kind != "hadoop" and self._spaces:
            catalog = self.opened("file://{}")
            for space in reversed(self._spaces):
                with suppress(IcebergError):
                    for table in catalog.list_tables(space):
                        catalog.drop_table(table)
                    catalog.drop_namespace(space)
        self._spaces.clear()

    # -- what came of it -----------------------------------------------------------------------------------------------

    def wrongs(self, attack: Attack, operation: str) -> list[str]:
        """Let somebody honest do something with the attacked table; return what was done that should not have been."""
        if operation == "from metadata" and attack.linked in ("namespace", "table"):
            return []  # who names a metadata file names the folder that it is in, also by a link at or above it
        self.reset()
        name, spot = self.carry_out(attack)
        others = self._of_others(attack)
        aside = content(self.home / "aside") if attack.linked else {}
        calls, kernel, wrong = LocalCalls(self.foreign), KernelWatch(self.foreign), []
        with ExitStack() as stack:
            stack.enter_context(kernel.watching())
            stack.enter_context(calls.watching())
            try:
                OPERATIONS[operation](Table.load(self.opened("file://{}", attack.through), name), spot)
            except (IcebergError, ForeignCallError):
                pass
            except Exception as error:
                wrong.append(f"raised {error!r}")
        wrong += [f"call: {each}" for each in calls.touched]
        wrong += [f"kernel: {each}" for each in kernel.seen if not self.is_served_here]
        if content(self.foreign) != calls._content and not self.is_served_here:
            wrong.append("the foreign folder has changed")
        now = content(self.warehouse)
        # Whoever commits to a table may let it write anywhere in the warehouse: what is there stays as it is.
        wrong += [
            f"a file of others has changed: {path}"
            for path, data in others.items()
            if now.get(path, (None,))[0] != data
        ]
        if aside and content(self.home / "aside") != aside:
            wrong.append("what was moved aside has changed")
        if attack.is_honest and operation not in ENDS:
            kept = self.live_now if operation in EXPIRES else self.live
            wrong += [f"a live file is gone: {path}" for path in sorted(kept) if not os.path.exists(path)]
        return [f"{self.kind}, {attack}, {operation}: {each}" for each in wrong]

    def _of_others(self, attack: Attack) -> dict[str, bytes]:
        """Return the files, by their paths in the warehouse, that are not of the table with which something is done."""
        found = {name: data for name, (data, _) in content(self.warehouse).items() if data is not None}
        if attack.space not in (None, "below") and self._evil is not None:
            own = f"{self._evil.relative_to(self.warehouse.resolve())}/"
            return {name: data for name, data in found.items() if not name.startswith(own)}
        victim = Path(_plain(self.victim.location)).relative_to(self.warehouse)
        folders = [f"{victim}/", *([f"{self._inner.relative_to(self.warehouse)}/"] if self._inner else [])]
        return {name: data for name, data in found.items() if name.startswith(tuple(folders))}


def _reachable_now(table: Table) -> set[str]:
    """Return the files of the last snapshot, which an expiry keeps; its list goes if there is a later snapshot."""
    last = table.metadata.current_snapshot()
    assert last is not None
    manifests = read_manifests(table.io, last)
    entries = (entry for manifest in manifests for entry in read_entries(table.io, manifest))
    paths = {entry.data_file.file_path for entry in entries if entry.is_live}
    return paths | {manifest.manifest_path for manifest in manifests}


def _plain(location: str) -> str:
    """Return the path of an honest location."""
    return location.removeprefix("file://").removeprefix("file:")


def _real(location: str) -> Path:
    """Return where a location leads; a folder that is not there for one that is none."""
    try:
        return Path(os.path.realpath(parse_location(location).path))
    except IcebergError:
        return Path("/nowhere")


def _names_below(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()))
