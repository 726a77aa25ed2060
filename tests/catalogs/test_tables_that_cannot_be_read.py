"""Tables whose metadata the connection may not read, and second names: what they keep others from deleting, and how
who cleans up learns of them."""

import dataclasses
from contextlib import suppress

import pytest

from airflow_iceberg.catalogs import owners, remembered
from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.load import load_catalog
from airflow_iceberg.errors import AlreadyExistsError, IcebergError, InvalidInputError
from airflow_iceberg.table import Table
from tests.catalogs.places import glue, hive, nessie
from tests.catalogs.test_locations import (
    SCHEMA,
    WAREHOUSE,
    expire,
    files_of,
    filled,
    forge,
    memory,
    remove_orphans,
    sql,
)
from tests.support.builders import id_rows
from tests.support.memory import MemoryCatalog, MemoryFileIO
from tests.support.other_programs import table_at
from tests.support.recording import commit_foreign_file

ELSEWHERE = "memory://elsewhere/dev/orders/metadata/00000-a.metadata.json"


class _Telling(MemoryCatalog):
    """A catalog that has the locations of tables besides their metadata, and lists pointers, as Hive and Glue do."""

    lists_pointers = True
    told: dict[TableId, str]
    listed = 0

    def told_location(self, table):
        return self.told.get(table)

    def other_pointers(self, table):
        self.listed += 1
        others = [(name, pointer) for name, pointer in self._pointers.items() if name != table]
        return [(name.namespace, name.name, pointer, self.told.get(name)) for name, pointer in others]


def telling(**told):
    catalog = _Telling(io=MemoryFileIO(), namespaces=("dev", "hr", "evil"))
    catalog.told = {TableId.of(name.replace("__", ".")): place for name, place in told.items()}
    return catalog


def moved(catalog):
    """A table that is not at the place of its name, in a folder called `orders`."""
    return filled(catalog, "hr.paid", location=f"{WAREHOUSE}/far/orders")


def in_a_minute(catalog):
    """Let a catalog look again, as another process does at once."""
    catalog._proven.clear()


class TestATableOutsideOfWhatIsTrusted:
    """It may have the name of the last folder of another one: then it would be thought to lie there."""

    def test_it_stops_nothing_where_the_catalog_tells_that_it_lies_elsewhere(self):
        catalog = telling(dev__orders="memory://elsewhere/dev/orders")
        table = moved(catalog)
        catalog.swap_pointer(TableId.of("dev.orders"), expected=None, new=ELSEWHERE)
        litter = f"{table.location}/data/litter.parquet"
        catalog.io.create(litter, b"x")
        assert remove_orphans(table).orphan_files == 1
        assert not catalog.io.exists(litter)
        assert expire(table).deleted_data_files == 1

    @pytest.mark.parametrize("told", [{}, {"dev__orders": "nowhere"}, {"dev__orders": f"{WAREHOUSE}/far/orders/"}])
    def test_otherwise_nothing_is_deleted_and_the_error_says_which_table_and_what_to_do(self, told, caplog):
        catalog = telling(**told)
        table = moved(catalog)
        catalog.swap_pointer(TableId.of("dev.orders"), expected=None, new=ELSEWHERE)
        assert expire(table).deleted_data_files == 0
        with pytest.raises(
            InvalidInputError, match=r"may belong to another table: .*dev\.orders.*drop .* without purge"
        ):
            remove_orphans(table)
        assert "dev.orders" in caplog.text
        catalog.drop_table("dev.orders")
        in_a_minute(catalog)
        assert remove_orphans(table).orphan_files == 3  # a file, its manifest and list, which the expiry has kept

    def test_it_is_trusted_by_the_setting_that_the_error_names(self):
        catalog = telling()
        table = moved(catalog)
        catalog.swap_pointer(TableId.of("dev.orders"), expected=None, new=ELSEWHERE)
        with pytest.raises(InvalidInputError, match="'allowed-locations'"):
            remove_orphans(table)
        catalog.properties = {**catalog.properties, "allowed-locations": "memory://elsewhere/dev/"}
        assert remove_orphans(table).orphan_files == 0  # there is no metadata file at all

    def test_one_that_is_no_metadata_is_told_of_too(self):
        catalog = telling(dev__orders=f"{WAREHOUSE}/dev/orders")
        table = moved(catalog)
        pointer = f"{WAREHOUSE}/dev/orders/metadata/00000-a.metadata.json"
        catalog.io.create(pointer, b"no metadata")
        catalog.swap_pointer(TableId.of("dev.orders"), expected=None, new=pointer)
        assert expire(table).deleted_data_files == 1

    def test_what_a_dropped_table_has_left_is_told_from_it(self, caplog):
        for told, deleted in ({"dev__orders": "memory://elsewhere/dev/orders"}, 1), ({}, 0):
            catalog = telling(**told)
            filled(catalog, "hr.t")
            left = Table.load(catalog, "hr.t").metadata_location
            data = catalog.io.read(left)
            catalog.drop_table("hr.t", purge=True)
            table = filled(catalog, "hr.t", location=f"{WAREHOUSE}/hr/t")
            catalog.io.create(f"{table.location}/metadata/00009-left.metadata.json", data)
            catalog.swap_pointer(TableId.of("dev.orders"), expected=None, new=ELSEWHERE)
            assert expire(table).deleted_data_files == deleted, told
        assert "cannot tell whether another table is at" in caplog.text
        assert "drop it from the catalog without purge" in caplog.text

    def test_its_files_in_the_folder_of_another_one_are_no_orphans_if_the_catalog_tells_of_them(self, caplog):
        for told, orphans in ({"dev__orders": f"{WAREHOUSE}/hr/t/x/inner"}, 0), ({}, 1):
            catalog = telling(**told)
            table = filled(catalog, "hr.t")
            catalog.swap_pointer(TableId.of("dev.orders"), expected=None, new=ELSEWHERE)
            catalog.io.create(f"{table.location}/x/inner/data/a.parquet", b"x")
            assert remove_orphans(table, "dry_run").orphan_files == orphans, told
        assert "cannot tell whether table dev.orders has files in the location" in caplog.text


