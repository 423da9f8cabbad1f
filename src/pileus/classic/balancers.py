"""Load balancers of a ported provider: a few coarse changes, in the order of the Go framework.

| change | when | calls |
|---|---|---|
| `Ensure` | nothing is remembered, or the Service changed | ensure_load_balancer |
| `Update` | only the member nodes changed | update_load_balancer; on an error get_load_balancer |
| `Update`, `Ensure` | the last call failed, and the member nodes changed since | both |
| `Delete` | none is desired, and get_load_balancer found one | ensure_load_balancer_deleted |
| `Forget` | none is desired, none was found, but a note exists | none |

As in Go, the provider is not asked before an ensure. A Service that has not changed since it was
last passed to the provider, also by an earlier process (`classic.service_records`), costs no call.
A full check costs one `get_load_balancer`, so that a load balancer deleted out of band is noticed;
Go does not check. A deletion is checked as well: providers look the load balancer up before they
delete it, and report success if that one answer shows none.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, cast

import msgspec

from pileus.classic.calls import Calls
from pileus.classic.errors import ImplementedElsewhere, NilStatus, balancer_error
from pileus.classic.interface import Interface, LoadBalancer
from pileus.classic.service_records import (
    Former,
    Members,
    Memory,
    Note,
    Notes,
    Remembered,
    fingerprint,
    members_hash,
)
from pileus.cloud.balancer import (
    Balancer,
    BalancerState,
    Effect,
    Ingress,
    Owner,
    Part,
    PortStatus,
    Wish,
)
from pileus.cloud.errors import CloudError, Conflict, Misconfigured
from pileus.cloud.model import Failure
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeSpec,
    Service,
)
from pileus.runtime.cluster_access import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSeen:
    service: Service
    remembered: Remembered | None
    exists: bool
    balancer: Balancer | None = None
    ensuring: str = ""
    """The fingerprint of the Service, the provider's name and the cluster's name."""
    is_noted: bool = False
    record: str | None = None
    """The note to write on the Service (`cloud.balancer.record_of`)."""


@dataclass(frozen=True, slots=True)
class Ensure:
    owner: Owner
    members: Members
    effect: Effect
    summary: str
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Update:
    owner: Owner
    members: Members
    summary: str
    effect: Effect = Effect.UPDATE
    part: Part = Part.MEMBERS


@dataclass(frozen=True, slots=True)
class Delete:
    owner: Owner
    summary: str
    effect: Effect = Effect.DELETE
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Forget:
    owner: Owner
    summary: str
    effect: Effect = Effect.UPDATE
    part: Part = Part.WHOLE


ClassicChange = Ensure | Update | Delete | Forget
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicBalancers:
    provider: Interface
    view: ClusterView
    memory: Memory
    notes: Notes
    calls: Calls
    cluster_name: str

    async def owners(self, cluster: str) -> frozenset[Owner]:
        """Returns owners that were ensured here, or whose Service has a note or the finalizer.

        A ported provider cannot list its load balancers.
        """
        claimed = (
            Owner(cluster, service.metadata.uid)
            for service in self.view.services()
            if self.notes.is_noted(service) or _may_be_ours(service)
        )
        return self.memory.owners(cluster) | frozenset(claimed)

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, ClassicSeen | Failure]:
        async with asyncio.TaskGroup() as group:
            tasks = {
                wish.owner: group.create_task(self._observe_one(wish, deep=deep)) for wish in wishes
            }
        seen = {owner: task.result() for owner, task in tasks.items()}
        return {owner: it for owner, it in seen.items() if it is not None}

    async def _observe_one(self, wish: Wish, *, deep: bool) -> ClassicSeen | Failure | None:
        last, former = self.memory.recall(wish.owner), self.memory.former(wish.owner)
        shown = self.notes.newest(wish.owner.uid, self.view.service(wish.owner.uid))
        known = shown or (last and last.service) or self.memory.sight(wish.owner)
        service = known or (former and former.service)
        if service is None:
            return None
        if wish.spec is None and former is not None and former.is_elsewhere:
            return _nothing_of(service)
        if shown is not None and self.notes.is_noted(shown):
            self.memory.see(wish.owner, shown)
        if known is None:  # the note of a former Service is gone with it
            seen = _nothing_of(service)
        else:
            seen = self._known(known, last or self._noted(known))
        if wish.spec is not None and (_plan(wish, seen) or not deep):
            return seen
        try:
            status = await self._get(wish.owner, service)
        except CloudError as error:
            return Failure(error)
        seen = replace(seen, exists=status is not None, balancer=_balancer(service, status))
        if status is not None or wish.spec is not None:
            return seen
        if not _removal(wish.owner, seen, ""):
            self.memory.forget(wish.owner, former or Former(service=service))
            self.notes.forget(service)
        return seen

    def _noted(self, service: Service) -> Remembered | None:
        """Returns what an earlier process knew: its note, and the status that it published."""
        note = self.notes.read(service)
        if note is None:
            return None
        published = (service.status and service.status.load_balancer) or LoadBalancerStatus()
        return Remembered(
            service=service,
            ensured=note.ensured,
            members=note.members,
            status=None if note.is_elsewhere else published,
        )

    def _known(self, service: Service, last: Remembered | None) -> ClassicSeen:
        """Returns what is known without asking the cloud: at least what the Service publishes."""
        status = last.status if last else _published(service)
        return ClassicSeen(
            service=service,
            remembered=last,
            exists=last is None or last.status is not None,
            balancer=_balancer(service, status),
            ensuring=fingerprint(service, self.provider.provider_name(), self.cluster_name),
            is_noted=self.notes.is_noted(service),
            record=self.notes.pending(service),
        )

    def changes(self, wish: Wish, seen: ClassicSeen) -> tuple[ClassicChange, ...]:
        if wish.adopts and wish.spec is not None:
            raise Misconfigured(
                "annotation pileus.dev/adopt: this cloud's provider was ported from Go, finds the "
                "load balancer of a Service by itself and takes over no other. The load balancer "
                "of the Service is not changed. Fix: remove the annotation"
            )
        return _plan(wish, seen)

    async def apply(self, change: ClassicChange, seen: ClassicSeen) -> ClassicSeen:
        match change:
            case Ensure():
                return await self._ensure(change, seen)
            case Update():
                return await self._update(change, seen)
            case Delete():
                return await self._delete(change, seen)
            case Forget():
                return await self._forget(change, seen)

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid

    async def _ensure(self, change: Ensure, seen: ClassicSeen) -> ClassicSeen:
        last = Remembered(
            service=seen.service, ensured=seen.ensuring, members=members_hash(change.members)
        )
        before = seen.remembered and seen.remembered.status
        await self._begin(change.owner, seen, replace(last, status=before))
        try:
            status = await self.calls.make_alone(
                change.owner.uid,
                self._balancer().ensure_load_balancer,
                self.cluster_name,
                seen.service,
                self._nodes(change.members),
            )
        except ImplementedElsewhere:
            return self._finish(change.owner, last)
        except Exception as error:
            raise balancer_error(error) from error
        if not isinstance(cast("object", status), LoadBalancerStatus):
            raise NilStatus
        return self._finish(change.owner, replace(last, status=status))

    async def _update(self, change: Update, seen: ClassicSeen) -> ClassicSeen:
        before = seen.remembered
        if before is None:
            raise Conflict("nothing is known of the load balancer: observe it again")
        last = replace(before, service=seen.service, members=members_hash(change.members))
        await self._begin(change.owner, seen, last)
        try:
            await self.calls.make_alone(
                change.owner.uid,
                self._balancer().update_load_balancer,
                self.cluster_name,
                seen.service,
                self._nodes(change.members),
            )
        except ImplementedElsewhere:
            pass
        except Exception as error:  # noqa: BLE001 -- a ported provider raises what it likes
            await self._fail_update(change, seen, error)
        return self._finish(change.owner, last)

    async def _fail_update(self, change: Update, seen: ClassicSeen, error: Exception) -> NoReturn:
        """As in Go: it is a failure only if the load balancer exists. If not, ensure it next."""
        failure = balancer_error(error, may_postpone=False)
        try:
            status = await self._get(change.owner, seen.service)
        except CloudError:
            raise failure from error
        if status is not None:
            raise failure from error
        raise Conflict("the load balancer no longer exists: it is ensured again") from error

    async def _delete(self, change: Delete, seen: ClassicSeen) -> ClassicSeen:
        await self._unnote(seen)
        try:
            await self.calls.make_alone(
                change.owner.uid,
                self._balancer().ensure_load_balancer_deleted,
                self.cluster_name,
                seen.service,
            )
        except ImplementedElsewhere:
            former = Former(service=seen.service, is_elsewhere=True)
            return self._forgotten(change.owner, former)
        except Exception as error:
            raise balancer_error(error) from error
        return self._forgotten(change.owner, Former(service=seen.service))

    async def _forget(self, change: Forget, seen: ClassicSeen) -> ClassicSeen:
        await self._unnote(seen)
        former = self.memory.former(change.owner) or Former(service=seen.service)
        return self._forgotten(change.owner, former)

    def _forgotten(self, owner: Owner, former: Former) -> ClassicSeen:
        self.memory.forget(owner, former)
        self.notes.forget(former.service)
        return _nothing_of(former.service)

    async def _begin(self, owner: Owner, seen: ClassicSeen, last: Remembered) -> None:
        """If the process dies during the call, the owner is remembered and no note exists."""
        await self._unnote(seen)
        self.memory.remember(owner, last.unsettled())

    def _finish(self, owner: Owner, last: Remembered) -> ClassicSeen:
        self.memory.remember(owner, last)
        if not last.is_settled:
            return self._known(last.service, last)
        note = Note(last.ensured, last.members, is_elsewhere=last.status is None)
        seen = self._known(self.notes.newest(owner.uid, last.service) or last.service, last)
        return replace(seen, record=self.notes.leave(last.service, note))

    async def _unnote(self, seen: ClassicSeen) -> None:
        """Remove the note. A Service that is being deleted takes its note with it."""
        last = seen.remembered
        may_be_noted = seen.is_noted or (last is not None and last.is_settled)
        if may_be_noted and not _is_being_deleted(seen.service):
            await self.notes.remove(seen.service)

    async def _get(self, owner: Owner, service: Service) -> LoadBalancerStatus | None:
        try:
            return await self.calls.make_alone(
                owner.uid, self._balancer().get_load_balancer, self.cluster_name, service
            )
        except Exception as error:
            raise balancer_error(error) from error

    def _balancer(self) -> LoadBalancer:
        balancer = self.provider.load_balancer()
        if balancer is None:
            raise Misconfigured("the provider no longer supports load balancers")
        return balancer

    def _nodes(self, members: Members) -> list[Node]:
        """Returns the members that still exist in the cluster."""
        found = ((self.view.node(name), known) for name, known in sorted(members))
        return [_identified(node, known) for node, known in found if node is not None]


def _nothing_of(service: Service) -> ClassicSeen:
    """For a Service whose load balancer this process has deleted, or found deleted."""
    return ClassicSeen(service=service, remembered=None, exists=False)


def _plan(wish: Wish, seen: ClassicSeen) -> tuple[ClassicChange, ...]:
    name = f"load balancer of {seen.service.metadata.namespace}/{seen.service.metadata.name}"
    if wish.spec is None:
        return _removal(wish.owner, seen, name)
    members = _members(wish)
    last = seen.remembered
    is_vanished = not seen.exists and last is not None and last.status is not None
    effect = Effect.CREATE if is_vanished or not _published(seen.service) else Effect.UPDATE
    ensure = Ensure(wish.owner, members, effect, f"ensure the {name}")
    if last is None:
        return (ensure,)
    update = Update(wish.owner, members, f"{len(members)} members of the {name}")
    has_others = last.members != members_hash(members)
    if not last.is_settled:
        return (update, ensure) if has_others and last.status is not None else (ensure,)
    if is_vanished or last.ensured != seen.ensuring:
        return (ensure,)
    return (update,) if has_others else ()


def _removal(owner: Owner, seen: ClassicSeen, name: str) -> tuple[ClassicChange, ...]:
    if seen.exists:
        return (Delete(owner, name),)
    is_kept = seen.is_noted and not _is_being_deleted(seen.service)
    return (Forget(owner, f"remove the note of the deleted {name}"),) if is_kept else ()


def _published(service: Service) -> LoadBalancerStatus | None:
    """Returns the status if it has an address, so that the load balancer was ensured before."""
    balancer = service.status.load_balancer if service.status else None
    return balancer if balancer is not None and balancer.ingress else None


def _identified(node: Node, known: str) -> Node:
    """Returns the Node with the provider ID of the member, also before it is written again.

    A node that registers again lacks it for a while. When it is written, the members are those that
    the provider was already given, and no update follows.
    """
    spec = node.spec or NodeSpec()
    if spec.provider_id or not known:
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(spec, provider_id=known))


def _is_being_deleted(service: Service) -> bool:
    """Whether the Service is being deleted, so that no load balancer can be desired again."""
    return service.metadata.deletion_timestamp is not None


def _may_be_ours(service: Service) -> bool:
    """Whether the Service has the finalizer, which other load balancer classes use as well."""
    named = service.spec is not None and service.spec.load_balancer_class is not None
    return FINALIZER in (service.metadata.finalizers or ()) and not named


def _members(wish: Wish) -> Members:
    nodes = wish.spec.members if wish.spec else ()
    return frozenset((node.name, node.provider_id) for node in nodes)


def _balancer(service: Service, status: LoadBalancerStatus | None) -> Balancer | None:
    if status is None:
        return None
    ingress = tuple(map(_ingress, status.ingress or ()))
    return Balancer(id=service.metadata.uid, state=BalancerState.READY, ingress=ingress)


def _ingress(item: LoadBalancerIngress) -> Ingress:
    return Ingress(
        item.ip or "",
        item.hostname or "",
        proxied=item.ip_mode == "Proxy",
        ports=tuple(
            PortStatus(each.port, each.protocol, each.error or "") for each in item.ports or ()
        ),
    )
