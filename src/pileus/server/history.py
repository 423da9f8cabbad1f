"""The journal of decisions on the secure port: `/history/v1/entries`, and a page that shows it.

The entries need the right to get their path. The page needs none: it contains nothing about the
cluster, and asks its reader for a token.
"""

from collections.abc import Mapping
from pathlib import Path

from pileus.clock import Clock
from pileus.http.messages import Request, Response
from pileus.server import responses
from pileus.server.router import Handler, Routes
from pileus.telemetry.journal import Journal, Question

ENTRIES = "/history/v1/entries"
PAGE = "/history/"
MOST = 5000
"""Entries in one answer."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, and nothing inline."""
_FILES = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
_TEXTS = ("kind", "namespace", "name", "controller")
_NUMBERS = ("after", "limit")


class BadQuery(ValueError):
    """A query that cannot be understood; the text says why."""


def history_routes(journal: Journal, clock: Clock) -> Routes:
    """Returns the paths of the journal."""

    async def entries(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return responses.not_allowed("GET")
        try:
            question = question_of(request.query)
        except BadQuery as error:
            return responses.text(f"{error}\n", status=400)
        answer = responses.json(journal.history(question, clock.now()))
        answer.closes = True  # replicas may share the port: the next request may reach another
        return answer

    pages = {f"{PAGE}{name}": _static(name, kind) for name, kind in _FILES.items()}
    public = {**pages, PAGE: pages[f"{PAGE}page.html"], PAGE.rstrip("/"): _to_page}
    return Routes(exact={ENTRIES: entries}, public=public)


def question_of(query: Mapping[str, str]) -> Question:
    """Returns what a query asks for. Raises `BadQuery`."""
    known = (*_TEXTS, *_NUMBERS)
    if unknown := [name for name in query if name not in known]:
        raise BadQuery(f'unknown parameter "{unknown[0]}" (known: {", ".join(known)})')
    numbers: dict[str, int] = {}
    for name in _NUMBERS:
        text = query.get(name, "")
        if text and not (text.isascii() and text.isdecimal() and len(text) < 16):  # noqa: PLR2004 -- digits of a number
            raise BadQuery(f'parameter {name} must be a whole number, but got "{text[:40]}"')
        if text:
            numbers[name] = int(text)
    if numbers.get("limit") == 0:
        raise BadQuery("parameter limit must be at least 1, but got 0")
    limit = min(numbers.get("limit", Question().limit), MOST)
    texts = {name: query.get(name, "") for name in _TEXTS}
    return Question(**texts, after=numbers.get("after", 0), limit=limit)


async def _to_page(_: Request) -> Response:
    return Response(status=302, headers={"Location": "history/"})


def _static(name: str, kind: str) -> Handler:
    body = (Path(__file__).parent / "page" / name).read_bytes()
    headers = {
        "Content-Type": f"{kind}; charset=utf-8",
        **responses.NO_SNIFFING,
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
    }

    async def handle(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return responses.not_allowed("GET")
        return Response(body=body, headers=dict(headers))

    return handle
