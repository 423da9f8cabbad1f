"""The Kubernetes API as the benchmark uses it: many writes side by side, watches, and metrics."""

import asyncio
import re
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

WRITERS = 24
"""More of them only lengthen the queue of the API server."""
STRATEGIC = "application/strategic-merge-patch+json"
WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION")
_REQUESTS = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
NOT_STREAMED = 422
"""The status with which API servers refuse to stream a list."""
_WATCHED = re.compile(r"^apiserver_watch_events_sizes_sum\{.*\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Requests:
    """What an API server has counted: accepted requests by verb and resource, and watch bytes."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    watch_bytes: float = 0.0

    def minus(self, before: "Requests") -> "Requests":
        counts = Counter(self.counts)
        counts.subtract(before.counts)
        return Requests(counts, self.watch_bytes - before.watch_bytes)

    def writes(self) -> int:
        """Returns the writes other than of events and leases."""
        return sum(
            number
            for (verb, resource), number in self.counts.items()
            if verb in WRITES and resource not in {"events", "leases"}
        )

    def events(self) -> int:
        return sum(self.counts[verb, "events"] for verb in WRITES)


def parse_requests(text: str) -> Requests:
    """Returns the counts in the metrics of an API server."""
    counts: Counter[tuple[str, str]] = Counter()
    for labels, value in _REQUESTS.findall(text):
        names = dict(_LABEL.findall(labels))
        if names.get("code", "").startswith("2"):
            counts[names["verb"], names["resource"]] += int(float(value))
    return Requests(counts, sum(float(value) for value in _WATCHED.findall(text)))


class ClusterApi:
    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server
        self.writes = 0
        """How many writes the benchmark itself has made."""

    async def send(
        self, method: str, path: str, body: object = None, content: str = "application/json"
    ) -> Any:  # noqa: ANN401 -- JSON
        """Returns the answer. Raises RuntimeError for another status than 2xx."""
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content}
        self.writes += method != "GET"
        url = f"{self._server}{path}"
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            text = await answer.read()
            if not answer.ok:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        return msgspec.json.decode(text)

    async def patch(self, path: str, body: object) -> None:
        await self.send("PATCH", path, body, STRATEGIC)

    async def create_all(
        self, path: str, bodies: Sequence[object], progress: Callable[[int], None]
    ) -> None:
        await side_by_side(bodies, lambda body: self.send("POST", path, body), progress)

    async def requests(self) -> Requests:
        async with self._session.get(f"{self._server}/metrics") as answer:
            return parse_requests(await answer.text())

    async def items(self, path: str) -> list[dict[str, Any]]:
        return (await self.send("GET", path))["items"]

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """Yields events, line by line: first all objects, then a bookmark, then their changes.

        API servers that do not stream lists refuse to be asked for it (422): the objects are
        listed, and watched from there.
        """
        plain = f"{self._server}{path}?watch=1&allowWatchBookmarks=true"
        streaming = f"{plain}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
        endless = aiohttp.ClientTimeout(total=None)
        async with self._session.get(streaming, timeout=endless) as answer:
            if answer.status != NOT_STREAMED:
                answer.raise_for_status()
                yield lines(answer.content)
                return
        listed = await self.send("GET", path)
        url = f"{plain}&resourceVersion={listed['metadata']['resourceVersion']}"
        async with self._session.get(url, timeout=endless) as answer:
            answer.raise_for_status()
            yield _after(listed, lines(answer.content))


async def _after(listed: Mapping[str, Any], later: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Yields a list as a streaming API server sends it, then what follows."""
    for item in listed["items"]:
        yield msgspec.json.encode({"type": "ADDED", "object": item})
    yield msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": listed["metadata"]}})
    async for line in later:
        yield line


async def side_by_side(
    bodies: Sequence[Any],
    do: Callable[[Any], Any],
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Do something for each, `WRITERS` at the same time."""
    waiting, done = list(reversed(bodies)), 0

    async def work() -> None:
        nonlocal done
        while waiting:
            await do(waiting.pop())
            done += 1
            progress(done)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(WRITERS, len(waiting))):
            group.create_task(work())


@asynccontextmanager
async def cluster_api(server: str, folder: Path) -> AsyncGenerator[ClusterApi]:
    """The API of a control plane, as its administrator."""
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    trust.load_cert_chain(folder / "admin.pem")
    connector = aiohttp.TCPConnector(ssl=trust, limit=0)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, read_bufsize=2**20
    ) as session:
        yield ClusterApi(session, server)


async def lines(stream: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Lines of any length."""
    rest = b""
    async for chunk in stream.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
