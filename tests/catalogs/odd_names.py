"""Names of all kinds, and their life in a catalog: what is listed was made, and its text names it in every call.

    names = Names(random.Random(7))
    live(catalog, names, tables=20)

Not here: names that leave their place in a path (`test_names`), and the form of names as text (`test_names_as_text`).
"""

import random
from collections.abc import Iterator

from airflow_iceberg.catalogs.base import Catalog, Namespace
from airflow_iceberg.catalogs.names import join_levels
from airflow_iceberg.errors import AlreadyExistsError, IcebergError, InvalidInputError, UnsupportedError
from airflow_iceberg.table import Table

PIECES = [*"abAB012_-.`\"' %/@#*?[{&=:;$+~ü日😀"]
WHOLE = [
    *("", " ", ".", "..", "a.b", "x.t", "`", "``", "`a`", '"a"', '"', "a`b", 'a"b', " a", "a "),
    *("%2e%2e", "a%2Fb"),
]
WHOLE += ["100%", "a..b", ".a", "a.", "a@b/c", "a#", "a!"]
Model = dict[tuple[Namespace, str], str]
"""The tables of a catalog: the uuid by levels and name."""


class Names:
    """Random levels of names, of few signs, so that they meet."""

    def __init__(self, dice: random.Random, pieces: list[str] | None = None) -> None:
        self.dice = dice
        self._pieces = PIECES if pieces is None else pieces

    def level(self) -> str:
        if self.dice.random() < 0.3:
            return self.dice.choice(WHOLE)
        return "".join(self.dice.choices(self._pieces, k=self.dice.randint(1, 3)))

    def plain(self) -> str:
        return "".join(self.dice.choices("abc", k=2))

    def levels(self, most: int) -> Namespace:
        return tuple(
            self.level() if self.dice.random() < 0.7 else self.plain() for _ in range(self.dice.randint(1, most))
        )


def live(catalog: Catalog, names: Names, *, tables: int, most_levels: int = 2, may_fail: bool = False) -> None:
    """Make tables, rename and drop them, each named by text, and look now and then at all that is listed.

    Args:
        may_fail: whether a name may be refused by a server, with any error of ours; else only by us.
    """
    refusals = (IcebergError,) if may_fail else (InvalidInputError, UnsupportedError, AlreadyExistsError)
    known: Model = {}
    for number in range(tables):
        space, name = names.levels(most_levels), names.level()
        try:
            for depth in range(1, len(space) + 1):
                catalog.create_namespace(join_levels(space[:depth]), if_not_exists=True)
            table = join_levels((*space, name))
            known[space, name] = str(Table.create(catalog, table, schema={"id": "long"}).metadata.table_uuid)
        except refusals as error:
            if not isinstance(error, AlreadyExistsError):
                _check_absent(catalog, known, space, name)
        if known and names.dice.random() < 0.5:
            _rename(catalog, names, known, refusals)
        if number % 5 == 0:
            check(catalog, known)
        if len(known) > 5:
            _drop(catalog, names, known)
    check(catalog, known)
    while known:
        _drop(catalog, names, known)
    check(catalog, known)


def _check_absent(catalog: Catalog, known: Model, space: Namespace, name: str) -> None:
    """What was refused is not there, whoever asks for it; a refusal again is an answer, too."""
    try:
        is_there = catalog.table_exists(join_levels((*space, name)))
    except (InvalidInputError, UnsupportedError):
        return
    assert is_there == ((space, name) in known), (space, name)


def _rename(catalog: Catalog, names: Names, known: Model, refusals: tuple[type[IcebergError], ...]) -> None:
    space, name = names.dice.choice(sorted(known))
    to = names.level()
    try:
        catalog.rename_table(join_levels((*space, name)), join_levels((*space, to)))
    except refusals:
        return
    known[space, to] = known.pop((space, name))


def _drop(catalog: Catalog, names: Names, known: Model) -> None:
    space, name = names.dice.choice(sorted(known))
    catalog.drop_table(join_levels((*space, name)))
    del known[space, name]


def walk(catalog: Catalog) -> Iterator[Namespace]:
    """Yield all namespaces; each is asked for by its text and by its levels, with one answer."""
    waiting = list(catalog.list_namespaces())
    while waiting:
        space = waiting.pop()
        text = join_levels(space)
        assert catalog.namespace_exists(text), space
        inner = catalog.list_namespaces(text)
        assert inner == catalog.list_namespaces(space), space
        assert all(each[:-1] == space for each in inner), (space, inner)
        yield space
        waiting += inner


def check(catalog: Catalog, known: Model) -> None:
    """Compare what is listed with what was made, and load each table by the text of its name."""
    listed = [table for space in walk(catalog) for table in catalog.list_tables(join_levels(space))]
    assert {(table.namespace, table.name) for table in listed} == set(known)
    assert len(listed) == len(known)
    for table in listed:
        assert catalog.load(str(table)).metadata.table_uuid == known[table.namespace, table.name], table
        assert catalog.table_exists(str(table)), table