class TestATableWithItsMetadataElsewhere:
    """Its files are where the connection may delete some, and its metadata is where the connection may not look."""

    @pytest.mark.parametrize("is_told", [True, False])
    def test_whoever_pretends_to_lie_there_deletes_none_of_them(self, is_told):
        for is_twin in (True, False):
            place = f"{WAREHOUSE}/far/orders"
            catalog = telling(**({"dev__orders": place} if is_told else {}))
            victim = filled(catalog, "dev.orders", location=place)
            files, data = sorted(files_of(victim)), catalog.io.read(victim.metadata_location)
            catalog.io.create(ELSEWHERE, data)
            now = catalog.read_pointer(TableId.of("dev.orders"))
            catalog.swap_pointer(TableId.of("dev.orders"), expected=now, new=ELSEWHERE)
            names = [path for path in files if path.endswith(".metadata.json")]
            catalog.io.delete(names)
            before = {*files} - {*names}
            evil = filled(catalog, "evil.t")
            identity = {"table_uuid": victim.metadata.table_uuid} if is_twin else {}
            forge(catalog, "evil.t", evil.metadata, location=place, **identity)
            for path in sorted(before):
                commit_foreign_file(catalog, "evil.t", path)
            Table.load(catalog, "evil.t").delete("id > 0")
            expire(Table.load(catalog, "evil.t"))
            with pytest.raises(IcebergError):
                remove_orphans(Table.load(catalog, "evil.t"))
            catalog.drop_table("evil.t", purge=True)
            assert files_of(victim) >= before


class TestMetadataThatWasMoved:
    """`write.metadata.path` was set on a table with files: its older metadata files are where they were."""

    PROPERTIES = {"write.metadata.path": f"{WAREHOUSE}/hr/metadata_of_t"}

    def test_they_are_told_from_those_of_others_without_loading_all_of_them(self, monkeypatch):
        monkeypatch.setattr(owners, "_MOST_TABLES", 0)
        for told, deleted in ({"dev__orders": "memory://elsewhere/dev/orders"}, 2), ({}, 0):
            catalog = telling(**told)
            table = filled(catalog, "hr.t")
            table.alter([{"set_properties": self.PROPERTIES}])
            table.overwrite(id_rows([4]))
            catalog.swap_pointer(TableId.of("dev.orders"), expected=None, new=ELSEWHERE)
            assert expire(table).deleted_data_files == deleted, told

    def test_elsewhere_than_at_the_place_of_its_name_the_log_says_what_to_do(self, caplog):
        catalog = telling()
        table = moved(catalog)
        table.alter([{"set_properties": self.PROPERTIES}])
        table.overwrite(id_rows([4]))
        assert expire(table).deleted_data_files == 0
        assert "an older one of this table can be moved there" in caplog.text
        for status in [*catalog.io.list(f"{table.location}/metadata")]:
            if status.location.endswith(".metadata.json"):
                catalog.io.delete([status.location])
        in_a_minute(catalog)
        assert remove_orphans(table).orphan_files > 0


