"""Reads the wanted keys where they are kept, and follows their changes."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, cast

import yaml

from pileus.controllers.ssh_keys.authorized_keys import Wanted, read
from pileus.controllers.ssh_keys.location import Location
from pileus.kube.client import Client, Selector
from pileus.kube.errors import NotFound
from pileus.kube.model.core_v1 import CONFIG_MAPS, SECRETS, ConfigMap, Secret
from pileus.kube.model.meta import KubeObject, Resource, T
from pileus.runtime.informers import Informers, Part

LOOK_EVERY = 10.0
"""Seconds between two looks at a file."""
LARGEST = 1 << 20
"""Bytes of a file; what the API server allows for an object as well."""


class Source(Protocol):
    async def wanted(self) -> Wanted:
        """The keys as they are wanted now, read freshly. A source that is gone is a problem.

        Errors: `KubeError`, if it cannot be known at the moment.
        """
        ...

    async def follow(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the source may say something new, until cancelled."""
        ...


def source_of(location: Location, client: Client, informers: Informers) -> Source:
    match location.kind:
        case "ConfigMap":
            return ObjectSource(location, CONFIG_MAPS, _of_config_map, client, informers)
        case "Secret":
            return ObjectSource(location, SECRETS, _of_secret, client, informers)
        case _:
            return FileSource(location)


def _of_config_map(found: ConfigMap) -> Mapping[str, bytes]:
    return {user: text.encode() for user, text in (found.data or {}).items()}


def _of_secret(found: Secret) -> Mapping[str, bytes]:
    return found.data or {}


def _problem(location: Location, what: str) -> Wanted:
    return Wanted(problems=(f"{location} {what}; keys stay as they are",))


@dataclass(frozen=True, slots=True)
class ObjectSource(Generic[T]):
    """A ConfigMap or Secret: one request each time, and a watch of that object's metadata."""

    location: Location
    resource: Resource[T]
    entries: Callable[[T], Mapping[str, bytes]]
    client: Client
    informers: Informers

    async def wanted(self) -> Wanted:
        where = self.location
        try:
            found = await self.client.get(self.resource, where.name, namespace=where.namespace)
        except NotFound:
            return _problem(where, "is not there")
        return read(self.entries(found))

    async def follow(self, changed: Callable[[], None]) -> None:
        metadata = Resource(KubeObject, self.resource.kind, self.resource.plural)
        part = Part(
            namespace=self.location.namespace,
            selector=Selector(fields=f"metadata.name={self.location.name}"),
            client=self.client,
        )
        self.informers.of(metadata, part=part).subscribe(_Changed(changed))
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class _Changed:
    call: Callable[[], None]

    def added(self, _: KubeObject, /) -> None:
        self.call()

    def updated(self, _: KubeObject, __: KubeObject, /) -> None:
        self.call()

    def deleted(self, _: KubeObject, /) -> None:
        self.call()


@dataclass(frozen=True, slots=True)
class FileSource:
    """A YAML or JSON file: users, and their keys as text."""

    location: Location
    look_every: float = LOOK_EVERY

    async def wanted(self) -> Wanted:
        try:
            text = await asyncio.to_thread(self._content)
        except OSError as error:
            return _problem(self.location, f"cannot be read: {error.strerror}")
        if len(text) > LARGEST:
            return _problem(self.location, f"is larger than {LARGEST} bytes")
        entries = _mapping(text)
        if entries is None:
            return _problem(self.location, "is not a mapping of users to keys in YAML or JSON")
        return read(entries)

    async def follow(self, changed: Callable[[], None]) -> None:
        known: Wanted | None = None
        while True:
            found = await self.wanted()
            if found != known:
                known = found
                changed()
            await asyncio.sleep(self.look_every)

    def _content(self) -> bytes:
        with Path(self.location.name).open("rb") as file:
            return file.read(LARGEST + 1)


def _mapping(text: bytes) -> dict[str, bytes] | None:
    """Users and their keys. The parser's own complaint is not passed on: it quotes the text."""
    try:
        document: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    entries = cast("dict[object, object]", document)
    return {str(user): _text(value) for user, value in entries.items()}


def _text(value: object) -> bytes:
    """What YAML takes for another type than text is never a key, and refused as such later."""
    return str(value or "").encode()
