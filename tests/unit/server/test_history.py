"""The journal on the secure port, with the caller's own token."""

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import aiohttp
import pytest

from pileus.clock import SystemClock
from pileus.server.history import ENTRIES, history_routes
from pileus.server.port import PortContext, secured
from pileus.server.reviews import Delegates, Verdict
from pileus.server.settings import ServerSettings
from pileus.server.users import User
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.journal import Entry, Journal, Line, Subject
from pileus.telemetry.metrics import Metrics
from tests.unit.server.people import client_context

pytestmark = pytest.mark.real_time

NOW = datetime(2026, 11, 17, tzinfo=UTC)


class Tokens:
    async def review(self, token: str) -> User | None:
        return {"dev": User("developer"), "guest": User("guest")}.get(token)


class Access:
    async def review(self, user: User, verb: str, path: str) -> Verdict:
        return Verdict(allowed=(user.name, verb, path) == ("developer", "get", ENTRIES))


def journal_of(*names: str) -> Journal:
    journal = Journal(NOW, identity="host_1")
    for name in names:
        plan = (Line(place="cluster", action="update", summary="addresses"),)
        about = Subject(kind="Node", name=name)
        journal.add(
            Entry(
                at=NOW,
                first=NOW,
                object=about,
                controller="cloud-node",
                seconds=0.1,
                plan=plan,
                result="done",
            )
        )
    return journal


@asynccontextmanager
async def site(journal: Journal) -> AsyncGenerator[str]:
    """Serves the journal; its URL."""
    metrics = Metrics(MetricRegistry())
    listener = socket.create_server(("127.0.0.1", 0))
    around = PortContext(metrics, SystemClock(), Delegates(Tokens(), Access()))
    async with (
        secured(listener, ServerSettings(), around) as port,
        port.serving(history_routes(journal, SystemClock())) as address,
    ):
        yield f"https://127.0.0.1:{address.port}"


async def answer(url: str, *, method: str = "GET", **headers: str) -> tuple[int, str]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_context())) as session,
        session.request(method, url, headers=named) as response,
    ):
        return response.status, await response.text()


async def test_a_caller_with_the_right_reads_what_it_asks_for() -> None:
    async with site(journal_of("web-1", "web-2")) as url:
        status, text = await answer(
            f"{url}{ENTRIES}?kind=Node&name=web-2", Authorization="Bearer dev"
        )

    found = json.loads(text)
    assert (status, found["version"], found["identity"], found["sequence"]) == (200, 1, "host_1", 2)
    assert [each["object"]["name"] for each in found["entries"]] == ["web-2"]
    assert found["entries"][0]["plan"] == [
        {"place": "cluster", "action": "update", "summary": "addresses"}
    ]


async def test_the_token_may_come_in_the_header_that_the_proxy_of_the_api_server_passes() -> None:
    async with site(journal_of("web-1")) as url:
        status, _ = await answer(f"{url}{ENTRIES}", X_Pileus_Authorization="Bearer dev")
        wrong, _ = await answer(f"{url}{ENTRIES}", X_Pileus_Authorization="Bearer nonsense")
        both, _ = await answer(
            f"{url}{ENTRIES}", Authorization="Bearer guest", X_Pileus_Authorization="Bearer dev"
        )

    assert (status, wrong, both) == (200, 401, 403)


async def test_a_caller_without_the_right_or_without_a_token_is_refused() -> None:
    async with site(journal_of("web-1")) as url:
        guest = await answer(f"{url}{ENTRIES}", Authorization="Bearer guest")
        nobody = await answer(f"{url}{ENTRIES}")

    assert guest[0] == nobody[0] == 403
    assert 'User \\"guest\\" cannot get path \\"/history/v1/entries\\"' in guest[1]
    assert "web-1" not in guest[1] + nobody[1]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("nmae=web-1", 'unknown parameter "nmae" (known: kind, namespace, name, controller, after'),
        ("limit=many", 'parameter limit must be a whole number, but got "many"'),
        ("limit=0", "parameter limit must be at least 1, but got 0"),
        ("limit=-1", 'parameter limit must be a whole number, but got "-1"'),
        ("after=-1", 'parameter after must be a whole number, but got "-1"'),
    ],
)
async def test_a_wrong_query_is_answered_with_what_is_wrong(query: str, text: str) -> None:
    async with site(journal_of("web-1")) as url:
        status, said = await answer(f"{url}{ENTRIES}?{query}", Authorization="Bearer dev")

    assert status == 400
    assert text in said


async def test_nothing_can_be_written() -> None:
    async with site(journal_of("web-1")) as url:
        status, _ = await answer(f"{url}{ENTRIES}", method="DELETE", Authorization="Bearer dev")

    assert status == 403


async def test_the_page_is_for_everyone_and_has_nothing_of_the_cluster() -> None:
    async with site(journal_of("very-own-node")) as url:
        found = {
            name: await answer(f"{url}/history/{name}") for name in ("", "page.css", "page.js")
        }
        moved = await answer(f"{url}/history")
        posted, _ = await answer(f"{url}/history/", method="POST")
        elsewhere, _ = await answer(f"{url}/history/page.css/..%2fv1/entries")

    assert {status for status, _ in found.values()} == {200}
    assert moved == found[""]
    assert (posted, elsewhere) == (405, 403)
    assert not any("very-own-node" in text for _, text in found.values())
    assert "<script>" not in found[""][1]
    assert " style=" not in found[""][1]
    assert "http" not in found[""][1]


async def test_the_page_may_load_nothing_from_elsewhere() -> None:
    async with (
        site(journal_of()) as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_context())) as session,
        session.get(f"{url}/history/") as response,
    ):
        policy = response.headers["Content-Security-Policy"]

    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["Referrer-Policy"] == "no-referrer"
