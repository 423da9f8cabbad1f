"""The page of the history in a real browser (`make test-browser`)."""

import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from pileus.telemetry.journal import (
    Call,
    Entry,
    HttpRequest,
    Journal,
    Line,
    Subject,
    Write,
)
from tests.browser.chromium import Page, browser
from tests.unit.server.test_history import site

PROGRAM = os.environ.get("PILEUS_BROWSER", "")
SHOTS = os.environ.get("PILEUS_SCREENSHOTS", "")
"""A folder for screenshots, to look at them."""
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not PROGRAM, reason="no browser: PILEUS_BROWSER is not set (see make test-browser)"
    ),
]
SHOP = "balancer default-shop on 80/TCP with members web-1, web-2"
EVIL = '<img src=x onerror="window.hurt = 1">'


def shop(now: datetime) -> Entry:
    request = HttpRequest(
        request="POST /v2.0/lbaas/loadbalancers",
        status=201,
        seconds=0.3,
        id="req-5f1f9d3c-58a2-4a1e-9b5b-0d6ce07f4a11",
    )
    finalizer = Line(
        place="cluster",
        action="update",
        summary="finalizer, condition pileus.dev/Served",
        details=("metadata.finalizers: with service.kubernetes.io/load-balancer-cleanup",),
    )
    write = Write(
        request="PATCH /api/v1/namespaces/default/services/shop/status",
        started=0.4,
        seconds=0.05,
        status=200,
        id="f2781d39-bafe-469e-b1b4-09e7b8dc4b91",
    )
    call = Call(method="balancers.apply", started=0.1, seconds=0.31, is_write=True)
    return Entry(
        at=now - timedelta(seconds=40),
        first=now,
        object=Subject(kind="Service", namespace="default", name="shop"),
        controller="service-lb-controller",
        seconds=0.487,
        observed="no load balancer",
        plan=(finalizer, Line(place="cloud", action="create", summary=SHOP)),
        calls=(msgspec.structs.replace(call, requests=(request,)),),
        writes=(write,),
        result="done",
        next_in=720.0,
    )


def web_3(now: datetime) -> Entry:
    call = Call(
        method="instances.find",
        items=3,
        started=0.0,
        seconds=30.0,
        result="Unavailable",
        message="GET /servers: no answer within 30 s",
    )
    return Entry(
        at=now - timedelta(seconds=5),
        first=now,
        object=Subject(kind="Node", name="web-3"),
        controller="cloud-node-controller",
        seconds=30.1,
        observed="unknown: Unavailable: no answer within 30 s",
        plan=(Line(reason="CloudUnavailable", summary=f"no answer within 30 s {EVIL}"),),
        calls=(call,),
        result="failed",
        message="no answer within 30 s",
        next_in=16.0,
    )


def journal() -> Journal:
    now = datetime.now(UTC)
    made = Journal(now - timedelta(hours=2), identity="control-1_1f0c")
    for each in (shop(now), web_3(now), web_3(now), web_3(now)):
        made.add(each)
    return made


@asynccontextmanager
async def opened(folder: Path, book: Journal) -> AsyncGenerator[Page]:
    async with site(book) as url, browser(Path(PROGRAM), folder) as page:
        await page.size(1280, 800)
        await page.open(f"{url}/history/")
        await page.permit_clipboard(permitted=True)
        yield page


async def sign_in(page: Page, token: str = "dev") -> None:
    await page.value(f"document.getElementById('token').value = '{token}'")
    await page.value("document.querySelector('#sign-in button').click()")


async def cards(page: Page) -> list[str]:
    """The text of all cards, opened."""
    await page.value(
        "for (const each of document.querySelectorAll('#entries details')) each.open = true"
    )
    return await page.value("[...document.querySelectorAll('#entries > li')].map(e => e.innerText)")


async def test_a_reader_signs_in_and_sees_the_timeline(tmp_path: Path) -> None:
    async with opened(tmp_path, journal()) as page:
        await shoot(page, "sign-in")
        await sign_in(page)
        await page.until("document.querySelectorAll('#entries > li').length === 2")
        await page.size(400, 844)
        await shoot(page, "400-collapsed")
        await page.size(1280, 900)
        await shoot(page, "1280-collapsed")
        found = await cards(page)
        for width, height, dark in ((1280, 900, False), (1280, 900, True), (400, 844, False)):
            await page.size(width, height, dark=dark)
            wide = await page.value("document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0, f"the page is wider than {width} columns"
            await shoot(page, f"{width}-{'dark' if dark else 'light'}")
        kept = await page.value(
            "[location.href, localStorage.length, sessionStorage.length, document.cookie]"
        )

    assert "Node web-3" in found[0]  # the newest first
    assert "3 times" in found[0]
    assert "req-5f1f9d3c-58a2-4a1e-9b5b-0d6ce07f4a11" in found[1]
    assert "+ cloud: balancer default-shop on 80/TCP with members web-1, web-2" in found[1]
    assert kept[1:] == [0, 0, ""]
    assert "dev" not in kept[0]
    assert all("dev" not in request["url"] for request in page.requests)
    assert page.complaints == []


async def test_cards_are_collapsed_stay_open_once_opened_and_can_be_copied(tmp_path: Path) -> None:
    book = journal()
    async with opened(tmp_path, book) as page:
        await sign_in(page)
        await page.until("document.querySelectorAll('#entries > li').length === 2")
        closed = await page.value(
            "[...document.querySelectorAll('#entries > li')].map(e => e.innerText)"
        )
        await page.value("document.querySelector('#entries > li.done details').open = true")
        now = datetime.now(UTC)
        about = Subject(kind="Node", name="web-9")
        plan = (Line(place="cluster", action="delete", summary="delete node"),)
        entry = Entry(
            at=now, first=now, object=about, controller="x", seconds=1, plan=plan, result="done"
        )
        book.add(entry)
        await page.until("document.querySelectorAll('#entries > li').length === 3")
        still = await page.value(
            "[...document.querySelectorAll('#entries details')].map(e => e.open)"
        )
        await page.value("document.querySelectorAll('#entries .copy')[2].click()")
        await page.until("document.querySelectorAll('#entries .copy')[2].textContent === 'copied'")
        copied = msgspec.json.decode(await page.value("navigator.clipboard.readText()"))

    assert copied["object"] == {"kind": "Service", "namespace": "default", "name": "shop"}
    assert copied["plan"][1]["summary"] == SHOP
    assert copied["calls"][0]["requests"][0]["id"] == "req-5f1f9d3c-58a2-4a1e-9b5b-0d6ce07f4a11"
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+s ago, 3 times\)", closed[0])
    assert "no answer within 30 s" in closed[0]
    assert "instances.find" not in closed[0]
    assert "~ cluster: finalizer, condition pileus.dev/Served and 1 more" in closed[1]
    assert "req-5f1f9d3c" not in closed[1]
    assert still == [False, False, True]


