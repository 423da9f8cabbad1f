"""A shared HTTP client for providers.

    settings = HttpSettings(base_url="https://api.acme.example/v1", environ=config.environ)
    async with http_client(settings, authorize=add_token) as http:
        answer = await http.request("GET", "/machines", query={"cluster": cluster})
        machines = answer.json()["machines"]

Every request has a deadline and a bound on the size of its answer, reuses connections, asks
`check_permission` right before it is sent, and carries the cloud's request ID into errors and
logs. An answer other than 2xx is raised as the `CloudError` that fits its status. The client never
retries, sleeps, follows redirects or keeps cookies.
"""

import asyncio
import json as json_codec
import os
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Any, cast
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    NotFound,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.model import no_labels
from pileus.cloud.permission import check_permission, pass_on
from pileus.dataclass import dataclass
from pileus.fix import one_line
from pileus.http.client import READS, Client, InvalidHeader, Sent, port_of
from pileus.http.connection import Answer as Received
from pileus.http.connection import Closed, ConnectTimeout, NotConnected, ProxyRefused, TooMuch
from pileus.proxy import InvalidProxy, proxy_for
from pileus.telemetry.log import Log
from pileus.telemetry.passes import requested
from pileus.version import PILEUS

log = Log(__name__)

ABSENT = object()
REQUEST_IDS = (
    "x-request-id",
    "x-openstack-request-id",
    "x-compute-request-id",
    "x-amzn-requestid",
    "x-amz-request-id",
    "x-ms-request-id",
    "x-correlation-id",
)
"""Headers in which clouds return the ID of a request."""
_PATH = "/:@!$&'()*+,;=~%"
"""Characters of a path that are not quoted; with %, so that quoted segments stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How the server is verified, and how the client identifies itself. PEM files."""

    ca_file: str = ""
    """The authorities that are trusted; empty: the system's."""
    ca_pem: str = ""
    """The text of such a file, instead of a file."""
    certificate_file: str = ""
    key_file: str = ""
    """The key of the client certificate; empty if the file above has both."""
    insecure: bool = False
    """Accept any certificate. Only for tests: everyone on the way can read the credentials."""

    def context(self) -> ssl.SSLContext:
        """Raises `Misconfigured` for contradictions and files that cannot be loaded."""
        if self.insecure and self.ca_file:
            raise Misconfigured(f'TLS: insecure and CA file "{self.ca_file}": remove one of them')
        if self.key_file and not self.certificate_file:
            raise Misconfigured(f'TLS: key file "{self.key_file}" needs a certificate file')
        what = self.ca_file or ("the CA in the configuration" if self.ca_pem else "")
        try:
            context = ssl.create_default_context(
                cafile=self.ca_file or None, cadata=self.ca_pem or None
            )
            # An intermediate CA in the file is an anchor of its own, as in Go.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            what = self.certificate_file
            if what:
                context.load_cert_chain(what, self.key_file or None)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(f'TLS: cannot load "{what}": {_system_text(error)}') from error
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    base_url: str
    """Scheme, host and the path that every request begins with."""
    tls: Tls = field(default_factory=Tls)
    tls_context: ssl.SSLContext | None = field(default=None, repr=False)
    """`tls.context()`, if the caller has it already: loading authorities takes milliseconds, which
    a provider can spend in a thread, once for several servers. None: it is loaded on the loop."""
    environ: Mapping[str, str] = field(default_factory=no_labels, repr=False)
    """Of `ProviderConfig`: HTTPS_PROXY, HTTP_PROXY and NO_PROXY in it are respected."""
    proxy: str = field(default="", repr=False)
    """The URL of a proxy, instead of that of the environment."""
    headers: Mapping[str, str] = field(default_factory=no_labels, repr=False)
    """Sent with every request."""
    timeout: float = 30.0
    """Seconds for one request and its whole answer."""
    connect_timeout: float = 10.0
    connections: int = 20
    """Connections at the same time, at most. Idle ones are reused."""
    max_body: int = 2**25
    """Bytes of a request or an answer, at most."""
    request_id_headers: tuple[str, ...] = REQUEST_IDS


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    url: str
    """The whole URL with its query, quoted."""
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    reads: bool = field(default=False, compare=False)
    """Whether it changes nothing although its method is not GET, HEAD or OPTIONS."""

    @property
    def name(self) -> str:
        """Method and path, for logs. Queries may contain secrets and are left out."""
        return f"{self.method} {urlsplit(self.url).path or '/'}"

    @property
    def title(self) -> str:
        """The name without IDs, for errors. See `without_ids`."""
        return without_ids(self.name)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(repr=False)
    """By name in lower case."""
    body: bytes = field(repr=False)
    request: Request
    request_id: str = ""

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:  # noqa: ANN401 -- JSON is whatever the cloud answers
        """Returns the parsed body. Raises `Unavailable` if it is not JSON."""
        try:
            return json_codec.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Unavailable(
                f"{self.request.title}: the answer is not JSON: {error}{self._suffix}"
            ) from None

    def described(self, text: str) -> str:
        """Returns an error message: the request, its status, the text and the request ID.

        See `without_ids`.
        """
        shown = without_ids(f"{self.request.name}: {self.status} {text}")
        return one_line(f"{shown}{self._suffix}").rstrip()

    @property
    def _suffix(self) -> str:
        return f" (request ID {self.request_id})" if self.request_id else ""


