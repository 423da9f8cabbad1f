"""Every write that a manager makes, in the words of a plan: object, place, field or change, value.

provider contract ──apply, create, add …──▶ cloud writes
API server ────────before, after──────────▶ cluster writes, field by field
Planned ───────────summary, details───────▶ the same words
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pileus.cloud.balancer import Balancers, Change, Effect, Owner, Seen, Wish
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud, Routes, SshKeys
from pileus.cloud.model import Failure, NodeKeys, NodeName, NodeRef, Route, SshKey
from pileus.objects.preview import Place, Planned
from pileus.settings.go_quote import quote
from pileus_lab.apiserver.tree import Obj, branch, rows, text, texts, words
from pileus_lab.simulation.stage.steps import ObjectStep

ARROW = " → "
KINDS = {"nodes": "Node", "services": "Service"}


@dataclass(frozen=True, slots=True, order=True)
class Write:
    """One thing that is changed on one object, or in the cloud on its behalf."""

    about: str
    """`Node NAME` or `Service UID`."""
    place: Place
    what: str
    """In the cloud, the sign and summary of the change; in the cluster, the path of the field."""
    value: str = ""
    """In the cluster, what the field has afterwards."""

    def __str__(self) -> str:
        return f"{self.about}: {self.place} {self.what}{': ' if self.value else ''}{self.value}"


def promised(change: Planned) -> Iterator[Write]:
    """Yields the writes that a line of a plan announces."""
    kind, place = change.about.kind, change.place
    about = f"{kind} {change.about.uid if kind == 'Service' else change.about.name}"
    if place is Place.CLUSTER and change.effect is Effect.DELETE:
        yield Write(about, place, Effect.DELETE)
    elif place is Place.CLUSTER or change.summary.startswith("SSH keys"):
        sign = f"{change.effect} " if place is Place.CLOUD else ""
        for detail in change.details:
            path, _, values = detail.partition(": ")
            yield Write(about, place, f"{sign}{path}", values.rpartition(ARROW)[2])
    else:
        yield Write(about, place, f"{change.effect} {change.summary}")


def recorded(cloud: Cloud, told: Callable[[Write], None]) -> Cloud:
    """Returns the same cloud; `told` hears of every write before it is made."""
    return replace(
        cloud,
        balancers=cloud.balancers and RecordedBalancers(cloud.balancers, told),
        routes=cloud.routes and RecordedRoutes(cloud.routes, told),
        ssh_keys=cloud.ssh_keys and RecordedKeys(cloud.ssh_keys, told),
    )


class RecordedBalancers:
    """`apply` does not say for whom it is called: what `changes` saw before does."""

    def __init__(self, inner: Balancers[Any, Any], told: Callable[[Write], None]) -> None:
        self._inner = inner
        self._told = told
        self._owners: dict[int, tuple[Seen, Owner]] = {}

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self._inner.owners(cluster)

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        return await self._inner.observe(wishes, deep=deep)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        self._owners[id(seen)] = seen, wish.owner
        return self._inner.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        _, owner = self._owners[id(seen)]
        what = f"{change.effect} {change.summary}"
        self._told(Write(f"Service {owner.uid}", Place.CLOUD, what))
        after: Seen = await self._inner.apply(change, seen)
        self._owners[id(after)] = after, owner
        return after

    def lock_key(self, wish: Wish) -> str:
        return self._inner.lock_key(wish)


@dataclass(frozen=True, slots=True)
class RecordedRoutes:
    inner: Routes
    told: Callable[[Write], None]

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        return await self.inner.list_routes(cluster)

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self._tell(Effect.CREATE, routes)
        return await self.inner.create(cluster, routes)

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        self._tell(Effect.DELETE, routes)
        return await self.inner.delete(cluster, routes)

    def _tell(self, effect: Effect, routes: Sequence[Route]) -> None:
        for route in routes:
            target = route.target or ""
            what = f"{effect} route {route.destination} to {target or 'an unknown machine'}"
            self.told(Write(f"Node {target}", Place.CLOUD, what))


@dataclass(frozen=True, slots=True)
class RecordedKeys:
    inner: SshKeys
    told: Callable[[Write], None]

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        return await self.inner.list_keys(cluster, nodes)

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        self._tell(Effect.CREATE, keys, nodes)
        return await self.inner.add(cluster, keys, nodes)

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        self._tell(Effect.DELETE, keys, nodes)
        return await self.inner.remove(cluster, keys, nodes)

    def _tell(self, effect: Effect, keys: Sequence[SshKey], nodes: Sequence[NodeRef]) -> None:
        for node in nodes:
            for key in keys:
                what = f"{effect} {key.user}"
                self.told(Write(f"Node {node.name}", Place.CLOUD, what, key.fingerprint))


def differences(step: ObjectStep) -> Iterator[Write]:
    """Yields what a request changed on a node or Service, field by field."""
    before, after = step.before or {}, step.after
    kind = KINDS[step.resource]
    name = text(step.after or before, "metadata", "uid" if kind == "Service" else "name")
    about = f"{kind} {name}"
    if after is None or _is_leaving(after) > _is_leaving(before):
        if after is None and _is_leaving(before):
            yield from _changed(about, before, {})  # its last finalizer was removed
        else:
            yield Write(about, Place.CLUSTER, Effect.DELETE)
        return
    yield from _changed(about, before, after)


def _is_leaving(thing: Obj) -> bool:
    return bool(text(thing, "metadata", "deletionTimestamp"))


def _changed(about: str, before: Obj, after: Obj) -> Iterator[Write]:
    if not after:
        for one in texts(before, "metadata", "finalizers"):
            yield Write(about, Place.CLUSTER, "metadata.finalizers", f"without {one}")
        return
    old, new = dict(_fields(before)), dict(_fields(after))
    for path in sorted(old.keys() | new.keys()):
        if old.get(path) != new.get(path):
            yield Write(about, Place.CLUSTER, path, new.get(path, _nothing(path)))
    for path, entries in _SETS.items():
        gone, come = entries(before) - entries(after), entries(after) - entries(before)
        for one in sorted(gone):
            yield Write(about, Place.CLUSTER, path, f"without {one.partition(':')[0]}")
        for one in sorted(come):
            yield Write(about, Place.CLUSTER, path, f"with {one}")


def _nothing(path: str) -> str:
    return "removed" if path.startswith("metadata.") else "none"


def _fields(thing: Obj) -> Iterator[tuple[str, str]]:
    for group in ("labels", "annotations"):
        for key, value in words(thing, "metadata", group).items():
            yield f"metadata.{group}[{key}]", quote(value)
    if provider_id := text(thing, "spec", "providerID"):
        yield "spec.providerID", quote(provider_id)
    if ranges := texts(thing, "spec", "podCIDRs"):
        yield "spec.podCIDRs", f"[{', '.join(ranges)}]"
    addresses = rows(thing, "status", "addresses")
    if addresses:
        shown = (f"{text(one, 'type')} {text(one, 'address')}" for one in addresses)
        yield "status.addresses", ", ".join(shown)
    for one in rows(thing, "status", "conditions"):
        state = f"{quote(text(one, 'status'))} ({text(one, 'reason')})"
        yield f"status.conditions[{text(one, 'type')}]", state
    ingress = rows(branch(thing, "status", "loadBalancer"), "ingress")
    if ingress:
        shown = (text(one, "ip") or text(one, "hostname") for one in ingress)
        yield "status.loadBalancer.ingress", ", ".join(shown)


def _taints(thing: Obj) -> set[str]:
    return {f"{text(one, 'key')}:{text(one, 'effect')}" for one in rows(thing, "spec", "taints")}


def _finalizers(thing: Obj) -> set[str]:
    return {*texts(thing, "metadata", "finalizers")}


_SETS: Mapping[str, Callable[[Obj], set[str]]] = {
    "spec.taints": _taints,
    "metadata.finalizers": _finalizers,
}
