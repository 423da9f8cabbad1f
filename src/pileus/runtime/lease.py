"""The Lease of leader election: its durations, who may take it, and how it is written.

Decisions here are pure. A lease is kept as the JSON that the API server sent, so that unknown
fields survive a PUT; the Go framework's role has no permission to patch leases.
"""

import uuid
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Protocol

import msgspec

from pileus.clock import rfc3339
from pileus.dataclass import dataclass
from pileus.kube.client import Client, Selector
from pileus.kube.decoding import Malformed, decode
from pileus.kube.errors import NotFound, Unreadable
from pileus.kube.model.coordination_v1 import LEASES, Lease, LeaseSpec
from pileus.kube.model.core_v1 import ObjectReference
from pileus.runtime.settings import Durations

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that takes part in the election for one lease."""

    namespace: str
    name: str
    identity: str
    durations: Durations

    @property
    def lock(self) -> str:
        return f"{self.namespace}/{self.name}"


def new_identity(hostname: str) -> str:
    """Returns a name that no other process has, and that changes with a restart."""
    return f"{hostname}_{uuid.uuid4()}"


@dataclass(frozen=True, slots=True)
class Observed:
    """A lease, and since when it has been unchanged, by the local monotonic clock."""

    lease: Json
    since: float

    @property
    def spec(self) -> LeaseSpec:
        return spec_of(self.lease)

    def is_free(self, identity: str, now: float) -> bool:
        """Returns whether `identity` may take it: it has no holder, is its own, or has expired.

        It has expired if it was unchanged for its duration. The times in the lease come from the
        clock of another machine and do not count.
        """
        holder = self.spec.holder_identity
        if not holder or holder == identity:
            return True
        return now > self.since + (self.spec.lease_duration_seconds or 0)


def observe(before: Observed | None, lease: Json, now: float) -> Observed:
    """Returns the lease as observed now; only a change restarts its time."""
    if before is not None and before.lease == lease:
        return before
    return Observed(lease, now)


def new_lease(candidate: Candidate, now: datetime) -> Json:
    """Returns the lease that `candidate` creates if there is none."""
    metadata = {"name": candidate.name, "namespace": candidate.namespace}
    blank: Json = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata}
    return _with_spec(blank, _held_by(candidate, now), acquireTime=_time(now), leaseTransitions=0)


def held(lease: Json, candidate: Candidate, now: datetime) -> Json:
    """Returns the lease as `candidate` writes it to take or renew it."""
    before = spec_of(lease)
    if before.holder_identity == candidate.identity:
        return _with_spec(lease, _held_by(candidate, now))
    transitions = (before.lease_transitions or 0) + 1
    taken = {"acquireTime": _time(now), "leaseTransitions": transitions}
    return _with_spec(lease, _held_by(candidate, now), **taken)


def released(lease: Json, now: datetime) -> Json:
    """Returns the lease as its holder releases it, so that it can be taken at once."""
    spec: Json = {"holderIdentity": "", "leaseDurationSeconds": 1}
    return _with_spec(lease, spec, renewTime=_time(now), acquireTime=_time(now))


def spec_of(lease: Mapping[str, object]) -> LeaseSpec:
    """Returns the spec. Raises `Unreadable` if a field has a wrong type."""
    try:
        return msgspec.convert(lease.get("spec") or {}, LeaseSpec)
    except msgspec.ValidationError as error:
        raise Unreadable(f"lease: {error}") from error


def reference(lease: Mapping[str, object]) -> ObjectReference:
    """How an event names the lease."""
    metadata = msgspec.convert(lease, Lease).metadata
    return ObjectReference(
        kind=LEASES.kind,
        api_version=LEASES.api_version,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


class LeaseStore(Protocol):
    """One lease, wherever it is kept. Errors: those of `pileus.kube.errors`."""

    async def read(self) -> Json | None:
        """The lease as it is now, or None if there is none; never from a cache."""
        ...

    async def create(self, lease: Json) -> Json:
        """Errors: also `AlreadyExists`."""
        ...

    async def update(self, lease: Json) -> Json:
        """Write it unless it was changed since it was read; return it as it is now.

        Errors: also `Conflict`.
        """
        ...

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the lease may have changed, until the server ends the watch.

        A watch may lag behind: read the lease before anything is concluded.
        """
        ...


class KubeLease:
    """The lease in a cluster. Its client must not be behind the fence that the lease controls."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._path = LEASES.path(name, namespace=namespace)
        self._collection = LEASES.path(namespace=namespace)
        self._selector = Selector(fields=f"metadata.name={name}")

    async def read(self) -> Json | None:
        try:
            return _decode(await self._client.raw("GET", self._path))
        except NotFound:
            return None

    async def create(self, lease: Json) -> Json:
        return _decode(await self._client.raw("POST", self._collection, body=_encode(lease)))

    async def update(self, lease: Json) -> Json:
        return _decode(await self._client.raw("PUT", self._path, body=_encode(lease)))

    async def watch(self, changed: Callable[[], None]) -> None:
        watch = self._client.watch(LEASES, namespace=self._namespace, selector=self._selector)
        async with aclosing(watch) as events:
            async for event in events:
                if event.type != "BOOKMARK":
                    changed()


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ANYTHING: msgspec.json.Decoder[object] = msgspec.json.Decoder(object)


def _decode(body: bytes) -> Json:
    """Return the lease without `managedFields`. The API server keeps its own if a PUT has none.

    Raises `Unreadable` if a field that we use has a wrong type.
    """
    try:
        fields = decode(_FIELDS, body)
        metadata = decode(_FIELDS, fields.pop("metadata", msgspec.Raw(b"{}")))
        metadata.pop("managedFields", None)
        lease = {**_plain(fields), "metadata": _plain(metadata)}
        msgspec.convert(lease, Lease)
    except (Malformed, msgspec.ValidationError) as error:
        raise Unreadable(f"lease: {error}") from error
    return lease


def _plain(fields: Mapping[str, msgspec.Raw]) -> Json:
    return {name: decode(_ANYTHING, raw) for name, raw in fields.items()}


def _encode(lease: Json) -> bytes:
    try:
        return msgspec.json.encode(lease)
    except OverflowError as error:  # an integer of more than 64 bits, in a field unknown to us
        raise Unreadable(f"lease: {error}") from error


def _held_by(candidate: Candidate, now: datetime) -> Json:
    return {
        "holderIdentity": candidate.identity,
        "leaseDurationSeconds": candidate.durations.lease_seconds,
        "renewTime": _time(now),
    }


def _with_spec(lease: Json, changes: Json, **more: object) -> Json:
    spec = lease.get("spec")
    before = msgspec.convert(spec, Json) if spec else {}
    return {**lease, "spec": {**before, **changes, **more}}


def _time(now: datetime) -> str:
    return rfc3339(now, "microseconds")