class TestASecondName:
    """It leads to the same metadata, so that each of both may be the table whose files would be deleted."""

    @pytest.mark.parametrize("make", [sql, memory, lambda io, tmp_path: telling()], ids=["sql", "memory", "lists"])
    def test_the_error_names_it_and_says_what_to_do(self, make, tmp_path, caplog):
        catalog = make(MemoryFileIO(), tmp_path)
        for name in ("dev", "hr", "evil"):
            with suppress(AlreadyExistsError):
                catalog.create_namespace(name)
        table = moved(catalog)
        second = "dev.orders" if make is memory else "evil.t"
        catalog.swap_pointer(TableId.of(second), expected=None, new=table.metadata_location)
        table.overwrite(id_rows([4]))
        advice = rf"is where table {second} is; if both are names of one table, drop the name .* without purge"
        assert expire(table).deleted_data_files == 0
        with pytest.raises(InvalidInputError, match=rf"^cannot remove orphan files of .*{advice}"):
            remove_orphans(table)
        assert "drop the name" in caplog.text
        catalog.drop_table(second)
        in_a_minute(catalog)
        assert remove_orphans(table).orphan_files > 0

    def test_it_stops_no_table_at_the_place_of_its_own_name(self):
        catalog = telling()
        table = filled(catalog, "hr.salaries")
        catalog.swap_pointer(TableId.of("evil.t"), expected=None, new=table.metadata_location)
        table.overwrite(id_rows([4]))
        assert expire(table).deleted_data_files == 2


@pytest.mark.services
@pytest.mark.parametrize("place_in", [hive("2_3_10", {}), glue, nessie], ids=["hive", "glue", "nessie"])
def test_on_servers(place_in, request, tmp_path):
    """A namesake outside of what is trusted, and a second name; Nessie tells no places."""
    catalog = load_catalog("prod", **place_in(request, tmp_path))
    for name in ("hr", "dev", "evil"):
        with suppress(IcebergError):
            catalog.create_namespace(name)
    properties, place = {"gc.enabled": "true"}, f"file://{tmp_path}/warehouse/far/orders"
    table = Table.create(catalog, "hr.paid", schema=SCHEMA, location=place, properties=properties)
    table.append(id_rows([1]))
    table.overwrite(id_rows([2]))
    outside = Table.create(catalog, "dev.there", schema=SCHEMA)
    elsewhere = f"file://{tmp_path}/elsewhere/orders"
    described = dataclasses.replace(outside.metadata, location=elsewhere)
    catalog.swap_metadata(
        TableId.of("dev.orders"), base=None, new=f"{elsewhere}/metadata/00000-a.metadata.json", metadata=described
    )
    tells = place_in is not nessie
    assert expire(table).deleted_data_files == int(tells)
    if not tells:
        with pytest.raises(InvalidInputError, match=r"dev\.orders.*without purge"):
            remove_orphans(table)
    catalog.drop_table("dev.orders")
    catalog.swap_metadata(TableId.of("evil.t"), base=None, new=table.metadata_location, metadata=table.metadata)
    table.refresh().append(id_rows([3]))
    in_a_minute(catalog)
    with pytest.raises(InvalidInputError, match=r"is where table evil\.t is; .*without purge"):
        remove_orphans(table)


class TestManyRegistrations:
    """At the place of its name, metadata may be that of a table that was renamed: all tables are listed for that."""

    def dropped(self, catalog, name):
        """Return the metadata file of a table that is no longer in the catalog, and was not changed for long."""
        pointer = table_at(catalog, name, f"{WAREHOUSE}/{name.replace('.', '/')}").metadata_location
        catalog.drop_table(name)
        return pointer

    def test_they_are_listed_once(self):
        catalog = telling()
        pointers = {name: self.dropped(catalog, name) for name in ("hr.a", "hr.b", "hr.c")}
        for name, pointer in pointers.items():
            catalog.register_table(name, pointer)
        assert catalog.listed == 1

    def test_but_for_a_table_that_was_there_then(self):
        catalog = telling()
        pointer = table_at(catalog, "hr.t", f"{WAREHOUSE}/hr/t").metadata_location
        catalog.register_table("hr.a", self.dropped(catalog, "hr.a"))
        catalog.rename_table("hr.t", "evil.t")
        with pytest.raises(InvalidInputError, match=r"table evil\.t is there"):
            catalog.register_table("hr.t", pointer)

    def test_or_that_was_changed_since(self):
        catalog = telling()
        catalog.register_table("hr.a", self.dropped(catalog, "hr.a"))
        pointer = filled(catalog, "hr.t").metadata_location
        catalog.rename_table("hr.t", "evil.t")
        with pytest.raises(InvalidInputError, match=r"table evil\.t is there"):
            catalog.register_table("hr.t", pointer)

    def test_or_that_was_registered_since(self):
        catalog = telling()
        pointer = self.dropped(catalog, "hr.t")
        catalog.register_table("hr.a", self.dropped(catalog, "hr.a"))
        catalog.register_table("evil.t", pointer)
        with pytest.raises(InvalidInputError, match=r"table evil\.t is there"):
            catalog.register_table("hr.t", pointer)

    def test_or_after_a_minute(self, monkeypatch):
        catalog = telling()
        pointers = {name: self.dropped(catalog, name) for name in ("hr.a", "hr.b")}
        monkeypatch.setattr(remembered, "REMEMBERED_S", 0.0)
        for name, pointer in pointers.items():
            catalog.register_table(name, pointer)
        assert catalog.listed == 2
