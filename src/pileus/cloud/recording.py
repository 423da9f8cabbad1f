"""Records HTTP exchanges of a provider without secrets, and replays them in tests.

    recording = Recording()
    async with http_client(settings, around=recording.around) as http: ...   # the real cloud
    Path("machines.jsonl").write_text(recording.dump())

    http = replayed(settings, Recording.load(Path("machines.jsonl").read_text()))   # in a test

Secrets are replaced before anything is kept: header values (but for a few harmless headers), and
values in queries, JSON, forms and XML whose name looks secret (`SECRET`), private keys and tokens
in any text. A replay compares requests in the same form, so it needs no secrets. Read a recording
before it is committed: no rule knows the secrets of every cloud.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from pileus.cloud.http import (
    Answer,
    Authorize,
    ErrorOf,
    Http,
    HttpSettings,
    Request,
    Send,
    by_status,
)
from pileus.dataclass import dataclass

HIDDEN = "REDACTED"
SECRET = re.compile(
    r"passw|secret|token|credential|signature|cookie|kubeconfig|user[-_]?data|authoriz|"
    r"(api|access|account|private|session|ssh|storage)[-_]?key|session[-_]?id|\bauth\b|x-auth",
    re.IGNORECASE,
)
"""Names whose values are secret."""
HARMLESS = frozenset({"content-type", "date", "link", "location", "retry-after"})
"""Headers of answers that are kept with their values, besides those of request IDs."""
_TEXTS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*"),
    re.compile(r"(?<=Bearer )[^\s\"']+", re.IGNORECASE),
)
"""Private keys and tokens, wherever they are."""
_XML = re.compile(r"<([\w:.-]+)>([^<]+)</\1>")


class NotRecorded(LookupError):
    """A replay was asked for something that its recording does not have."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer, without secrets. Bodies that are not text are base64."""

    method: str
    target: str
    """Path and query."""
    body: str
    status: int
    headers: dict[str, str]
    answer: str
    is_binary: bool = False
    request_id: str = ""

    @property
    def asked(self) -> tuple[str, str, str]:
        return self.method, self.target, self.body


class Recording:
    """Exchanges in the order of their answers."""

    def __init__(self, *exchanges: Exchange) -> None:
        self.exchanges = list(exchanges)

    def around(self, send: Send) -> Send:
        """Returns a `send` that records what passes. Requests without an answer are not kept."""

        async def recorded(request: Request) -> Answer:
            answer = await send(request)
            self.exchanges.append(exchange_of(request, answer))
            return answer

        return recorded

    def dump(self) -> str:
        """Returns the exchanges as JSON, one a line."""
        return "".join(f"{json.dumps(asdict(one), ensure_ascii=False)}\n" for one in self.exchanges)

    @classmethod
    def load(cls, text: str) -> "Recording":
        """Raises `ValueError` if the text is not what `dump` returns."""
        try:
            return cls(*(Exchange(**json.loads(line)) for line in text.splitlines() if line))
        except TypeError as error:
            raise ValueError(f"not a recording: {error}") from None


class Replay:
    """Answers requests from a recording, each exchange once; equal requests in recorded order."""

    def __init__(self, recording: Recording) -> None:
        self._left = list(recording.exchanges)

    async def send(self, request: Request) -> Answer:
        """Raises `NotRecorded` if no answer to this request is left."""
        asked = asked_of(request)
        found = next((one for one in self._left if one.asked == asked), None)
        if found is None:
            left = ", ".join(f"{one.method} {one.target}" for one in self._left) or "nothing"
            raise NotRecorded(f"no answer is recorded for {asked}; left in the recording: {left}")
        self._left.remove(found)
        body = b64decode(found.answer) if found.is_binary else found.answer.encode()
        return Answer(found.status, found.headers, body, request, found.request_id)

    def unused(self) -> tuple[Exchange, ...]:
        """Returns the exchanges that were not asked for."""
        return tuple(self._left)


def replayed(
    settings: HttpSettings,
    replay: Recording | Replay,
    *,
    authorize: Authorize | None = None,
    error_of: ErrorOf = by_status,
) -> Http:
    """Returns a client that is answered from a recording."""
    source = Replay(replay) if isinstance(replay, Recording) else replay
    return Http(settings, source.send, authorize=authorize, error_of=error_of)


def exchange_of(request: Request, answer: Answer) -> Exchange:
    method, target, body = asked_of(request)
    headers = {name: value for name, value in answer.headers.items() if name in HARMLESS}
    if answer.request_id:
        headers["x-request-id"] = answer.request_id
    text, is_binary = _body(answer.body, answer.headers.get("content-type", ""))
    return Exchange(
        method, target, body, answer.status, headers, text, is_binary, answer.request_id
    )


def asked_of(request: Request) -> tuple[str, str, str]:
    """Returns method, path with query, and body of a request, without secrets."""
    parts = urlsplit(request.url)
    query = _without_secrets_in_pairs(parts.query)
    kind = next((v for k, v in request.headers.items() if k.lower() == "content-type"), "")
    body, _ = _body(request.body, kind)
    return request.method, f"{parts.path}?{query}" if query else parts.path, body


def _body(body: bytes, kind: str) -> tuple[str, bool]:
    """Returns the body as text without secrets, or as base64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return b64encode(body).decode(), True
    if "x-www-form-urlencoded" in kind:
        return _without_secrets_in_pairs(text), False
    return without_secrets(text), False


def without_secrets(text: str) -> str:
    """Returns JSON, XML or other text with its secrets replaced."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return _plain(_XML.sub(_in_xml, text))
    return json.dumps(_in_json(parsed), ensure_ascii=False)


def _in_json(thing: object) -> object:
    match thing:
        case dict():
            named = cast("dict[str, object]", thing)
            return {name: _hidden(name, value, _in_json) for name, value in named.items()}
        case list():
            return [_in_json(each) for each in cast("list[object]", thing)]
        case str():
            return _plain(thing)
        case _:
            return thing


def _in_xml(found: re.Match[str]) -> str:
    name, value = found.groups()
    return f"<{name}>{_hidden(name, value, _plain)}</{name}>"


def _without_secrets_in_pairs(text: str) -> str:
    pairs = parse_qsl(text, keep_blank_values=True)
    return urlencode([(name, _hidden(name, value, _plain)) for name, value in pairs])


def _hidden(name: str, value: Any, otherwise: Callable[[Any], Any]) -> Any:  # noqa: ANN401 -- JSON
    return HIDDEN if SECRET.search(name) and value else otherwise(value)


def _plain(text: str) -> str:
    for pattern in _TEXTS:
        text = pattern.sub(HIDDEN, text)
    return text
