"""Requests to a server and its responses: parsing and rendering, without I/O.

h11 parses requests and checks responses. Requests that two parsers could understand differently
are refused before: line ends other than CRLF, folded headers, control characters, a length beside
chunks, versions other than 1.0 and 1.1.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
from multidict import CIMultiDict, CIMultiDictProxy

from pileus.dataclass import dataclass

END_OF_HEAD = b"\r\n\r\n"
LONGEST_HEAD = 32 * 1024
"""Bytes of the request line and all headers."""
LONGEST_LINE = 8190
MOST_HEADERS = 128
MOST_PARAMETERS = 100

_AMBIGUOUS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\n[ \t]")
_BARE_CR = re.compile(rb"\r(?!\n)")
_REFUSES_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)
_METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_VERSIONS = frozenset({b"1.0", b"1.1"})
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Refused(Exception):
    """The request is answered with this status. The text is for the client."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class BadRequest(Exception):
    """The bytes are not one clear HTTP/1.1 request. The text is for the log."""


@dataclass(slots=True)
class Response:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    closes: bool = False
    """Whether the connection is closed after this response."""
    compresses: bool = False
    """Whether the body is compressed for a client that accepts it."""


class Peer(Protocol):
    """The client at the other end of a connection."""

    @property
    def remote(self) -> str: ...
    @property
    def transport(self) -> asyncio.Transport: ...
    async def read_body(self, limit: int) -> bytes: ...


class Request:
    """A request whose body, if it has one, is still to be read."""

    def __init__(self, head: h11.Request, peer: Peer) -> None:
        """Raises `BadRequest`."""
        self._peer = peer
        self.method = head.method.decode("ascii")
        self.headers = CIMultiDictProxy(
            CIMultiDict((_text(name), _text(value)) for name, value in head.headers)
        )
        path, query = _split(head.target.decode("ascii"))
        self.path = unquote(path, errors="surrogateescape")
        """Decoded, and otherwise as it was sent: neither normalized nor redirected."""
        self._pairs = _pairs(query)

    @property
    def query(self) -> Mapping[str, str]:
        """The first value of each parameter."""
        return dict(reversed(self._pairs))

    def values(self, parameter: str) -> Sequence[str]:
        """Returns all values of a parameter."""
        return [value for name, value in self._pairs if name == parameter]

    @property
    def remote(self) -> str:
        """The address of the client."""
        return self._peer.remote

    @property
    def transport(self) -> asyncio.Transport:
        return self._peer.transport

    @property
    def accepts_gzip(self) -> bool:
        accepted = ",".join(self.headers.getall("Accept-Encoding", []))
        return "gzip" in accepted.lower() and not _REFUSES_GZIP.search(accepted)

    async def read(self, limit: int) -> bytes:
        """Returns the body as it was sent. Raises `Refused` if it is larger, late or invalid."""
        return await self._peer.read_body(limit)


def check_beginning(data: bytes | bytearray, checked: int = 0) -> None:
    """Check a head that may have no end yet, from byte `checked` on. Raises `BadRequest`."""
    if found := _AMBIGUOUS.search(data, max(checked - 1, 0)):
        raise BadRequest(f"byte {data[found.start()]:#04x} in the head")


def parse_head(protocol: h11.Connection, head: bytes) -> h11.Request:
    """Returns the request that begins with `head`, which ends in `END_OF_HEAD`.

    `protocol` reads the body afterwards. Raises `BadRequest`.
    """
    check_beginning(head)
    if _BARE_CR.search(head):
        raise BadRequest("a carriage return within a line")
    lines = head.split(b"\r\n")
    if len(lines) > MOST_HEADERS or len(head) > LONGEST_HEAD:
        raise BadRequest("too many headers")
    if max(map(len, lines)) > LONGEST_LINE:
        raise BadRequest("a line of the head is too long")
    try:
        protocol.receive_data(head)
        event = protocol.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(str(error)) from error
    if not isinstance(event, h11.Request):
        raise BadRequest("no request line")
    lengths = [line[15:] for line in lines if line[:15].lower() == b"content-length:"]
    if len(lengths) > 1 or not all(each.strip().isdigit() for each in lengths):
        raise BadRequest("not one Content-Length")  # h11 allows equal ones
    _check_framing(event)
    return event


def _check_framing(request: h11.Request) -> None:
    if request.http_version not in _VERSIONS:
        raise BadRequest("a version that is not supported")
    if request.method not in _METHODS:
        raise BadRequest("an unknown method")
    names = [name for name, _ in request.headers]
    if b"transfer-encoding" in names:
        if b"content-length" in names:
            raise BadRequest("Content-Length beside Transfer-Encoding")
        if request.http_version == b"1.0":
            raise BadRequest("Transfer-Encoding in HTTP/1.0")


def render(protocol: h11.Connection, response: Response, *, method: str, now: datetime) -> bytes:
    """Returns the response as it is sent, with `Date` and `Content-Length`.

    Raises `h11.LocalProtocolError` if a header could be read as more than one.
    """
    headers = list(response.headers.items())
    headers.append(("Date", http_date(now)))
    headers.append(("Content-Length", str(len(response.body))))
    if response.closes:
        headers.append(("Connection", "close"))
    start = h11.Response(
        status_code=response.status, headers=headers, reason=_reason(response.status)
    )
    parts = [protocol.send(start)]
    if method != "HEAD":
        parts.append(protocol.send(h11.Data(data=response.body)))
    parts.append(protocol.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)


def http_date(now: datetime) -> str:
    """Returns a time (UTC) in the form of HTTP, whatever the locale."""
    day, month = _DAYS[now.weekday()], _MONTHS[now.month - 1]
    return f"{day}, {now.day:02} {month} {now.year} {now:%H:%M:%S} GMT"


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _split(target: str) -> tuple[str, str]:
    """Returns path and query of a request target. Raises `BadRequest`."""
    if target.startswith("/") or target == "*":
        path, _, query = target.partition("?")
        return path, query
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise BadRequest("the target is not a URL") from error
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise BadRequest("the target is neither a path nor a URL")
    return parts.path or "/", parts.query


def _pairs(query: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError as error:
        raise BadRequest("too many parameters") from error


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
