"""Nessie's documents: content objects, the operations of a commit, its message and properties. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_iceberg.catalogs.base import TableId
from airflow_iceberg.catalogs.nessie.client import Json
from airflow_iceberg.catalogs.nessie.keys import Key, Ref
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.metadata.table_metadata import TableMetadata
from airflow_iceberg.format.snapshots import MAIN_BRANCH, SnapshotRef

TABLE, NAMESPACE = "ICEBERG_TABLE", "NAMESPACE"
NO_SNAPSHOT = -1
_KINDS = {
    TABLE: "table",
    NAMESPACE: "namespace",
    "ICEBERG_VIEW": "view",
    "UDF": "function",
    "DELTA_LAKE_TABLE": "Delta Lake table",
}

_BRANCH = "BRANCH"


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """A table's content object at a reference: the token of its state.

    Attributes:
        id: the table's id, which a rename does not change.
        branch: the branch that it was read from; "" if it can't be committed to (a tag or a hash).
        hash: the commit that it was read at; at a later one the state is the same, as long as the content is.
    """

    id: str
    metadata_location: str
    snapshot_id: int
    schema_id: int
    spec_id: int
    sort_order_id: int
    branch: str
    hash: str = field(compare=False)

    @classmethod
    def of(cls, metadata: TableMetadata, location: str, *, id: str, branch: str, hash: str) -> Content:
        """Return the content object of a table whose newest metadata is in a file at a location."""
        return cls(
            id=id,
            metadata_location=location,
            snapshot_id=NO_SNAPSHOT if metadata.current_snapshot_id is None else metadata.current_snapshot_id,
            schema_id=metadata.current_schema_id,
            spec_id=metadata.default_spec_id,
            sort_order_id=metadata.default_sort_order_id,
            branch=branch,
            hash=hash,
        )


def read_content(found: Json, reference: Json, asked: Ref) -> Content:
    """Return a table's content object from the server's answer."""
    return Content(
        id=str(found["id"]),
        metadata_location=str(found["metadataLocation"]),
        snapshot_id=int(found.get("snapshotId", NO_SNAPSHOT)),
        schema_id=int(found.get("schemaId", -1)),
        spec_id=int(found.get("specId", -1)),
        sort_order_id=int(found.get("sortOrderId", -1)),
        branch=branch_of(reference, asked),
        hash=str(reference.get("hash") or ""),
    )


def branch_of(reference: Json, asked: Ref) -> str:
    """Return the branch to commit to, or "" for a tag, or for a commit that is named by its hash."""
    is_head_of_branch = reference.get("type") == _BRANCH and not asked.hash
    return str(reference.get("name") or "") if is_head_of_branch else ""


def with_content(metadata: TableMetadata, content: Content) -> TableMetadata:
    """Return the metadata with the current ids of the content, which take precedence.

    Raises:
        FormatError: the metadata has no object of such an id.
    """
    changes: Json = {}
    for name, wanted in (
        ("current_schema_id", content.schema_id),
        ("default_spec_id", content.spec_id),
        ("default_sort_order_id", content.sort_order_id),
    ):
        if wanted >= 0 and wanted != getattr(metadata, name):
            changes[name] = wanted
    if content.snapshot_id not in (NO_SNAPSHOT, metadata.current_snapshot_id):
        main = metadata.refs.get(MAIN_BRANCH) or SnapshotRef(snapshot_id=content.snapshot_id)
        changes["refs"] = {**metadata.refs, MAIN_BRANCH: replace(main, snapshot_id=content.snapshot_id)}
        changes["current_snapshot_id"] = content.snapshot_id
        changes["snapshot_log"] = (*metadata.snapshot_log, (metadata.last_updated_ms, content.snapshot_id))
    if not changes:
        return metadata
    try:
        return replace(metadata, **changes)
    except FormatError as error:
        raise FormatError(
            f"Nessie's content object names what the metadata file doesn't have: {error}",
            path=content.metadata_location,
        ) from error


def describe(table: TableId, base: TableMetadata | None, metadata: TableMetadata) -> tuple[str, dict[str, str]]:
    """Return message and properties of a commit: those of Iceberg Java, and the task of Airflow."""
    known = {snapshot.snapshot_id for snapshot in base.snapshots} if base else set()
    added = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id not in known] if base else []
    properties: dict[str, str] = {}
    if added:
        message = f"Iceberg {added[-1].operation or 'commit'} against {table}"
        properties["iceberg.operation"] = added[-1].operation or ""
        properties |= {key: value for key, value in added[-1].summary.items() if key.startswith("airflow.")}
    elif base is None:
        message = f"Iceberg table created/registered with name {table}"
    elif base.current_schema_id != metadata.current_schema_id:
        message = f"Iceberg schema change against {table}"
    else:
        message = f"Iceberg commit against {table}"
    before = base.properties if base else {}
    properties |= {
        key: value
        for key, value in metadata.properties.items()
        if key.startswith("airflow.") and before.get(key) != value
    }
    if dag := properties.get("airflow.dag-id"):
        task, run = properties.get("airflow.task-id"), properties.get("airflow.run-id")
        message += f"\n\nby task {task} of DAG {dag}, run {run}"
    return message, {key: value for key, value in properties.items() if value}


def table_content(content: Content) -> Json:
    """Return the document of a table's content object; a new one gets its id from the server."""
    return {
        "type": TABLE,
        **({"id": content.id} if content.id else {}),
        "metadataLocation": content.metadata_location,
        "snapshotId": content.snapshot_id,
        "schemaId": content.schema_id,
        "specId": content.spec_id,
        "sortOrderId": content.sort_order_id,
    }


def namespace_content(key: Key, properties: Mapping[str, str]) -> Json:
    """Return the document of a namespace."""
    return {"type": NAMESPACE, "elements": list(key), "properties": dict(properties)}


def put(key: Key, content: Json) -> Json:
    """Return the operation that creates or replaces a content object."""
    return {"type": "PUT", "key": {"elements": list(key)}, "content": content}


def delete(key: Key) -> Json:
    """Return the operation that removes a content object."""
    return {"type": "DELETE", "key": {"elements": list(key)}}


def added_id(answer: Json, key: Key) -> str:
    """Return the id that the answer to a commit gives to a new content object; "" if the key was there before."""
    added = {key_of(each): each["contentId"] for each in answer.get("addedContents") or ()}
    return str(added.get(key, ""))


def has_kind(contents: Mapping[Key, Json], key: Key, kind: str) -> bool:
    """Tell whether there is a content object of a kind under a key."""
    return (contents.get(key) or {}).get("type") == kind


def kind_of(found: Json) -> str:
    """Return the kind of a content or of an entry of a listing, in a word or two."""
    kind = str(found.get("type") or "content of an unknown kind")
    return _KINDS.get(kind, kind)


def key_of(entry: Json) -> Key:
    """Return the key of a content, an operation or a conflict."""
    return tuple(entry["key"]["elements"])


def elements_of(entry: Json) -> Key:
    """Return the key of an entry of a listing."""
    return tuple(entry["name"]["elements"])


def commit_property(entry: Json, name: str) -> str:
    """Return a property of a commit of the history; "" if it has none of the name."""
    meta = entry["commitMeta"]
    # Version 2 answers with lists of values; requests have one value by name.
    value = (meta.get("allProperties") or {}).get(name) or (meta.get("properties") or {}).get(name) or ""
    return str(value[0]) if isinstance(value, list) else str(value)
