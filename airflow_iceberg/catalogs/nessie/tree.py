"""The contents of a Nessie server at its references, tables and namespaces alike: read, list, commit, history."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from tenacity import Retrying, retry_if_exception, stop_after_attempt

from airflow_iceberg.catalogs.nessie.client import Json, NessieClient, Refusal, key_text, ref_path
from airflow_iceberg.catalogs.nessie.contents import TABLE, Content, branch_of, commit_property, elements_of, key_of
from airflow_iceberg.catalogs.nessie.keys import Key, Place, Ref, is_key
from airflow_iceberg.catalogs.owners import Named
from airflow_iceberg.errors import CommitUnknownError, IcebergError, NotFoundError, UnsupportedError

log = logging.getLogger(__name__)

# The property by which a commit is found in the history when the answer was lost.
MARK = "airflow-iceberg.commit-mark"
# Changes that don't depend on the previous content (a drop, a namespace's properties) are retried on the newer branch.
_ATTEMPTS = 10
_NOT_EMPTY = "NAMESPACE_NOT_EMPTY"


class NessieTree:
    """Contents by reference and key.

    Args:
        catalog: name of the catalog, for messages.
        author: the author of commits.
        app_id: Iceberg's property `app-id`, for commits; "" if it is not given.
    """

    def __init__(self, catalog: str, client: NessieClient, *, author: str, app_id: str) -> None:
        self._catalog = catalog
        self._client = client
        self._author = author
        self._app_id = app_id

    def contents(self, ref: Ref, *keys: Key) -> tuple[dict[Key, Json], str, str]:
        """Return the contents that exist, the branch ("" if it is none) and the hash that they were read at."""
        asked = [{"elements": list(key)} for key in keys if key]
        try:
            answer = self._client.look_up(f"{ref.path}/contents", {"requestedKeys": asked})
        except Refusal as error:
            raise self.refused(error, "read", ref) from error
        with self._client.understood():
            reference = answer.get("effectiveReference") or {}
            found = {key_of(each): {**each["content"]} for each in answer.get("contents") or ()}
            return found, branch_of(reference, ref), str(reference.get("hash") or "")

    def entries_below(self, place: Place, kind: str | None = None, *, with_content: bool = False) -> Iterator[Json]:
        """Yield the entries below a namespace, at any depth: all, or those of one kind, perhaps with their contents."""
        params = {"filter": f"entry.contentType=='{kind}'"} if kind else {}
        params |= {"content": "true"} if with_content else {}
        if place.key:
            params["prefix-key"] = key_text(place.key)
        try:
            for entry in self._client.pages(f"{place.ref.path}/entries", "entries", params):
                elements = elements_of(entry)
                if len(elements) > len(place.key) and elements[: len(place.key)] == place.key:
                    yield entry
        except Refusal as error:
            raise self.refused(error, "list", place.ref) from error

    def keys_below(self, place: Place, kind: str) -> list[Key]:
        """Return the keys of one kind directly in a namespace, without those that cannot be named."""
        keys = (elements_of(entry) for entry in self.entries_below(place, kind) if entry.get("type") == kind)
        return [key for key in keys if len(key) == len(place.key) + 1 and is_key(key[-1])]

    def others(self, place: Place) -> Iterator[Named]:
        """Yield the other tables at the reference of one, with their metadata files."""
        for each in self.entries_below(replace(place, key=()), TABLE, with_content=True):
            if (key := elements_of(each)) != place.key:
                content = each.get("content") or {}
                yield key[:-1], f"{key[-1]}{place.suffix}", str(content.get("metadataLocation") or ""), None

    def find_commit(self, key: Key, wanted: Content) -> str | None:
        """Return the hash of the commit that put a content's metadata file under a key, or None.

        Args:
            wanted: the content, with the branch, and a hash after which to search.
        Raises:
            Refusal, StorageError: the history can't be read.
        """
        for entry in self._history(wanted.branch, wanted.hash, {"fetch": "ALL"}):
            for operation in entry.get("operations") or ():
                # The key as well: the file of a registered table may have been committed under another name.
                location = (operation.get("content") or {}).get("metadataLocation")
                if location == wanted.metadata_location and key_of(operation) == key:
                    return str(entry["commitMeta"]["hash"])
        return None

    def has_mark(self, branch: str, since: str, mark: str) -> bool:
        """Tell whether a commit of the branch newer than `since` has our mark; raises as `find_commit`."""
        return any(commit_property(entry, MARK) == mark for entry in self._history(branch, since, {}))

    def _history(self, branch: str, since: str, params: Mapping[str, str]) -> Iterator[Json]:
        for entry in self._client.pages(f"{ref_path(branch)}/history", "logEntries", params):
            if entry["commitMeta"]["hash"] == since:
                return
            yield entry

    def change(
        self, place: Place, keys: Iterable[Key], operations: Callable[[Mapping[Key, Json]], list[Json]], message: str
    ) -> None:
        """Commit operations that are made of the contents of some keys; retry on the newer branch if they changed.

        Raises:
            Refusal: a namespace is not empty.
            CommitUnknownError: the answer was lost, and the branch's history doesn't hold the commit (yet).
        """
        keys, mark = tuple(keys), str(uuid.uuid4())

        def commit_once() -> None:
            contents, branch, hash_ = self.contents(place.ref, *keys)
            self.require_branch(place, branch)
            asked = operations(contents)
            try:
                self.commit(branch, hash_, asked, message, {MARK: mark})
            except CommitUnknownError as error:
                self._resolve(branch, hash_, mark, error)
            except Refusal as error:
                # A gateway may have sent it twice: the first one was done, the second one is refused.
                if error.has(_NOT_EMPTY) or error.status != 409 or not self.has_mark(branch, hash_, mark):
                    raise

        try:
            Retrying(retry=retry_if_exception(_is_stale), stop=stop_after_attempt(_ATTEMPTS), reraise=True)(commit_once)
        except Refusal as error:
            if error.has(_NOT_EMPTY):
                raise
            raise self._client.denied(f"change {place}", error) from error

    def _resolve(self, branch: str, hash_: str, mark: str, error: CommitUnknownError) -> None:
        try:
            has_landed = self.has_mark(branch, hash_, mark)
        except IcebergError as unreadable:
            raise error from unreadable
        if not has_landed:
            raise error
        log.warning("the answer to a commit to %s was lost; it is in the branch's history", branch)

    def commit(
        self, branch: str, hash_: str, operations: list[Json], message: str, properties: Mapping[str, str]
    ) -> Json:
        """Send a commit, once, and return the answer; raises as `NessieClient.change`.

        Args:
            hash_: a commit of the branch, after which the keys of the operations must not have changed.
        """
        about = {"application-type": "iceberg", **({"app-id": self._app_id} if self._app_id else {}), **properties}
        meta = {"message": message, "authors": [self._author], "properties": about}
        body = {"commitMeta": meta, "operations": operations}
        answer = self._client.change("POST", f"{ref_path(branch, hash_)}/history/commit", body=body)
        if not (answer.get("targetBranch") or {}).get("hash"):
            raise CommitUnknownError(f"{self._client} answered a commit to {branch} without the branch's new hash")
        return answer

    def require_branch(self, place: Place, branch: str) -> None:
        """Raise `UnsupportedError` for a place that is not at the head of a branch."""
        if not branch:
            raise UnsupportedError(
                f"cannot change {place} in catalog {self._catalog}: {place.ref} is a tag or a commit, and only "
                "branches can be changed; name a branch"
            )

    def refused(self, refusal: Refusal, what: str, ref: Ref) -> IcebergError:
        """Return the error for a refused request at a reference."""
        if refusal.code == "REFERENCE_NOT_FOUND":
            return NotFoundError(
                f"there is no branch, tag or commit {ref} in catalog {self._catalog}; check the name after the @, or "
                "the property ref"
            )
        return self._client.denied(what, refusal)


def _is_stale(error: BaseException) -> bool:
    """Tell whether an error response may be due to an older branch than the server's."""
    return isinstance(error, Refusal) and error.status in (400, 404, 409) and not error.has(_NOT_EMPTY)
