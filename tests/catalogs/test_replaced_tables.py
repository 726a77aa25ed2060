"""A table is its uuid on every catalog with a service of its own: no operation changes another table of the name.

The table is dropped and made anew, or renamed away with another one in its place; the handle is of this moment, an hour
old, or one whose refresh was refused. Not here: Hadoop and SQL (`commit/test_replaced_tables.py`).
"""

import dataclasses
import uuid

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import IcebergError, TableReplacedError
from airflow_iceberg.table import Table
from tests.catalogs import places
from tests.catalogs.hive_contract import NO_LOCKS
from tests.catalogs.places import LOCKS
from tests.commit.test_replaced_tables import OLD_S, OPERATIONS, QUICK, fill
from tests.support.builders import ids

CATALOGS = {
    "rest": places.rest,
    "nessie": places.nessie,
    "glue": places.glue,
    "hive-4": places.hive("4", NO_LOCKS),
    "hive-2.3.10": places.hive("2_3_10", LOCKS),
}
# Other branches may need the files of a table of Nessie: none of them is deleted.
NOT_IN_NESSIE = {"expiry", "orphans"}


def made_anew(catalog, name):
    catalog.drop_table(name)
    fill(catalog, name)


def purged_and_made_anew(catalog, name):
    catalog.drop_table(name, purge=True)
    fill(catalog, name)


def renamed_and_another_in_its_place(catalog, name):
    catalog.rename_table(name, f"{name}_kept")
    fill(catalog, f"{name}_other")
    catalog.rename_table(f"{name}_other", name)


def at_once(handle):
    return handle


def an_hour_later(handle):
    return Table(dataclasses.replace(handle.state, loaded_s=OLD_S), io=handle.io, catalog=handle.catalog)


def after_a_refresh(handle):
    with pytest.raises(TableReplacedError):
        handle.refresh()
    return handle


def changed(catalog, name, handle, now, operation):
    """Return what an operation on a handle of the former table did wrong; None if it was refused, as is right."""
    try:
        OPERATIONS[operation](handle)
    except TableReplacedError as error:
        if f"{now.metadata.table_uuid}" not in str(error) or " was replaced: " not in str(error):
            return f"said {error}"
    except IcebergError as error:
        return f"raised {type(error).__name__}: {error}"
    else:
        return "was done"
    after = catalog.load(name)
    is_same = (after.metadata_location, after.metadata) == (now.metadata_location, now.metadata)
    return None if is_same else "changed the new table"


WAYS = [made_anew, purged_and_made_anew, renamed_and_another_in_its_place]


@pytest.mark.services
@pytest.mark.parametrize(
    ("place", "way"),
    [
        pytest.param(place, way, marks=[pytest.mark.long] if place == "hive-2.3.10" else [])
        for place in CATALOGS
        for way in WAYS
        if (place, way) != ("nessie", purged_and_made_anew)
    ],
)
def test_no_operation_changes_another_table_of_the_name(request, tmp_path, place, way):
    catalog = load_catalog("prod", **CATALOGS[place](request, tmp_path))
    catalog.create_namespace("db", if_not_exists=True)
    name = f"db.t{uuid.uuid4().hex[:8]}"
    old = fill(catalog, name)
    way(catalog, name)
    now = Table.load(catalog, name)
    operations = set(OPERATIONS if way is made_anew else QUICK) - (NOT_IN_NESSIE if place == "nessie" else set())
    failed = {
        (aged.__name__, operation): why
        for aged in (at_once, an_hour_later, after_a_refresh)
        for operation in operations
        if (why := changed(catalog, name, aged(Table(old.state, io=old.io, catalog=catalog)), now, operation))
    }
    assert failed == {}
    assert ids(Table.load(catalog, name)) == [1, 2, 3]
    if way is renamed_and_another_in_its_place:
        kept = Table.load(catalog, f"{name}_kept")
        assert ids(kept) == [1, 2, 3]
        assert kept.metadata.table_uuid == old.metadata.table_uuid