Send = Callable[[Request], Awaitable[Answer]]
Authorize = Callable[[Request], Awaitable[Mapping[str, str]]]
"""Returns the headers that authorize a request: a token, or a signature of all of it."""
ErrorOf = Callable[[Answer, CloudError], CloudError]
"""Returns the error to raise for an answer; is given the one that fits its status."""


def by_status(_: Answer, usual: CloudError) -> CloudError:
    return usual


@asynccontextmanager
async def http_client(
    settings: HttpSettings,
    *,
    authorize: Authorize | None = None,
    error_of: ErrorOf = by_status,
    around: Callable[[Send], Send] = lambda send: send,
) -> AsyncGenerator["Http"]:
    """A client for one server while the block lasts.

    `around` wraps every request and answer, such as `Recording.around` (`pileus.cloud.recording`).
    Raises `Misconfigured` for a URL, proxy or TLS file that cannot be used.
    """
    parts = _base(settings.base_url)
    is_tls = parts.scheme == "https"
    try:
        proxy = proxy_for(settings.base_url, settings.proxy or None, settings.environ)
    except InvalidProxy as error:
        raise Misconfigured(str(error)) from error
    context = (settings.tls_context or settings.tls.context()) if is_tls else None
    wire = _Wire(settings, proxy, context)
    try:
        yield Http(settings, around(wire.send), authorize=authorize, error_of=error_of)
    finally:
        await wire.close()


