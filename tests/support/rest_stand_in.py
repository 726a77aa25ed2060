"""A REST catalog on loopback that keeps documents of metadata as they are, and touches no file.

It believes what it is told, as a server does whose tables an attacker commits to. Not here: what a real server checks
(`tests/services/iceberg_rest.py`).
"""

import json
import uuid
from typing import Any
from urllib.parse import unquote

from tests.support.http_server import HttpServer, Reply, Request, document


class RestStandIn(HttpServer):
    """Serves the tables that it was given.

    Attributes:
        tables: (metadata location, document) by "namespace.name".
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.tables: dict[str, tuple[str, dict[str, Any]]] = {}

    def _answer(self, request: Request) -> Reply:
        path = unquote(request.path.partition("?")[0])
        if path.endswith("/config"):
            return document({"defaults": {}, "overrides": {}})
        parts = path.split("/")[2:]  # without "/v1"
        namespaces = sorted({name.rpartition(".")[0] for name in self.tables} | {"db"})
        if parts == ["namespaces"]:
            return document({"namespaces": [[each] for each in namespaces] if "parent=" not in request.path else []})
        if parts[0] != "namespaces" or parts[1] not in namespaces:
            return _missing("NoSuchNamespaceException")
        if len(parts) == 2:
            return document({"namespace": [parts[1]], "properties": {}})
        if len(parts) == 3 and parts[2] == "tables":
            found = [each.rpartition(".")[2] for each in sorted(self.tables) if each.startswith(f"{parts[1]}.")]
            return document({"identifiers": [{"namespace": [parts[1]], "name": each} for each in found]})
        name = f"{parts[1]}.{parts[-1]}"
        if parts[2] != "tables" or name not in self.tables:
            return _missing("NoSuchTableException")
        if request.method == "DELETE":
            del self.tables[name]
            return Reply(status=204, body=b"")
        if request.method == "HEAD":
            return Reply(status=204, body=b"")
        if request.method == "POST":
            self._commit(name, json.loads(request.body))
        place, metadata = self.tables[name]
        return document({"metadata-location": place, "metadata": metadata, "config": {}})

    def _commit(self, name: str, body: dict[str, Any]) -> None:
        place, metadata = self.tables[name]
        metadata = json.loads(json.dumps(metadata))
        for update in body["updates"]:
            _apply(metadata, update)
        self.tables[name] = f"{place.rpartition('/')[0]}/{uuid.uuid4()}.metadata.json", metadata


def _apply(table: dict[str, Any], update: dict[str, Any]) -> None:
    action = update["action"]
    if action == "add-snapshot":
        table["snapshots"].append(update["snapshot"])
        table["last-sequence-number"] = max(table["last-sequence-number"], update["snapshot"]["sequence-number"])
        table["last-updated-ms"] = max(table["last-updated-ms"], update["snapshot"]["timestamp-ms"])
    elif action == "set-snapshot-ref":
        ref = {key: value for key, value in update.items() if key not in ("action", "ref-name")}
        table.setdefault("refs", {})[update["ref-name"]] = ref
        if update["ref-name"] == "main":
            table["current-snapshot-id"] = ref["snapshot-id"]
            moment = table["last-updated-ms"]
            table["snapshot-log"].append({"timestamp-ms": moment, "snapshot-id": ref["snapshot-id"]})
    elif action == "remove-snapshots":
        gone = update["snapshot-ids"]
        table["snapshots"] = [each for each in table["snapshots"] if each["snapshot-id"] not in gone]
        table["snapshot-log"] = [each for each in table["snapshot-log"] if each["snapshot-id"] not in gone]
    elif action == "set-properties":
        table["properties"] |= update.get("updates") or update["updated"]
    elif action == "remove-properties":
        for key in update.get("removals") or update["removed"]:
            table["properties"].pop(key, None)
    elif action == "set-location":
        table["location"] = update["location"]


def _missing(kind: str) -> Reply:
    return document({"error": {"message": "it is not there", "type": kind, "code": 404}}, status=404)
