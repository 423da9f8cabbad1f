"""Reads the desired keys from a ConfigMap, Secret or file, and follows changes."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Protocol, cast

from pileus.controllers.ssh_keys.authorized_keys import DesiredKeys, parse
from pileus.controllers.ssh_keys.settings import Location
from pileus.dataclass import dataclass
from pileus.kube.client import Client, Selector
from pileus.kube.errors import NotFound
from pileus.kube.model.core_v1 import CONFIG_MAPS, SECRETS, ConfigMap, Secret
from pileus.kube.model.meta import KubeObject, Resource, T
from pileus.runtime.informers import Informers, Part

FILE_PERIOD = 10.0
"""Seconds between two reads of a file."""
LARGEST = 1 << 20
"""Maximum size of a file in bytes; the API server has the same limit for objects."""


class Source(Protocol):
    async def desired(self) -> DesiredKeys:
        """Reads the desired keys. A missing source is a problem in the result.

        Raises `KubeError` if the API server does not answer.
        """
        ...

    async def follow(self, changed: Callable[[], None]) -> None:
        """Calls `changed` whenever the source may have changed, until cancelled."""
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


def _problem(location: Location, what: str) -> DesiredKeys:
    return DesiredKeys(problems=(f"{location} {what}; no key is changed",))


@dataclass(frozen=True, slots=True)
class ObjectSource(Generic[T]):
    """A ConfigMap or Secret: read by a request, followed by a watch of its metadata."""

    location: Location
    resource: Resource[T]
    entries: Callable[[T], Mapping[str, bytes]]
    client: Client
    informers: Informers

    async def desired(self) -> DesiredKeys:
        where = self.location
        try:
            found = await self.client.get(self.resource, where.name, namespace=where.namespace)
        except NotFound:
            return _problem(where, "does not exist")
        return parse(self.entries(found))

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
    """A YAML or JSON file: a mapping of users to their keys as text."""

    location: Location
    period: float = FILE_PERIOD

    async def desired(self) -> DesiredKeys:
        try:
            text = await asyncio.to_thread(self._content)
        except OSError as error:
            return _problem(self.location, f"cannot be read: {error.strerror}")
        if len(text) > LARGEST:
            return _problem(self.location, f"is larger than {LARGEST} bytes")
        entries = _mapping(text)
        if entries is None:
            return _problem(self.location, "is not a mapping of users to keys in YAML or JSON")
        return parse(entries)

    async def follow(self, changed: Callable[[], None]) -> None:
        known: DesiredKeys | None = None
        while True:
            found = await self.desired()
            if found != known:
                known = found
                changed()
            await asyncio.sleep(self.period)

    def _content(self) -> bytes:
        with Path(self.location.name).open("rb") as file:
            return file.read(LARGEST + 1)


def _mapping(text: bytes) -> dict[str, bytes] | None:
    """Returns users and their keys. The parser's error is dropped: it quotes the text."""
    import yaml  # noqa: PLC0415 -- only for this source

    try:
        document: object = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    entries = cast("dict[object, object]", document)
    return {str(user): _text(value) for user, value in entries.items()}


def _text(value: object) -> bytes:
    """Returns the text of a value. Other YAML types are not keys and are rejected later."""
    return str(value or "").encode()
