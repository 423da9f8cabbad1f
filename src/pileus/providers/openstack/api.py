"""Requests to the services of one OpenStack region, as values.

    client = Client(api)
    servers = await client.all_pages(Service.COMPUTE, "/servers/detail", "servers", Server)
    balancer = await client.send("POST", Service.LOAD_BALANCER, "/v2.0/lbaas/loadbalancers", body)

`Api` sends one request: over HTTP in production, to a model of OpenStack in tests and simulations.
Answers are decoded into frozen `msgspec` structs; fields that a struct does not have are ignored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from pileus.cloud.errors import CloudError, NotFound, Rejected, Unavailable
from pileus.cloud.permission import check_permission, pass_on
from pileus.dataclass import dataclass

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")
Query = Iterable[tuple[str, str]]


class Service(StrEnum):
    """Services of OpenStack, by their type in Keystone's catalogue."""

    COMPUTE = "compute"
    NETWORK = "network"
    LOAD_BALANCER = "load-balancer"
    BLOCK_STORAGE = "block-storage"
    KEY_MANAGER = "key-manager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request. Two equal calls ask for the same thing."""

    service: Service
    method: str
    path: str
    """Follows the endpoint of the service: `/servers/detail` (Nova), `/v2.0/ports` (Neutron),
    `/v2.0/lbaas/loadbalancers` (Octavia), `/volumes/detail` (Cinder)."""
    query: tuple[tuple[str, str], ...] = ()
    body: Any = field(default=None, hash=False, repr=False)
    """JSON; None: no body."""
    microversion: str = ""
    """Of Nova and Cinder; empty: the oldest."""
    if_revision: int | None = None
    """Of Neutron: refuse the request (412, `Conflict`) unless the object has this revision number
    (header `If-Match: revision_number=<n>`). None: without a check."""

    @property
    def writes(self) -> bool:
        return self.method != "GET"


class Api(Protocol):
    async def call(self, call: Call) -> Any:  # noqa: ANN401 -- JSON is whatever OpenStack answers
        """Returns the JSON of a successful answer; None if it has no body. Raises `CloudError`."""
        ...


@dataclass(frozen=True, slots=True)
class Client:
    """Typed requests over an `Api`."""

    api: Api

    async def send(
        self,
        method: str,
        service: Service,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        query: Query = (),
        microversion: str = "",
    ) -> Any:  # noqa: ANN401 -- see `Api`
        """Send one request, if this process may still write. Returns the JSON of the answer."""
        return await self.perform(
            Call(
                service=service,
                method=method,
                path=path,
                query=tuple(query),
                body=body,
                microversion=microversion,
            )
        )

    async def perform(self, call: Call) -> Any:  # noqa: ANN401 -- see `Api`
        """Send a request that is already a value, as `send` does."""
        check_permission()
        return await self.api.call(call)

    async def get(
        self, service: Service, path: str, key: str, kind: type[T], *, microversion: str = ""
    ) -> T:
        """Returns the object under `key` of the answer. Raises `NotFound` if there is none."""
        answer = await self.send("GET", service, path, microversion=microversion)
        return decoded(field_of(answer, key, path), kind, path)

    async def all_pages(
        self,
        service: Service,
        path: str,
        key: str,
        kind: type[T],
        *,
        query: Query = (),
        microversion: str = "",
    ) -> tuple[T, ...]:
        """Returns every item of a list. Raises `CloudError` if one page cannot be read.

        A page begins after the last item of the one before. If that item is deleted in between,
        services refuse the request for the next page. The list is then read again; if it changes
        once more: `Unavailable`.
        """
        found: list[T] = []
        markers: list[str] = []
        is_second = False
        while True:
            asked = (*query, *(("marker", one) for one in markers[-1:]))
            try:
                answer = await self.send(
                    "GET", service, path, query=asked, microversion=microversion
                )
            except (NotFound, Rejected) as error:
                if not markers or type(error) not in {NotFound, Rejected}:
                    raise
                if is_second:
                    why = f"{path}: the list changed while it was read: {error}"
                    raise Unavailable(why) from error
                found, markers, is_second = [], [], True
                continue
            found += decoded(field_of(answer, key, path), list[kind], path)
            marker = _next_marker(answer, key, path)
            if not marker:
                return tuple(found)
            if marker in markers:
                raise Unavailable(f"{path}: the same page was returned twice")
            markers.append(marker)


async def each_of(
    items: Sequence[A], work: Callable[[A], Awaitable[B]], at_once: int = 8
) -> list[B | CloudError]:
    """Do the work for every item, some side by side. Returns results and errors, in order."""
    turn = asyncio.Semaphore(at_once)

    async def one(item: A) -> B | CloudError:
        async with turn:
            try:
                return await work(item)
            except CloudError as error:
                pass_on(error)
                return error

    if len(items) == 1:  # needs no task, and any other error arrives as it is
        return [await one(items[0])]
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(one(item)) for item in items]
    return [each.result() for each in started]


def decoded(value: object, kind: type[T], path: str) -> T:
    """Returns an answer as a struct. A field that is null counts as missing if it cannot be null.

    Raises `Unavailable` if the answer does not have the form that OpenStack documents.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        pass
    try:
        return msgspec.convert(_without_nulls(value), kind)
    except msgspec.ValidationError as error:
        raise Unavailable(f"{path}: unexpected answer: {error}") from error


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _without_nulls(one) for name, one in fields.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in cast("list[object]", value)]
    return value


def field_of(answer: object, key: str, path: str) -> object:
    """Returns what an answer has under `key`. Raises `Unavailable` if it has nothing there."""
    if not isinstance(answer, dict) or key not in answer:
        raise Unavailable(f'{path}: unexpected answer: it has no "{key}"')
    return cast("dict[str, object]", answer)[key]


class _Link(msgspec.Struct):
    rel: str
    href: str = ""


def _next_marker(answer: Mapping[str, Any], key: str, path: str) -> str:
    """Returns the marker of the next page; empty if this is the last one.

    Raises `Unavailable` if there is a next page, but no marker for it: the list is not complete.
    """
    for link in decoded(answer.get(f"{key}_links") or [], list[_Link], path):
        if link.rel == "next":
            marker = parse_qs(urlsplit(link.href).query).get("marker", [""])[0]
            if not marker:
                raise Unavailable(f"{path}: unexpected answer: the next page has no marker")
            return marker
    return ""
