"""The REST servers of the tests, and the page that says what each of them does: docs/rest-servers.md.

python -m tests.catalogs.rest_servers            # starts them all, and writes the page anew
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.catalogs.rest_behaviours import BEHAVIOURS, Outcome, Peer, run
from tests.services.iceberg_rest import IcebergRest
from tests.services.lakana import Lakana
from tests.services.nessie import start_nessie_rest
from tests.services.seaweedfs import BUCKET, SeaweedFS

PAGE = Path(__file__).parents[2] / "docs" / "rest-servers.md"
HEAD = """# What REST servers do

What this catalog rests on in a server with the Iceberg REST protocol, and which of the servers that it is tested with
does it. The tables are made by a run of the tests on the real servers.

- **yes**: the server does it.
- **no**: it does not; the column on the right says what happens then. Nothing else is lost.
- **no: `Error`**: the call fails with this error, which says what the server made of it. What was told as done was read
  back.

Credentials are lent only by servers that are set up for it; these are not. For Nessie, use [`type=nessie`](nessie.md).
"""


@contextmanager
def iceberg_java() -> Iterator[Peer]:
    server = IcebergRest().start()
    try:
        yield Peer(name="Iceberg Java 1.11", properties=server.catalog_properties)
    finally:
        server.stop()


@contextmanager
def seaweedfs() -> Iterator[Peer]:
    server = SeaweedFS().start()
    try:
        yield Peer(name="SeaweedFS 4.48", properties=server.catalog_properties)
    finally:
        server.stop()


@contextmanager
def nessie() -> Iterator[Peer]:
    store = SeaweedFS().start()
    try:
        server, uri = start_nessie_rest(store)
        own = {"allowed-locations": f"s3://{BUCKET}/", "header.X-Iceberg-Access-Delegation": "none"}
        given = {"type": "rest", "uri": uri, "warehouse": "wh", **store.s3_properties, **own}
        try:
            yield Peer(name="Nessie 0.99", properties=given)
        finally:
            server.stop()
    finally:
        store.stop()


@contextmanager
def lakana() -> Iterator[Peer]:
    server = Lakana().start()
    try:
        yield Peer(name="Lakana 0.20", properties=server.catalog_properties, space="bronze")
    finally:
        server.stop()


SERVERS = {"Iceberg Java 1.11": iceberg_java, "SeaweedFS 4.48": seaweedfs, "Nessie 0.99": nessie, "Lakana 0.20": lakana}


def words(peer: Peer) -> dict[tuple[str, str], str]:
    """Return what a server makes of each behaviour, by its group and name, in the page's words."""
    found: dict[tuple[str, str], Outcome] = {(one.group, one.name): outcome for one, outcome in run(peer)}
    return {key: outcome.word for key, outcome in found.items()}


def page(found: Mapping[str, Mapping[tuple[str, str], str]]) -> str:
    """Return the page, made of the words of each server."""
    lines = [HEAD.rstrip()]
    for number, one in enumerate(BEHAVIOURS):
        if number == 0 or BEHAVIOURS[number - 1].group != one.group:
            names = " | ".join(found)
            lines += ["", f"## {one.group}", "", f"| | {names} | without it |", f"|{' --- |' * (len(found) + 2)}"]
        cells = " | ".join(each[one.group, one.name] for each in found.values())
        lines.append(f"| {one.name} | {cells} | {one.without} |")
    return "\n".join(lines) + "\n"


def on_page(text: str) -> dict[str, dict[tuple[str, str], str]]:
    """Return the words of each server that a page has; the opposite of `page`."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    group, names = "", [""]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            group = line[3:]
        elif line.startswith("| | "):
            names = cells[1:-1]
        elif line.startswith("| ") and " --- " not in line:
            for name, word in zip(names, cells[1:-1], strict=True):
                found.setdefault(name, {})[group, cells[0]] = word
    return found


def main() -> None:
    found = {}
    for name, start in SERVERS.items():
        with start() as peer:
            found[name] = words(peer)
    PAGE.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
