"""The place of a table or namespace in Nessie: its key, and a branch, tag or commit. Names and values only.

A table has a name as in other catalogs, `sales.orders`, which may be followed by a reference:

    sales.orders@etl            the branch or tag etl
    sales.orders@etl@3b2f…      the branch etl as it was at a commit; also etl#3b2f…
    sales.orders@3b2f…          a commit by its hash, on whatever branch it is; also #3b2f…

Only Nessie's catalog knows the meaning of these characters; for the rest of the package they are part of the name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_iceberg.catalogs.base import Namespace, TableId, join_levels, parse_namespace
from airflow_iceberg.catalogs.names import is_name
from airflow_iceberg.catalogs.nessie.client import ref_path
from airflow_iceberg.catalogs.nessie.login import nessie_property
from airflow_iceberg.errors import InvalidInputError

DEFAULT = "-"  # Nessie's own word for its default branch

_MARK = re.compile("[@#]")
# Nessie accepts no such name for a branch or tag, so that a hash cannot be mistaken for one.
_HASH = re.compile(r"[0-9a-fA-F]{8,64}")
# Nessie's own rule for names of references.
_NAME = re.compile(r"[A-Za-z](?:(?!\.\.)[A-Za-z0-9./_-])*(?<![./])|-")

Key = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ref:
    """A reference, or a commit.

    Attributes:
        name: name of a branch or tag; "" for a commit alone; "-" for the server's default branch.
        hash: hash of a commit; None for the newest one of the branch or tag.
    """

    name: str
    hash: str | None = None

    def __str__(self) -> str:
        name = "the default branch" if self.name == DEFAULT else self.name
        return f"{name}@{self.hash}" if self.hash else name

    @property
    def path(self) -> str:
        """The reference in a path of the API."""
        return ref_path(self.name, self.hash)

    @classmethod
    def parse(cls, text: str) -> Ref:
        """Parse the text after the first "@" in the name of a table; `InvalidInputError` if it is no reference."""
        # "@hash" and "#hash" are a commit alone; the caller has removed the first mark already.
        name, _, hash_ = text.replace("#", "@").partition("@")
        if not hash_ and _HASH.fullmatch(name):
            name, hash_ = "", name
        if (not name and not hash_) or (name and not _NAME.fullmatch(name)) or (hash_ and not _HASH.fullmatch(hash_)):
            raise InvalidInputError(
                f"'{text}' is not a reference of Nessie, expected the name of a branch or tag, or name@hash, or a hash"
            )
        return cls(name=name, hash=hash_.lower() or None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A key at a reference.

    Attributes:
        suffix: the part after the name, with its mark ("@etl"); "" for the catalog's own reference.
    """

    key: Key
    ref: Ref
    suffix: str = ""

    def __str__(self) -> str:
        return f"{join_levels(self.key)}{self.suffix}"

    @property
    def parent(self) -> Place:
        """The namespace of the table or namespace."""
        return Place(key=self.key[:-1], ref=self.ref, suffix=self.suffix)

    def table(self, key: Key) -> TableId:
        """Return the id of a table at the same reference."""
        *namespace, name = self.namespace(key)
        return TableId(namespace=tuple(namespace), name=name)

    def namespace(self, key: Key) -> Namespace:
        """Return the name of a namespace at the same reference."""
        # As a text is split at the dots of a reference, too.
        first, *rest = self.suffix.split(".")
        *above, last = key or ("",)
        return parse_namespace((*above, f"{last}{first}", *rest))


def place_of(name: TableId | Namespace, own: Ref) -> Place:
    """Return the place of a table or namespace.

    Args:
        own: the catalog's reference, for names without one.
    Raises:
        InvalidInputError: the part after the name is no reference.
    """
    elements = (*name.namespace, name.name) if isinstance(name, TableId) else name
    for number, element in enumerate(elements):
        if found := _MARK.search(element):
            # A text is split at each dot, also at those in the name of a branch.
            text = ".".join((element[found.end() :], *elements[number + 1 :]))
            if found[0] == "#":
                text = f"@{text}" if own.name == DEFAULT else f"{own.name}@{text}"
            head = element[: found.start()]
            suffix = ".".join((element[found.start() :], *elements[number + 1 :]))
            key = (*elements[:number], *((head,) if head else ()))
            return Place(key=key, ref=Ref.parse(text), suffix=suffix)
    return Place(key=elements, ref=own)


def is_key(element: str) -> bool:
    """Tell whether an element of a key can be named: not with a mark in it, behind which a reference would begin."""
    return is_name(element) and _MARK.search(element) is None


def own_ref(catalog: str, properties: Mapping[str, str]) -> Ref:
    """Return the reference of a catalog: properties `ref` and `ref.hash`, also with the prefix `nessie.`."""
    name, hash_ = nessie_property(properties, "ref"), nessie_property(properties, "ref.hash")
    if not name and not hash_:
        return Ref(name=DEFAULT)
    try:
        return Ref.parse(f"{name or DEFAULT}@{hash_}" if hash_ else name)
    except InvalidInputError as error:
        raise InvalidInputError(f"catalog {catalog}: property ref: {error}") from None
