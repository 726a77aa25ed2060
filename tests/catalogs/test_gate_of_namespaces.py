"""Not one call outside of the gate, whatever names and locations namespaces have, in every catalog that has them.

N creates a namespace, C commits to a table in it, and an honest task works on that table. The calls are recorded below
the FileIO, by the file system itself, and the files of others are compared afterwards.
"""

import json
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.glue.catalog import GlueCatalog
from airflow_iceberg.catalogs.hadoop.catalog import HadoopCatalog
from airflow_iceberg.catalogs.nessie.catalog import NessieCatalog
from airflow_iceberg.catalogs.sql.catalog import SqlCatalog
from airflow_iceberg.commit.operation_key import OperationKey
from airflow_iceberg.errors import IcebergError
from airflow_iceberg.format.metadata import json as metadata_json
from airflow_iceberg.operations.expire_snapshots import ExpireSnapshotsRequest, expire_snapshots
from airflow_iceberg.operations.remove_orphan_files import RemoveOrphanFilesRequest, remove_orphan_files
from airflow_iceberg.operations.work import Work
from airflow_iceberg.table import Table
from tests.services.glue import KEYS
from tests.support.builders import id_rows
from tests.support.faults import AgedFileIO
from tests.support.memory import MemoryCatalog, MemoryFileIO
from tests.support.recording import commit_foreign_file
from tests.support.sampling import examples
from tests.test_gate import OPERATIONS

SCHEMA = {"id": "long"}
KEY = OperationKey(dag_id="dag", run_id="run", task_id="task")
WAREHOUSE = "memory://warehouse"
SECRET = "memory://secret/hr"
_CALLS = (
    *("cat_file", "pipe_file", "rm_file", "rm", "ls", "find", "info", "exists", "isfile", "isdir", "_open", "cp_file"),
    *("mv", "makedirs", "mkdir", "rmdir", "touch", "created", "modified"),
)


_inside = threading.local()


class RecordedFiles(MemoryFileSystem):
    """Files in memory; `calls` has each call with its paths, whoever makes it."""

    def __init__(self, calls: list[tuple[str, str]]) -> None:
        super().__init__()
        self.calls = calls
        self.store, self.pseudo_dirs = {}, [""]

    cachable = False


def _recorded(verb: str) -> Any:
    def call(self: Any, *args: Any, **options: Any) -> Any:
        if getattr(_inside, "is_so", False):  # what the file system asks itself
            return getattr(super(RecordedFiles, self), verb)(*args, **options)
        self.calls += [(verb, path) for path in args[: 2 if verb in ("cp_file", "mv") else 1]]
        _inside.is_so = True
        try:
            return getattr(super(RecordedFiles, self), verb)(*args, **options)
        finally:
            _inside.is_so = False

    return call


for _verb in _CALLS:
    setattr(RecordedFiles, _verb, _recorded(_verb))


