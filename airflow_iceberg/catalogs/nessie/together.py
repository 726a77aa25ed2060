"""Changes of several tables in one commit of a Nessie branch: all of them are seen at once, or none.

The branch here is one of the catalog. Not here: a commit to one table (`nessie.catalog`).
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from airflow_iceberg.catalogs.base import Namespace, TableId, TableState
from airflow_iceberg.catalogs.metadata_file import encode_metadata
from airflow_iceberg.catalogs.nessie.client import NessieClient, Refusal
from airflow_iceberg.catalogs.nessie.contents import (
    Content,
    describe,
    put,
    table_content,
)
from airflow_iceberg.catalogs.nessie.keys import Place
from airflow_iceberg.catalogs.nessie.tree import NessieTree
from airflow_iceberg.catalogs.pointer import DescribingCatalog, Pointer
from airflow_iceberg.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    InvalidInputError,
    StorageError,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.metadata.updates import Change, apply_change
from airflow_iceberg.storage.base import FileIO

log = logging.getLogger(__name__)

COMMIT_ID = "nessie.commit.id"


@dataclass(frozen=True, kw_only=True, slots=True)
class _New:
    """The new state of a table: its metadata, whose file is written, and the content object that names it."""

    table: TableId
    place: Place
    metadata: TableMetadata
    content: Content
    files: FileIO


class CommitsTogether(DescribingCatalog):
    """A Nessie catalog's commits to several tables."""

    commits_together = True
    _client: NessieClient
    _tree: NessieTree

    @abstractmethod
    def _place(self, name: TableId | Namespace) -> Place:
        """Return the place of a table."""

    def is_past(self, state: TableState) -> bool:
        return not token_of(state).branch  # a tag, or a commit by its hash

    def commit_together(self, changes: Sequence[tuple[TableState, Change]]) -> tuple[TableState, ...]:
        """Apply changes to several tables of one branch of the catalog in one commit; errors as of `commit`.

        Raises:
            InvalidInputError: the tables are on different branches of the catalog.
        """
        places = [self._place(base.table) for base, _ in changes]
        refs = {place.ref for place in places}
        if len(refs) != 1:
            names = ", ".join(str(place) for place in places)
            raise InvalidInputError(
                f"tables {names} are on different branches of catalog {self.name}, and one commit is on one of them; "
                f"name the same branch in each, or publish them one by one"
            )
        contents, branch, hash_ = self._tree.contents(places[0].ref, *(place.key for place in places))
        for (base, _), place in zip(changes, places, strict=True):
            self._tree.require_branch(place, branch)
            found = contents.get(place.key) or {}
            at, token = found.get("metadataLocation"), token_of(base)
            if (found.get("id"), at) != (token.id, token.metadata_location):
                raise self._changed_by_another(base.table, f"it points to {at}, expected {token.metadata_location}")
        new = [
            self._new(base, change, place, branch=branch, hash_=hash_)
            for (base, change), place in zip(changes, places, strict=True)
        ]
        hash_ = self._commit_all(new, [base for base, _ in changes])
        return tuple(self._state(one.table, one.metadata, pointer_of(replace(one.content, hash=hash_))) for one in new)

    def _new(self, base: TableState, change: Change, place: Place, *, branch: str, hash_: str) -> _New:
        token = token_of(base)
        updated = apply_change(base.metadata, change, now_ms=self._now_ms(), base_location=base.metadata_location)
        metadata = replace(updated, properties={**updated.properties, COMMIT_ID: token.hash})
        location = self._new_metadata_location(base, metadata)
        files = self.gate(base.table, metadata, location).around(self.io)
        files.create(location, encode_metadata(metadata, location))
        content = Content.of(metadata, location, id=token.id, branch=branch, hash=hash_)
        return _New(table=base.table, place=place, metadata=metadata, content=content, files=files)

    def _commit_all(self, new: Sequence[_New], bases: Sequence[TableState]) -> str:
        """Commit the content objects, and return the hash of the commit."""
        first = new[0].content
        operations = [put(one.place.key, table_content(one.content)) for one in new]
        _, properties = describe(new[0].table, bases[0].metadata, new[0].metadata)
        message = f"Iceberg publish of {', '.join(str(one.table) for one in new)}"
        try:
            answer = self._tree.commit(first.branch, first.hash, operations, message, properties)
            return str(answer["targetBranch"]["hash"])
        except CommitUnknownError as error:
            return self._found_together(new, error, f"the answer to a commit to {message} was lost: {error}")
        except Refusal as error:
            if error.status in (401, 403, 429):
                raise self._client.denied(message, error) from error
            try:
                return self._found_together(new, None, str(error))
            except CommitConflictError:
                for one in new:
                    _delete_quietly(one.files, one.content.metadata_location)
                raise

    def _found_together(self, new: Sequence[_New], unknown: CommitUnknownError | None, why: str) -> str:
        """Return the hash of our commit if it is in the history of the branch.

        Raises:
            CommitUnknownError: it is not known.
            CommitConflictError: it is not there, and the server has refused it.
        """
        names = ", ".join(str(one.table) for one in new)
        try:
            # One of the keys is enough: a commit is whole.
            hash_ = self._tree.find_commit(new[0].place.key, new[0].content)
        except (IcebergError, StorageError, Refusal) as error:
            raise CommitUnknownError(
                f"a commit to {names} in catalog {self.name} is in doubt ({why}): {error}"
            ) from error
        if hash_ is not None:
            log.warning(
                "the answer to a commit to %s was lost; it is in the history of %s", names, new[0].content.branch
            )
            return hash_
        if unknown is not None:
            raise unknown
        raise CommitConflictError(
            f"one of the tables {names} in catalog {self.name} was changed by another writer: {why}"
        )


def pointer_of(content: Content) -> Pointer:
    """Return the pointer that a table's content object is."""
    return Pointer(metadata_location=content.metadata_location, token=content)


def token_of(base: TableState) -> Content:
    """Return the content object of a table's state.

    Raises:
        InvalidInputError: the state is not of a Nessie catalog.
    """
    if not isinstance(base.token, Content):
        raise InvalidInputError(f"the state of table {base.table} is not of a Nessie catalog, load the table again")
    return base.token


def _delete_quietly(io: FileIO, location: str) -> None:
    try:
        io.delete([location])
    except IcebergError as error:
        log.warning("could not delete a metadata file that is not needed any more: %s", error)