class Http:
    """Requests to one server, over `send`: a real connection, a recording or a replay of one."""

    def __init__(
        self,
        settings: HttpSettings,
        send: Send,
        *,
        authorize: Authorize | None = None,
        error_of: ErrorOf = by_status,
    ) -> None:
        self._settings = settings
        self._base = settings.base_url.rstrip("/")
        self._send = send
        self._authorize = authorize
        self._error_of = error_of
        self._slots = asyncio.Semaphore(settings.connections)

    async def request(  # noqa: PLR0913 -- the parts of a request
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | Sequence[tuple[str, str]] = (),
        json: object = ABSENT,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        reads: bool = False,
    ) -> Answer:
        """Send one request. Returns an answer with a status from 200 to 299.

        `reads`: the request changes nothing, although it is a POST, as in APIs whose every action
        is one. Like a GET, it is sent once more if the server has just closed an idle connection,
        and no error says that it may have had an effect.

        `path` follows the base URL; it may also be a whole URL of the same server, such as the
        link to a next page. Quote parts that may contain a slash (`urllib.parse.quote(x, "")`).

        Raises the `CloudError` that fits the status: 404 and 410 `NotFound`; 409, 412 and 423
        `Conflict`; 429, and 503 with Retry-After, `Throttled`; 401 and 403 `Unauthorized`; 405 and
        501 `Unsupported`; other 5xx and 408 `Unavailable`; the rest `Rejected`. `Unavailable` if
        there is no answer in time, or it is too large. Without sending, what `check_permission`
        raises.
        """
        more = {**self._settings.headers, **(headers or {})}
        if json is not ABSENT:
            more = {"Content-Type": "application/json", **more}
            body = json_codec.dumps(json).encode()
        request = Request(method.upper(), self._url(path, query), more, body, reads)
        if len(body) > self._settings.max_body:
            raise Rejected(f"{request.title}: not sent, its body has {len(body)} bytes")
        if self._authorize is not None:
            more = {**more, **await self._authorize(request)}
            request = Request(request.method, request.url, more, body, reads)
        answer = await self._exchange(request)
        if 200 <= answer.status < 300:  # noqa: PLR2004 -- HTTP's own numbers
            return answer
        error = self._error_of(answer, error_for(answer))
        _log_whole(answer, error)
        pass_on(error)
        raise error

    async def _exchange(self, request: Request) -> Answer:
        now = asyncio.get_running_loop().time
        async with self._slots:
            check_permission()
            began = now()
            answer = await self._send(request)
        requested(request.name, answer.status, now() - began, answer.request_id)
        log.info(
            "Cloud API request",
            v=4,
            request=request.name,
            status=answer.status,
            seconds=round(now() - began, 3),
            request_id=answer.request_id,
        )
        return answer

    def _url(self, path: str, query: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
        text = urlencode(query, quote_via=quote)
        if "://" in path.partition("?")[0]:
            if urlsplit(path)[:2] != urlsplit(self._base)[:2]:
                host = urlsplit(path).netloc
                raise Rejected(f"not sent to {host}: it is not the server {self._base}")
            joint = "&" if "?" in path else "?"
            return f"{path}{joint}{text}" if text else path
        whole = f"{self._base}/{quote(path.lstrip('/'), safe=_PATH)}"
        return f"{whole}?{text}" if text else whole


class _Wire:
    """Sends requests over real connections."""

    def __init__(
        self, settings: HttpSettings, proxy: str | None, context: ssl.SSLContext | None
    ) -> None:
        self._settings = settings
        self._context = context
        self._client = Client(
            settings.base_url, connect_timeout=settings.connect_timeout, proxy=proxy
        )

    async def close(self) -> None:
        await self._client.close()

    async def send(self, request: Request) -> Answer:
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await self._exchange(request)
        except InvalidHeader as error:
            raise Rejected(f"{request.title}: not sent, a header is invalid") from error
        except (OSError, ssl.SSLError) as error:  # OSError includes TimeoutError
            raise Unavailable(f"{request.title}: {self._cause(error, request)}") from error

    async def _exchange(self, request: Request) -> Answer:
        parts = urlsplit(request.url)
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        sent = Sent(
            method=request.method,
            target=target,
            headers=_with_defaults(request),
            body=request.body or None,
            reads=request.reads,
            guard=check_permission,
        )
        received = await self._client.open(sent, self._context)
        try:
            return await self._answer(request, received)
        finally:
            received.release()

    async def _answer(self, request: Request, received: Received) -> Answer:
        headers = {name.lower(): value for name, value in received.headers.items()}
        names = self._settings.request_id_headers
        found = next((headers[name.lower()] for name in names if name.lower() in headers), "")
        answer = Answer(received.status, headers, b"", request, _one_line(found))
        if headers.get("content-encoding", "identity") not in {"", "identity"}:
            raise Unavailable(answer.described("the answer is compressed, without being asked to"))
        limit = self._settings.max_body
        try:
            body = await received.read(limit)
        except TooMuch as error:
            problem = f"the answer has more than {limit} bytes"
            raise Unavailable(answer.described(problem)) from error
        return Answer(answer.status, headers, body, request, answer.request_id)

    def _cause(self, error: Exception, request: Request) -> str:
        limits = self._settings
        match error:
            case ProxyRefused():
                return f"the proxy refused the connection: {error}"
            case NotConnected():
                return self._not_connected(error.__cause__ or error)
            case ConnectTimeout():
                return f"no connection within {limits.connect_timeout:g} s"
            case TimeoutError():
                return f"no answer within {limits.timeout:g} s"
            case Closed() if not request.reads and request.method not in READS:
                lost = "the connection was lost, the request may have had its effect"
                return f"{lost}: {error}"
            case _:
                return str(error) or type(error).__name__

    def _not_connected(self, error: BaseException) -> str:
        match error:
            case ssl.SSLCertVerificationError():
                tls = self._settings.tls
                inline = "the CA in the configuration" if tls.ca_pem else ""
                trusted = tls.ca_file or inline or "the authorities of the system"
                return (
                    f"the certificate of the server is not trusted: {error}. Trusted: {trusted}. "
                    "Fix: set the CA file of the cloud"
                )
            case OSError():
                parts = urlsplit(self._settings.base_url)
                where = f"{parts.hostname}:{port_of(parts)}"
                return f"cannot connect to {where}: {_system_text(error)}"
            case _:
                return str(error) or type(error).__name__


def _with_defaults(request: Request) -> Sequence[tuple[str, str]]:
    """Returns the headers of a request, with those that every request has."""
    given = {name.lower() for name in request.headers}
    usual = {"Accept-Encoding": "identity", "Accept": "*/*", "User-Agent": f"pileus/{PILEUS}"}
    if request.body:
        usual["Content-Type"] = "application/octet-stream"
    added = [(name, value) for name, value in usual.items() if name.lower() not in given]
    return [*added, *request.headers.items()]


_ERRORS: Mapping[int, type[CloudError]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    405: Unsupported,
    408: Unavailable,
    409: Conflict,
    410: NotFound,
    412: Conflict,
    423: Conflict,
    501: Unsupported,
}
_THROTTLED, _BUSY, _SERVER_ERROR = 429, 503, 500


def error_for(answer: Answer) -> CloudError:
    """Returns the error that fits the status of an answer."""
    status, wait = answer.status, retry_after(answer)
    text = answer.described(message_of(answer) or responses.get(status, ""))
    if status == _THROTTLED or (status == _BUSY and wait is not None):
        return Throttled(text, retry_after=wait)
    usual = Unavailable if status >= _SERVER_ERROR else Rejected
    return _ERRORS.get(status, usual)(text)


def retry_after(answer: Answer) -> float | None:
    """Returns the seconds that the cloud asks to wait; None if it does not say."""
    text = answer.headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        return float(text)
    try:
        until = parsedate_to_datetime(text)
        wait = (until - parsedate_to_datetime(answer.headers["date"])).total_seconds()
    except (ValueError, TypeError, KeyError):
        return None
    return max(wait, 0.0)


_OBJECT_ID = re.compile(r"(?i)(?<![\w-])[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}(?![\w-])")
"""A UUID, with or without dashes. Those of requests begin with `req-`."""
HIDDEN_ID = "<ID>"


def without_ids(text: str) -> str:
    """Returns a text of a cloud without the IDs of its objects.

    Events and conditions show the errors of a cloud to authors of Services and claims, who may be
    anyone, and clouds name networks, subnets, ports and servers that belong to others. Operators
    find the whole text in the log by its request ID.
    """
    return _OBJECT_ID.sub(HIDDEN_ID, text)


def _log_whole(answer: Answer, error: CloudError) -> None:
    """Log what errors leave out. That an object was not found when it was read is usual."""
    whole, request = _one_line(answer.text), answer.request
    if without_ids(whole) == whole:
        return
    is_usual = isinstance(error, NotFound) and request.method in READS
    log.info(
        "Cloud refused a request",
        v=4 if is_usual else 0,
        request=request.name,
        status=answer.status,
        answer=whole,
        request_id=answer.request_id,
    )


LONGEST = 300
_MESSAGES = ("message", "detail", "error_description", "msg", "title", "reason", "error")
_XML = re.compile(r"<(?:Message|message|Description)>([^<]+)<")


def message_of(answer: Answer) -> str:
    """Returns what the cloud says went wrong, in one line; empty if it says nothing.

    Without IDs, of which a part would be left where the line is cut.
    """
    text = answer.text.strip()
    try:
        found = _message_in(json_codec.loads(text), 4)
    except (ValueError, RecursionError):
        match = _XML.search(text)
        found = match.group(1) if match else "" if text.startswith("<") else text
    return _one_line(without_ids(found))


def _message_in(thing: object, depth: int) -> str:
    """Finds a message in an error object of any cloud: {"error": {"message": …}} and the like."""
    match thing:
        case str():
            return thing
        case list() if depth:
            items = cast("list[object]", thing)
            return _message_in(items[0], depth - 1) if items else ""
        case dict() if depth:
            named = cast("dict[str, object]", thing)
            others = (each for each in named.values() if not isinstance(each, str))
            parts = (*(named[name] for name in _MESSAGES if name in named), *others)
            return next((text for each in parts if (text := _message_in(each, depth - 1))), "")
        case _:
            return ""


def _one_line(text: str) -> str:
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * LONGEST]).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _base(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise Misconfigured(
            f'"{url}" cannot be the URL of a cloud: give https://HOST[:PORT][/PATH]'
        )
    return parts


def _system_text(error: OSError) -> str:
    if isinstance(error, ssl.SSLError | socket.gaierror) or not error.errno:
        return str(error)
    return os.strerror(error.errno)
