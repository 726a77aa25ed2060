"""A REST catalog on loopback that keeps documents of metadata as they are, and touches no file.

It believes what it is told, as a server does whose tables an attacker commits to. Not here: what a real server checks
(`tests/services/iceberg_rest.py`).
"""

import json
import uuid
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.support.http_server import HttpServer, Reply, Request, document


class RestStandIn(HttpServer):
    """Serves the tables that it was given.

    Attributes:
        tables: (metadata location, document) by "namespace.name".
        spaces: the properties of namespaces, by their levels with dots between; there are those of tables, too.
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.tables: dict[str, tuple[str, dict[str, Any]]] = {}
        self.spaces: dict[str, dict[str, str]] = {}

    def _answer(self, request: Request) -> Reply:
        path, _, query = request.path.partition("?")
        if path.endswith("/config"):
            return document({"defaults": {}, "overrides": {}})
        parts = [unquote(part).replace("\x1f", ".") for part in path.split("/")[2:]]  # without "/v1"
        namespaces = self._namespaces()
        if parts == ["namespaces"]:
            if request.method == "POST":
                asked = json.loads(request.body)
                self.spaces[".".join(asked["namespace"])] = asked.get("properties", {})
                return document(asked)
            above = unquote(parse_qs(query).get("parent", [""])[0]).replace("\x1f", ".")
            found = [each.split(".") for each in namespaces if each.rpartition(".")[0] == above]
            return document({"namespaces": found})
        if parts[0] != "namespaces" or parts[1] not in namespaces:
            return _missing("NoSuchNamespaceException")
        if len(parts) == 2 and request.method == "DELETE":
            self.spaces.pop(parts[1], None)
            return Reply(status=204, body=b"")
        if len(parts) == 2:
            return document({"namespace": parts[1].split("."), "properties": self.spaces.get(parts[1], {})})
        if len(parts) == 3 and parts[2] == "tables":
            split = (each.rpartition(".") for each in sorted(self.tables))
            found = [name for space, _, name in split if space == parts[1]]
            return document({"identifiers": [{"namespace": parts[1].split("."), "name": each} for each in found]})
        if parts[2] == "register":
            return self._register(parts[1], json.loads(request.body))
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

    def _namespaces(self) -> list[str]:
        """Return all namespaces, with those above them."""
        known = {name.rpartition(".")[0] for name in self.tables} | {"db", *self.spaces}
        levels = [name.split(".") for name in known]
        return sorted({".".join(each[: depth + 1]) for each in levels for depth in range(len(each))})

    def _register(self, space: str, asked: dict[str, Any]) -> Reply:
        """Give another name to a table that it has; it reads no file."""
        found = next((each for each in self.tables.values() if each[0] == asked["metadata-location"]), None)
        if found is None:
            return _missing("NoSuchTableException")
        self.tables[f"{space}.{asked['name']}"] = found
        return document({"metadata-location": found[0], "metadata": found[1], "config": {}})

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
    elif action == "set-statistics":
        others = [each for each in table.get("statistics", []) if each["snapshot-id"] != update["snapshot-id"]]
        table["statistics"] = [*others, update["statistics"]]
    elif action == "remove-snapshot-ref":
        table["refs"].pop(update["ref-name"], None)
    elif action == "set-location":
        table["location"] = update["location"]


def _missing(kind: str) -> Reply:
    return document({"error": {"message": "it is not there", "type": kind, "code": 404}}, status=404)
