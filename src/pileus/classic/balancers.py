"""Load balancers through a ported provider: three coarse changes, in the Go framework's order.

| change | when | calls |
|---|---|---|
| `Ensure` | nothing remembered, or the Service changed | ensure_load_balancer |
| `Update` | only the member nodes changed | update_load_balancer; on an error get_load_balancer |
| `Delete` | nothing is wished, and get_load_balancer found one | ensure_load_balancer_deleted |

As in Go, nothing is asked before an ensure. A Service that is as it was last passed in costs one
`get_load_balancer`, so that a balancer deleted by hand is noticed (Go would not look).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pileus.classic.calls import Calls
from pileus.classic.comparison import needs_ensure
from pileus.classic.errors import ImplementedElsewhere, translated
from pileus.classic.interface import Interface, LoadBalancer
from pileus.classic.memory import Members, Memory, Remembered
from pileus.classic.view import ClusterView
from pileus.cloud.balancer import Balancer, BalancerState, Effect, Ingress, Owner, Part, Wish
from pileus.cloud.errors import CloudError, Conflict, Misconfigured, Unavailable
from pileus.cloud.model import Failure
from pileus.kube.model.core_v1 import LoadBalancerStatus, Node, Service


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicSeen:
    service: Service
    remembered: Remembered | None
    exists: bool
    balancer: Balancer | None = None


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


ClassicChange = Ensure | Update | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicBalancers:
    provider: Interface
    view: ClusterView
    memory: Memory
    calls: Calls
    cluster_name: str

    async def owners(self, cluster: str) -> frozenset[Owner]:
        """Those we ensured since the start: a ported provider cannot say who else there is."""
        return self.memory.owners(cluster)

    async def observe(
        self,
        wishes: Sequence[Wish],
        *,
        deep: bool,  # noqa: ARG002 -- there is one way to look
    ) -> Mapping[Owner, ClassicSeen | Failure]:
        async with asyncio.TaskGroup() as group:
            tasks = {wish.owner: group.create_task(self._observe_one(wish)) for wish in wishes}
        seen = {owner: task.result() for owner, task in tasks.items()}
        return {owner: it for owner, it in seen.items() if it is not None}

    async def _observe_one(self, wish: Wish) -> ClassicSeen | Failure | None:
        remembered = self.memory.recall(wish.owner)
        service = self.view.service(wish.owner.uid) or (remembered and remembered.service)
        if service is None:
            return None
        if wish.spec is not None and _will_be_written(wish, service, remembered):
            return ClassicSeen(
                service=service, remembered=remembered, exists=True, balancer=_known(remembered)
            )
        try:
            status = await self._get(wish.owner, service)
        except CloudError as error:
            return Failure(error)
        return _seen(wish.owner, service, remembered, status)

    def changes(self, wish: Wish, seen: ClassicSeen) -> tuple[ClassicChange, ...]:
        name = f"load balancer of {seen.service.metadata.namespace}/{seen.service.metadata.name}"
        if wish.spec is None:
            return (Delete(wish.owner, name),) if seen.exists else ()
        members = _members(wish)
        last = seen.remembered
        if last is None:
            return (Ensure(wish.owner, members, Effect.CREATE, f"ensure the {name}"),)
        is_vanished = not seen.exists and last.status is not None
        if is_vanished or not last.is_settled or needs_ensure(last.service, seen.service):
            return (Ensure(wish.owner, members, Effect.UPDATE, f"ensure the {name}"),)
        if last.members != members:
            return (Update(wish.owner, members, f"{len(members)} members of the {name}"),)
        return ()

    async def apply(self, change: ClassicChange, seen: ClassicSeen) -> ClassicSeen:
        match change:
            case Ensure():
                return await self._ensure(change, seen)
            case Update():
                return await self._update(change, seen)
            case Delete():
                return await self._delete(change, seen)

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid

    async def _ensure(self, change: Ensure, seen: ClassicSeen) -> ClassicSeen:
        last = Remembered(service=seen.service, members=change.members)
        self.memory.remember(change.owner, last.unsettled())  # it may die half-way: it is an owner
        nodes = self._nodes(change.members)
        try:
            status = await self.calls.make_alone(
                change.owner.uid,
                self._balancer().ensure_load_balancer,
                self.cluster_name,
                seen.service,
                nodes,
            )
        except ImplementedElsewhere:
            return self._remembered(change.owner, last)
        except Exception as error:
            raise translated(error) from error
        if not isinstance(cast("object", status), LoadBalancerStatus):
            raise Unavailable("service status returned by ensure_load_balancer is nil")
        return self._remembered(
            change.owner, Remembered(service=seen.service, members=change.members, status=status)
        )

    async def _update(self, change: Update, seen: ClassicSeen) -> ClassicSeen:
        last = seen.remembered
        if last is None:
            raise Conflict("nothing is remembered of this Service: observe it again")
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
            return await self._failed_update(change, seen, error)
        after = Remembered(service=seen.service, members=change.members, status=last.status)
        return self._remembered(change.owner, after)

    async def _failed_update(
        self, change: Update, seen: ClassicSeen, error: Exception
    ) -> ClassicSeen:
        """Go asks whether there is one at all, and if so has all ensured."""
        if seen.remembered is not None:
            self.memory.remember(change.owner, seen.remembered.unsettled())
        status = await self._get(change.owner, seen.service)
        if status is not None:
            raise translated(error) from error
        return _seen(change.owner, seen.service, self.memory.recall(change.owner), None)

    async def _delete(self, change: Delete, seen: ClassicSeen) -> ClassicSeen:
        try:
            await self.calls.make_alone(
                change.owner.uid,
                self._balancer().ensure_load_balancer_deleted,
                self.cluster_name,
                seen.service,
            )
        except ImplementedElsewhere:
            pass
        except Exception as error:
            raise translated(error) from error
        self.memory.forget(change.owner)
        return ClassicSeen(service=seen.service, remembered=None, exists=False)

    async def _get(self, owner: Owner, service: Service) -> LoadBalancerStatus | None:
        try:
            return await self.calls.make_alone(
                owner.uid, self._balancer().get_load_balancer, self.cluster_name, service
            )
        except Exception as error:
            raise translated(error) from error

    def _balancer(self) -> LoadBalancer:
        balancer = self.provider.load_balancer()
        if balancer is None:
            raise Misconfigured("the provider no longer supports load balancers")
        return balancer

    def _nodes(self, members: Members) -> list[Node]:
        """The members that are still in view."""
        nodes = (self.view.node(name) for name, _ in sorted(members))
        return [node for node in nodes if node is not None]

    def _remembered(self, owner: Owner, last: Remembered) -> ClassicSeen:
        self.memory.remember(owner, last)
        return _seen(owner, last.service, last, last.status)


def _will_be_written(wish: Wish, service: Service, last: Remembered | None) -> bool:
    return (
        last is None
        or not last.is_settled
        or last.members != _members(wish)
        or needs_ensure(last.service, service)
    )


def _members(wish: Wish) -> Members:
    nodes = wish.spec.members if wish.spec else ()
    return frozenset((node.name, node.provider_id) for node in nodes)


def _seen(
    owner: Owner, service: Service, last: Remembered | None, status: LoadBalancerStatus | None
) -> ClassicSeen:
    return ClassicSeen(
        service=service,
        remembered=last,
        exists=status is not None,
        balancer=None if status is None else _balancer(owner.uid, status),
    )


def _known(last: Remembered | None) -> Balancer | None:
    if last is None or last.status is None:
        return None
    return _balancer(last.service.metadata.uid, last.status)


def _balancer(uid: str, status: LoadBalancerStatus) -> Balancer:
    ingress = tuple(
        Ingress(item.ip or "", item.hostname or "", proxied=item.ip_mode == "Proxy")
        for item in status.ingress or ()
    )
    return Balancer(id=uid, state=BalancerState.READY, ingress=ingress)
