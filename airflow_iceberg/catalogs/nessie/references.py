"""Branches and tags of a Nessie server: list, create, merge, move and delete them.

Nessie's branches hold every table of the catalog. The branches of one Iceberg table, in its metadata, are others.

A lost answer is resolved by reading: the reference has its hash, and a merge has its id in the history.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from airflow_iceberg.catalogs.names import join_levels
from airflow_iceberg.catalogs.nessie.client import Json, NessieClient, Refusal, ref_path
from airflow_iceberg.catalogs.nessie.contents import commit_property
from airflow_iceberg.catalogs.nessie.keys import DEFAULT, Ref
from airflow_iceberg.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    IcebergError,
    IncompatibleChangeError,
    InvalidInputError,
    NotFoundError,
)

log = logging.getLogger(__name__)

Kind = Literal["BRANCH", "TAG"]

# The property by which a merge commit is found in the history.
_MERGE_ID = "airflow-iceberg.merge-id"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Reference:
    """A branch or a tag of the whole catalog, and the commit that it is at."""

    name: str
    kind: Kind
    hash: str


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class MergeConflict:
    """A table or namespace that was changed on both sides.

    Attributes:
        key: its name, `sales.orders`.
        kind: Nessie's word for the conflict, such as VALUE_DIFFERS.
    """

    key: str
    kind: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeReport:
    """The result of a merge, or of a dry run.

    Attributes:
        applied: the target was changed; False for a dry run, for conflicts, and if there was nothing to merge.
        hash: hash of the target branch afterwards.
        keys: names of the merged tables and namespaces.
        conflicts: the conflicts; the target is not changed if there are any.
    """

    source: str
    into: str
    applied: bool
    hash: str
    keys: tuple[str, ...] = ()
    conflicts: tuple[MergeConflict, ...] = ()


class NessieReferences:
    """The branches and tags of a server.

    Args:
        own: the catalog's reference: the default source of new ones, and the default target of merges.
        author: author of merge commits.
    """

    def __init__(self, catalog: str, client: NessieClient, *, own: Ref, author: str) -> None:
        self._catalog = catalog
        self._client = client
        self._own = own
        self._author = author

    def list(self) -> tuple[Reference, ...]:
        """Return all branches and tags, sorted by name."""
        try:
            return tuple(sorted(_reference(each) for each in self._client.pages("trees", "references")))
        except Refusal as error:
            raise self._client.denied("list branches and tags", error) from error

    def get(self, name: str | None = None) -> Reference:
        """Return a branch or tag by its name, by default the catalog's own; `NotFoundError` if there is none."""
        ref = Ref.parse(name) if name else self._own
        try:
            if ref.hash is None:
                return _reference(self._client.get(ref.path)["reference"])
            # A reference at a hash cannot be read; the answer to a listing has it.
            answer = self._client.get(f"{ref.path}/entries", {"max-records": "1"})
            return _reference(answer["effectiveReference"])
        except Refusal as error:
            raise self._refused(error, f"read {ref}", ref) from error

    def exists(self, name: str) -> bool:
        """Tell whether there is a branch or tag of the name."""
        try:
            self.get(name)
        except NotFoundError:
            return False
        return True

    def create_branch(self, name: str, *, source: str | None = None, if_not_exists: bool = False) -> Reference:
        """Create a branch at a branch, tag or "name@hash", by default the catalog's own; files are not copied.

        Raises:
            AlreadyExistsError: the name is taken (`if_not_exists`: only if it is a tag).
            NotFoundError: there is no such source.
        """
        return self._create(name, "BRANCH", source, if_not_exists)

    def create_tag(self, name: str, *, source: str | None = None, if_not_exists: bool = False) -> Reference:
        """Create a tag; see `create_branch`."""
        return self._create(name, "TAG", source, if_not_exists)

    def delete(self, name: str, *, expected_hash: str | None = None) -> None:
        """Delete a branch or tag; commits that only it has become unreachable.

        Args:
            expected_hash: its expected hash; by default its hash at the moment of the call.
        Raises:
            CommitConflictError: it has moved meanwhile; it was not deleted.
        """
        self._check_no_hash(name)
        found = self.get(name)
        path = ref_path(name, expected_hash or found.hash)
        try:
            self._client.change("DELETE", path, params={"type": found.kind}, body=None)
        except Refusal as error:
            if error.code == "REFERENCE_NOT_FOUND" and not self.exists(name):
                return  # deleted by another writer, or by us, when the request was sent twice
            raise self._moved(error, f"delete {name}", Ref.parse(name)) from error
        except CommitUnknownError:
            if self.exists(name):
                raise
            log.warning("the answer to the deletion of %s was lost; it is deleted", name)

    def assign(self, name: str, to: str, *, expected_hash: str | None = None) -> Reference:
        """Move a branch or tag to the hash of another reference; commits that only it had become unreachable.

        Raises:
            CommitConflictError: it has moved meanwhile; it was not changed.
        """
        self._check_no_hash(name)
        found, target = self.get(name), self.get(to)
        path = ref_path(name, expected_hash or found.hash)
        body = {"type": target.kind, "name": target.name, "hash": target.hash}
        try:
            answer = self._client.change("PUT", path, params={"type": found.kind}, body=body)
            return _reference(answer["reference"])
        except Refusal as error:
            raise self._moved(error, f"move {name} to {to}", Ref.parse(name)) from error
        except CommitUnknownError:
            now = self.get(name)
            if now.hash != target.hash:
                raise
            log.warning("the answer to moving %s was lost; it is at %s", name, now.hash)
            return now

    def merge(
        self,
        source: str,
        *,
        into: str | None = None,
        message: str | None = None,
        properties: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> MergeReport:
        """Merge all commits of another reference into a branch, or none; a repeated merge changes nothing.

        Args:
            source: a branch, tag or "name@hash".
            into: a branch; by default the catalog's own.
            properties: properties of the merge commit, besides Nessie's and ours.
            dry_run: whether the result is only reported.
        Raises:
            IncompatibleChangeError: a table was changed on both sides; the message lists all. Nothing was changed.
        """
        target = self.get(into)
        if target.kind != "BRANCH" or (Ref.parse(into) if into else self._own).hash:
            raise InvalidInputError(f"cannot merge into {into or self._own}: only a branch can be merged into")
        there = self.get(source)
        mark = str(uuid.uuid4())
        meta = {
            "message": message or f"Merge {there.name or there.hash} into {target.name}",
            "authors": [self._author],
            "properties": {**(properties or {}), "application-type": "iceberg", _MERGE_ID: mark},
        }
        body = {
            "fromRefName": there.name or "DETACHED",
            "fromHash": there.hash,
            "commitMeta": meta,
            "isDryRun": dry_run,  # the server's word; its API document says dryRun, which it ignores
            "isReturnConflictAsResult": True,
        }
        try:
            path = f"{ref_path(target.name, target.hash)}/history/merge"
            answer = self._client.change("POST", path, body=body)
        except Refusal as error:
            raise self._moved(error, f"merge {source} into {target.name}", Ref.parse(source)) from error
        except CommitUnknownError as error:
            return self._resolve_merge(there, target, mark, error)
        report = _report(there, target, answer)
        if report.conflicts and not dry_run:
            listed = ", ".join(f"{each.key} ({each.kind})" for each in report.conflicts)
            raise IncompatibleChangeError(
                f"cannot merge {report.source} into {report.into} of catalog {self._catalog}: changed on both sides: "
                f"{listed}; nothing was merged, bring these tables into line first"
            )
        return report

    def _resolve_merge(self, source: Reference, target: Reference, mark: str, error: CommitUnknownError) -> MergeReport:
        try:
            for entry in self._client.pages(f"{ref_path(target.name)}/history", "logEntries"):
                hash_ = str(entry["commitMeta"]["hash"])
                if hash_ == target.hash:
                    break
                if commit_property(entry, _MERGE_ID) == mark:
                    log.warning("the answer to a merge into %s was lost; it is in the history", target.name)
                    return MergeReport(source=source.name, into=target.name, applied=True, hash=hash_)
        except IcebergError as unreadable:
            raise error from unreadable
        raise error

    def _create(self, name: str, kind: Kind, source: str | None, if_not_exists: bool) -> Reference:
        self._check_no_hash(name)
        at = self.get(source)
        wanted = Reference(name=name, kind=kind, hash=at.hash)
        # A commit alone has no name of a branch.
        source_of = {"type": at.kind, "name": at.name} if at.name else {"type": "DETACHED"}
        body: Json = {**source_of, "hash": at.hash}
        try:
            answer = self._client.change("POST", "trees", params={"name": name, "type": kind}, body=body)
            return _reference(answer["reference"])
        except Refusal as error:
            if error.code == "REFERENCE_ALREADY_EXISTS":
                found = self.get(name)
                if if_not_exists and found.kind == kind:
                    return found
                raise AlreadyExistsError(
                    f"there is a {found.kind.lower()} {name} already in catalog {self._catalog}"
                ) from error
            raise self._refused(error, f"create {kind.lower()} {name}", Ref.parse(name)) from error
        except CommitUnknownError as error:
            with suppress(NotFoundError):
                if self.get(name) == wanted:
                    log.warning("the answer to the creation of %s was lost; it exists", name)
                    return wanted
            raise error

    def _check_no_hash(self, name: str) -> None:
        if Ref.parse(name).hash or name == DEFAULT:
            raise InvalidInputError(f"'{name}' is not the name of a branch or tag")

    def _moved(self, refusal: Refusal, what: str, ref: Ref) -> IcebergError:
        if refusal.status == 409:
            return CommitConflictError(
                f"cannot {what} in catalog {self._catalog}: it was moved meanwhile: {refusal}; get it again"
            )
        return self._refused(refusal, what, ref)

    def _refused(self, refusal: Refusal, what: str, ref: Ref) -> IcebergError:
        if refusal.code == "REFERENCE_NOT_FOUND":
            return NotFoundError(f"there is no branch, tag or commit {ref} in catalog {self._catalog}: {refusal}")
        return self._client.denied(what, refusal)


def _reference(found: Mapping[str, Any]) -> Reference:
    kind: Kind = "TAG" if found.get("type") == "TAG" else "BRANCH"
    return Reference(name=str(found.get("name") or ""), kind=kind, hash=str(found.get("hash") or ""))


def _report(source: Reference, target: Reference, answer: Json) -> MergeReport:
    details = answer.get("details") or ()
    conflicts = [
        MergeConflict(key=_name(each), kind=str(each["conflict"].get("conflictType")))
        for each in details
        if each.get("conflict")
    ]
    return MergeReport(
        source=source.name or source.hash,
        into=target.name,
        applied=bool(answer.get("wasApplied")),
        hash=str(answer.get("resultantTargetHash") or answer.get("effectiveTargetHash") or target.hash),
        keys=tuple(sorted(_name(each) for each in details)),
        conflicts=tuple(sorted(conflicts)),
    )


def _name(detail: Json) -> str:
    return join_levels(detail["key"]["elements"])
