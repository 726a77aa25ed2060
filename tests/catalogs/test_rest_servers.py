"""What real REST servers do, and what becomes of it with our client; docs/rest-servers.md is made from these runs.

Each behaviour checks itself that nothing is told as done that a fresh catalog does not find.
"""

from pathlib import Path

import pytest

from tests.catalogs.rest_behaviours import BEHAVIOURS, Peer, run
from tests.catalogs.rest_servers import PAGE, SERVERS, on_page, page, words
from tests.support.rest_server import RestServer


def test_the_page_has_the_whole_list() -> None:
    assert len(BEHAVIOURS) >= 60
    text = PAGE.read_text(encoding="utf-8")
    found = on_page(text)
    assert list(found) == list(SERVERS)
    assert page(found) == text, "run python -m tests.catalogs.rest_servers"


@pytest.mark.services
@pytest.mark.parametrize("name", SERVERS)
def test_a_server_does_what_the_page_says(name: str) -> None:
    with SERVERS[name]() as peer:
        found = words(peer)
    on_it = on_page(PAGE.read_text(encoding="utf-8"))[name]
    assert found == on_it, "run python -m tests.catalogs.rest_servers if the server has changed"


@pytest.mark.costly
def test_a_right_server_does_all_that_our_client_cannot_do_without(tmp_path: Path) -> None:
    with RestServer(tmp_path.as_uri()) as server:
        given = {"type": "rest", "uri": server.uri, "allowed-locations": tmp_path.as_uri()}
        found = {one.name: outcome for one, outcome in run(Peer(name="ours", properties=given))}
    assert {name: outcome.word for name, outcome in found.items() if not outcome.is_done} == {
        "says which endpoints it has": "no",
        "looks for a table without loading it (HEAD)": "no",
        "looks for a namespace without loading it (HEAD)": "no",
        "says in an answer to HEAD that it is one of JSON": "no",
        "takes idempotency keys": "no",
        "lists in pages of the asked size": "no",
        "sends a table only if it has changed (ETag, 304)": "no",
        "lends credentials for the files of a table": "no",
        "deletes the files of a purged table": "no",
    }