class RecordedIO(MemoryFileIO):
    """A FileIO on recorded files; a location of another store is a call, too."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self._filesystem = RecordedFiles(self.calls)

    def _path(self, location: str) -> str:
        if not location.startswith("memory:"):
            self.calls.append(("another store", location))
        return super()._path(location)


# -- catalogs ----------------------------------------------------------------------------------------------------------


def sql(io: Any, folder: Any, _request: Any) -> Any:
    return SqlCatalog("prod", {"uri": f"sqlite:///{folder}/{uuid.uuid4().hex}.db", "warehouse": WAREHOUSE}, io=io)


def hadoop(io: Any, _folder: Any, _request: Any) -> Any:
    return HadoopCatalog("prod", {"warehouse": WAREHOUSE}, io=io, sleep=lambda _: None)


def memory(io: Any, _folder: Any, _request: Any) -> Any:
    return MemoryCatalog(io=io, namespaces=())


def nessie(io: Any, _folder: Any, request: Any) -> Any:
    server = {"uri": request.getfixturevalue("nessie"), "warehouse": WAREHOUSE}
    branch = f"gate-{uuid.uuid4().hex[:8]}"
    NessieCatalog("prod", server, io=io).references.create_branch(branch)
    return NessieCatalog("prod", {**server, "ref": branch}, io=io)


def glue(io: Any, _folder: Any, request: Any) -> Any:
    address = request.getfixturevalue("glue_address")
    catalog = GlueCatalog("prod", {"glue.endpoint": address, "warehouse": WAREHOUSE, **KEYS}, io=io)
    for (name,) in catalog.list_namespaces():
        for table in catalog.list_tables(name):
            catalog.drop_table(table)
        catalog.drop_namespace(name)
    return catalog


@dataclass(frozen=True)
class Attack:
    """What an attacker does before an honest task comes.

    Attributes:
        namespace: its levels, joined by dots; of catalogs with one level the last counts.
        location: of the namespace; None for none. `{}` stands for the location of the first victim.
        name: of the table.
        way: whether the table is made as everybody makes one ("created"), or its metadata is forged: at the place that
            follows from the namespace ("at home"), at the namespace's location ("there"), or a pointer to the file of a
            victim ("twin"), or to a copy of it ("copy").
        has_uuid: whether forged metadata has the uuid of the first victim.
        names_files: whether manifests name files of victims.
    """

    namespace: str = "evil"
    location: str | None = None
    name: str = "t"
    way: str = "at home"
    has_uuid: bool = False
    names_files: bool = True


class World:
    """Two victims, a secret in another bucket, and the table of an attacker."""

    def __init__(self, make: Any, folder: Any, request: Any = None) -> None:
        self.io = RecordedIO()
        self.catalog = make(AgedFileIO(self.io), folder, request)
        self.io.create(f"{SECRET}/a.parquet", b"PAR1 secret PAR1")
        self.victims = [self._filled("hr.salaries"), self._filled("far.bonus", f"{WAREHOUSE}/far/away")]
        self.before: dict[str, Any] = {}

    def _filled(self, name: str, location: str | None = None) -> Table:
        namespace = name.split(".")[0]
        location = None if isinstance(self.catalog, HadoopCatalog) else location
        self.catalog.create_namespace(namespace, {"location": location} if location else {}, if_not_exists=True)
        table = Table.create(self.catalog, name, schema=SCHEMA, properties={"gc.enabled": "true"})
        table.append(id_rows([1, 2]), operation_key=KEY)
        table.overwrite(id_rows([3]))
        return table

    def victims_files(self) -> list[str]:
        return [path for victim in self.victims for path in self.io.locations(victim.location)]

    def attack(self, attack: Attack) -> TableId | None:
        """Carry it out; None if the catalog refuses it."""
        place = attack.location and attack.location.format(self.victims[0].location)
        place = None if isinstance(self.catalog, HadoopCatalog) else place
        has_one_level = isinstance(self.catalog, GlueCatalog | NessieCatalog)
        levels = attack.namespace.split(".")[-1] if has_one_level else attack.namespace
        table = TableId.of(f"{levels}.{attack.name}")
        template = self._filled("attackers.t")
        if attack.names_files:
            for path in self.victims_files():
                commit_foreign_file(self.catalog, "attackers.t", path)
            Table.load(self.catalog, "attackers.t").delete("id > 0")
        self.before = {
            path: file for path, file in self.io.files.items() if not path.startswith("/warehouse/attackers")
        }
        self.io.calls.clear()
        if not self._namespace(table, place):
            return None
        if attack.way == "created":
            with suppress(IcebergError):
                Table.create(self.catalog, str(table), schema=SCHEMA, properties={"gc.enabled": "true"})
                return table
            return None
        if isinstance(self.catalog, HadoopCatalog):
            return self._directory(table, attack, template)
        pointer = self._forged(table, attack, place, template)
        with suppress(IcebergError):
            metadata = self.catalog.read_metadata(table, pointer)
            self.catalog.swap_metadata(table, base=None, new=pointer, metadata=metadata)
            return table
        return None

    def _namespace(self, table: TableId, place: str | None) -> bool:
        properties = {"location": place} if place else {}
        try:
            # Without the checks that are ours: others have other programs.
            self.catalog._create_namespace(table.namespace, properties)
        except IcebergError:
            return False
        return True

    def _forged(self, table: TableId, attack: Attack, place: str | None, template: Table) -> str:
        """Return a metadata file, which lies in a place of the attacker's own, unless it is the victim's."""
        victim = self.victims[0]
        if attack.way == "twin":
            return victim.metadata_location
        pointer = f"{WAREHOUSE}/attackers/x/metadata/00001-{uuid.uuid4()}.metadata.json"
        if attack.way == "copy":
            self.io.create(pointer, self.io.read(victim.metadata_location))
            return pointer
        home = place if attack.way == "there" and place else f"{place or f'{WAREHOUSE}/evil'}/{table.name}"
        found = Table.load(self.catalog, str(template.identifier)).metadata
        identity = victim.metadata.table_uuid if attack.has_uuid else str(uuid.uuid4())
        document = metadata_json.to_dict(replace(found, location=home, table_uuid=identity))
        self.io.create(pointer, json.dumps(document).encode())
        return pointer

    def _directory(self, table: TableId, attack: Attack, template: Table) -> TableId | None:
        """Make a directory a table, with the metadata of another one; its location is what the attacker likes."""
        home = f"{WAREHOUSE}/{'/'.join((*table.namespace, table.name))}"
        source = (
            self.victims[0] if attack.way in ("twin", "copy") else Table.load(self.catalog, str(template.identifier))
        )
        location = {"there": self.victims[1].location, "at home": home}.get(attack.way, source.location)
        identity = self.victims[0].metadata.table_uuid if attack.has_uuid else source.metadata.table_uuid
        document = metadata_json.to_dict(replace(source.metadata, location=location, table_uuid=identity))
        document["properties"]["write.data.path"] = f"{self.victims[0].location}/data"
        with suppress(IcebergError):
            self.io.create(f"{home}/metadata/v1.metadata.json", json.dumps(document).encode())
            return table
        return None

    def check(self, what: str) -> list[str]:
        """Return what was done that should not have been."""
        wrong = [f"{what}: {verb} {path}" for verb, path in self.io.calls if not self._is_inside(path)]
        now = self.io.files
        wrong += [f"{what}: changed {path}" for path, file in self.before.items() if now.get(path) is not file]
        self.io.calls.clear()
        return wrong

    @staticmethod
    def _is_inside(path: str) -> bool:
        location = path.removeprefix("memory://")
        return f"/{location.strip('/')}/".startswith("/warehouse/")


# -- what an honest task does ------------------------------------------------------------------------------------------


def _purge_quarantine(table: Table) -> None:
    request = RemoveOrphanFilesRequest(older_than_ms=2**62, allow_recent=True, purge_older_than_ms=2**62)
    for _ in range(2):
        remove_orphan_files(Work(table), request)


def _maintain(table: Table) -> None:
    with suppress(IcebergError):
        expire_snapshots(Work(table), ExpireSnapshotsRequest(older_than_ms=2**62))
    with suppress(IcebergError):
        remove_orphan_files(
            Work(table), RemoveOrphanFilesRequest(action="delete", older_than_ms=2**62, allow_recent=True)
        )
    table.catalog.drop_table(table.identifier, purge=True)


def _take(world: World, table: Table, source: str) -> None:
    """Take files of a folder over in each way, and clean up what has become of them."""
    space, catalog = ".".join(table.identifier.namespace), table.catalog
    with suppress(IcebergError):
        table.add_files(source=source)
    for number, make in enumerate((Table.snapshot_table, Table.migrate_table)):
        with suppress(IcebergError):
            _maintain(make(catalog, f"{space}.taken{number}", source))
    for number, victim in enumerate(world.victims):
        with suppress(IcebergError):
            _maintain(Table.register(catalog, f"{space}.known{number}", victim.metadata_location))


HONEST: dict[str, Any] = {
    **{name: lambda _, table, run=run: run(table) for name, run in OPERATIONS.items()},
    "purged quarantine": lambda _, table: _purge_quarantine(table),
    "take victim": lambda world, table: _take(world, table, f"{world.victims[0].location}/data"),
    "take secret": lambda world, table: _take(world, table, SECRET),
    "take local": lambda world, table: _take(world, table, "file:///etc"),
    "undo": lambda _, table: table.undo(run_id="run", dag_id="dag"),
    "rollback": lambda _, table: table.rollback_to_snapshot(table.snapshots()[0].snapshot_id),
    "drop": lambda _, table: table.catalog.drop_table(table.identifier),
}


def carried_out(world: World, attack: Attack, operations: list[str]) -> list[str]:
    table = world.attack(attack)
    wrong = world.check("attack")
    for name in operations if table else ():
        with suppress(IcebergError):
            HONEST[name](world, Table.load(world.catalog, str(table)))
        wrong += world.check(name)
    return [f"{attack}: {each}" for each in wrong]


LOCATIONS = (
    None,
    "{}",
    "{}/data",
    "{}/metadata",
    "{}/data/x",
    "{}/",
    "{}/../salaries",
    "{}/%2e%2e/salaries",
    f"{WAREHOUSE}/hr",
    f"{WAREHOUSE}/hr/",
    WAREHOUSE,
    "memory:///warehouse/hr",
    "memory:/warehouse/hr",
    "MEMORY://warehouse/hr",
    f"{WAREHOUSE}/far",
    f"{WAREHOUSE}/far/away",
    f"{WAREHOUSE}/far/away/bonus",
    "memory://",
    "memory:///",
    "memory://secret",
    SECRET,
    "memory://warehouse/../secret/hr",
    "file:///etc",
    "/etc",
    "s3://other/hr",
    "not a location",
)
NAMES = ("t", "salaries", "data", "metadata", "hr", "bonus", "away", "_t", "warehouse", "secret", "x")
attacks = st.builds(
    Attack,
    namespace=st.sampled_from(["evil", "hr", "hr.salaries", "hr.salaries.data", "far.bonus", "warehouse"]),
    location=st.sampled_from(LOCATIONS),
    name=st.sampled_from(NAMES),
    way=st.sampled_from(["created", "at home", "there", "twin", "copy"]),
    has_uuid=st.booleans(),
    names_files=st.booleans(),
)


# What is tried with each server.
WORST = [
    *(
        Attack(location=location, name=name, way=way)
        for way in ("created", "at home")
        for location, name in [
            ("{}", "data"),
            ("{}/data", "x"),
            (f"{WAREHOUSE}/hr", "salaries"),
            (WAREHOUSE, "hr"),
            (SECRET, "t"),
            ("file:///etc", "t"),
        ]
    ),
    *(Attack(location=location, way="there", has_uuid=True) for location in ("{}", f"{WAREHOUSE}/hr", SECRET)),
    *(Attack(location="{}", way=way) for way in ("twin", "copy")),
]


class TestNamespacesOfOthers:
    @pytest.mark.costly
    @pytest.mark.parametrize("make", [sql, memory, hadoop])
    @examples(150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
    @given(attack=attacks, operations=st.lists(st.sampled_from(sorted(HONEST)), min_size=1, max_size=4))
    def test_no_call_is_outside(self, make, attack, operations, tmp_path):
        assert carried_out(World(make, tmp_path), attack, operations) == []

    @pytest.mark.parametrize(
        "attack",
        [
            Attack(location="{}", name="data"),
            Attack(namespace="hr.salaries", name="data"),
            Attack(location=f"{WAREHOUSE}/far/away", name="bonus", way="copy"),
            Attack(location=SECRET, way="there"),
        ],
        ids=str,
    )
    def test_the_worst_of_them(self, attack, tmp_path):
        assert carried_out(World(sql, tmp_path), attack, ["expire", "orphans", "purge"]) == []

    @pytest.mark.services
    @pytest.mark.parametrize("make", [nessie, glue])
    def test_with_a_server(self, make, tmp_path, request):
        """A Hive Metastore makes the folders of its databases, and has none in memory: see `test_locations`."""
        wrong = []
        for attack in WORST:
            wrong += carried_out(World(make, tmp_path, request), attack, ["expire", "orphans", "take victim", "purge"])
        assert wrong == [], "\n".join(wrong[:20])

    @pytest.mark.costly
    @pytest.mark.parametrize("make", [sql, memory, hadoop])
    def test_an_honest_table_is_cleaned(self, make, tmp_path):
        """Otherwise nothing would be proven above."""
        for operation in ("expire", "orphans", "purged quarantine", "purge"):
            world = World(make, tmp_path)
            world._filled("honest.t")
            world.io.create(f"{WAREHOUSE}/honest/t/data/orphan.parquet", b"x")
            files = len(world.io.locations(f"{WAREHOUSE}/honest"))
            world.io.calls.clear()
            HONEST[operation](world, Table.load(world.catalog, "honest.t"))
            assert world.check(operation) == []
            left = [path for path in world.io.locations(f"{WAREHOUSE}/honest") if "/.quarantine/" not in path]
            assert len(left) < files