async def test_an_entry_can_be_selected_where_the_page_may_not_use_the_clipboard(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, journal()) as page:
        await page.permit_clipboard(permitted=False)
        await sign_in(page)
        await page.until("document.querySelectorAll('#entries > li').length === 2")
        await cards(page)
        await page.value("document.querySelectorAll('#entries .copy')[1].click()")
        await page.until("document.querySelector('#entries pre') !== null")
        selected = msgspec.json.decode(await page.value("window.getSelection().toString()"))

    assert selected["object"]["name"] == "shop"
    assert selected["plan"][1]["summary"] == SHOP


async def test_an_empty_timeline_says_why(tmp_path: Path) -> None:
    empty = (
        "document.getElementById('empty').hidden ? '' : document.getElementById('empty').innerText"
    )
    book = Journal(datetime.now(UTC), identity="control-1_1f0c")
    async with opened(tmp_path, book) as page:
        await sign_in(page)
        await page.until("!document.getElementById('view').hidden")
        nothing = await page.value(empty)
        await page.size(400, 844)
        await shoot(page, "400-empty")
        book.add(shop(datetime.now(UTC)))
        await page.until("document.querySelectorAll('#entries > li').length === 1")
        something = await page.value(empty)
        await page.value("document.getElementById('filter-object').value = 'other'")
        await page.value(
            "document.getElementById('filter-object').dispatchEvent(new Event('input'))"
        )
        filtered = await page.value(empty)

    assert nothing.startswith("No decisions since the manager started")
    assert something == ""
    assert filtered.startswith("No decision matches the filters")


async def test_what_an_entry_says_is_shown_as_text(tmp_path: Path) -> None:
    async with opened(tmp_path, journal()) as page:
        await sign_in(page)
        await page.until("document.querySelectorAll('#entries > li').length === 2")

        assert EVIL in (await cards(page))[0]
        assert await page.value("window.hurt === undefined")
        assert await page.value("document.querySelectorAll('#entries img').length") == 0


async def test_filters_narrow_the_timeline_and_new_decisions_appear(tmp_path: Path) -> None:
    book = journal()
    async with opened(tmp_path, book) as page:
        await sign_in(page)
        await page.until("document.querySelectorAll('#entries > li').length === 2")
        await page.value("document.querySelector('#entries > li.done .object').click()")
        assert [text.split("\n")[0] for text in await cards(page)] == ["Service default/shop"]
        await page.value("document.getElementById('filter-object').value = ''")
        now = datetime.now(UTC)
        plan = (Line(place="cluster", action="delete", summary="delete node"),)
        about = Subject(kind="Node", name="web-9")
        entry = Entry(
            at=now, first=now, object=about, controller="x", seconds=1, plan=plan, result="done"
        )
        book.add(entry)
        await page.until("document.querySelectorAll('#entries > li').length === 3")

        assert "Node web-9" in (await cards(page))[0]


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("nonsense", "The token is invalid or expired. Create a new one: kubectl create token"),
        ("guest", 'User "guest" cannot get path "/history/v1/entries". Ask an administrator'),
    ],
)
async def test_a_token_without_rights_gets_a_sentence(
    tmp_path: Path, token: str, text: str
) -> None:
    async with opened(tmp_path, journal()) as page:
        await sign_in(page, token)
        await page.until("!document.getElementById('problem').hidden")
        said = await page.value("document.getElementById('problem').innerText")
        shown = await page.value("document.getElementById('view').hidden")

    assert text in said
    assert shown is True


async def test_a_standby_says_that_it_decides_nothing(tmp_path: Path) -> None:
    book = journal()
    book.leads = lambda: False
    async with opened(tmp_path, book) as page:
        await sign_in(page)
        await page.until("!document.getElementById('problem').hidden")
        said = await page.value("document.getElementById('problem').innerText")

    assert said.startswith("control-1_1f0c is not the leader")


async def shoot(page: Page, name: str) -> None:
    if SHOTS:
        await page.screenshot(Path(SHOTS) / f"history-{name}.png")
