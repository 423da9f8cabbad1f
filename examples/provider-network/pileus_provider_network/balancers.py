"""Network load balancers: what is observed, and the requests of each change.

Every request is idempotent, so that a change can be repeated after a crash at any point. The first
request of a change removes the fingerprint; the last change of a pass sets it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from pileus.cloud.balancer import Owner, Wish
from pileus.cloud.errors import Conflict, Misconfigured, NotFound
from pileus_provider_network import plan
from pileus_provider_network.client import Client
from pileus_provider_network.model import (
    CreateBalancer,
    CreateTargetGroup,
    DeleteBalancer,
    DeleteListener,
    DeleteTargetGroup,
    DeregisterTargets,
    DescribeListeners,
    ModifyBalancer,
    ModifyTargetGroup,
    PutListener,
    RegisterTargets,
    TargetGroup,
)
from pileus_provider_network.plan import Change, Seen, mark_of, owner_of


@dataclass(frozen=True, slots=True)
class NetworkBalancers:
    client: Client

    async def owners(self, cluster: str) -> frozenset[Owner]:
        balancers, groups = await self.client.balancers(), await self.client.groups()
        owners = (owner_of(one.tags) for one in (*balancers, *groups))
        return frozenset(one for one in owners if one is not None and one.cluster == cluster)

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        """Three lists for all wishes, and the listeners of those whose parts are needed."""
        machines = frozenset(one.id for one in await self.client.machines())
        balancers, groups = await self.client.balancers(), await self.client.groups()
        by_owner = {owner_of(one.tags): one for one in reversed(balancers)}
        by_id = {one.id: one for one in balancers}
        seen: dict[Owner, Seen] = {}
        for wish in wishes:
            found = by_owner.get(wish.owner)
            named = by_id.get(wish.adopts) if found is None else None
            one = Seen(wish.owner, found, named, machines=machines)
            seen[wish.owner] = await self._with_parts(wish, one, groups, deep=deep)
        return seen

    async def _with_parts(
        self, wish: Wish, seen: Seen, groups: Sequence[TargetGroup], *, deep: bool
    ) -> Seen:
        subject, found = seen.subject, seen.found
        is_current = found is not None and plan.is_current(wish, found.tags, seen.machines)
        if subject is not None and (deep or not is_current):
            listeners = await self.client.send(DescribeListeners(subject.id))
            seen = replace(seen, listeners=listeners)
        used = {one.group for one in seen.listeners or ()}
        ours = (one for one in groups if owner_of(one.tags) == seen.owner or one.id in used)
        return replace(seen, groups=tuple(ours))

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return plan.changes(wish, seen)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        try:
            return await self._apply(change, seen)
        except NotFound as error:
            raise Conflict(f"{error}: it was deleted meanwhile; observe again") from error

    async def _apply(self, change: Change, seen: Seen) -> Seen:
        match change.step:
            case plan.Create() as step:
                return await self._create(step, seen)
            case plan.Claim(balancer):
                return await self._claim(balancer, seen)
            case plan.Delete(balancer):
                await self.client.send(DeleteBalancer(balancer))
                return replace(seen, found=None, listeners=None)
            case plan.Stamp() as stamp:
                return await self._stamped(seen, stamp)
            case plan.RemoveGroup(group):
                await self.client.send(DeleteTargetGroup(group))
                return seen.without_group(group)
            case _:
                return await self._repair(change.step, await self._stamped(seen, plan.Stamp()))

    async def _stamped(self, seen: Seen, stamp: plan.Stamp) -> Seen:
        """Set the fingerprint of the owner's load balancer; an empty stamp removes it."""
        found = seen.found
        if found is None:
            return seen
        tags = replace(found.tags, fingerprint=stamp.fingerprint, missing=stamp.missing)
        if tags == found.tags:
            return seen
        return replace(seen, found=await self.client.send(ModifyBalancer(found.id, tags=tags)))

    async def _create(self, step: plan.Create, seen: Seen) -> Seen:
        mark = mark_of(seen.owner)
        made = await self.client.send(CreateBalancer(step.name, mark, step.sources, step.families))
        if owner_of(made.tags) != seen.owner:
            raise Misconfigured(f"the name {step.name} is taken by {made.id}; delete or rename it")
        if made.tags != mark:
            raise Conflict(f"{made.id} was there, although no list had it; observe again")
        listeners = await self.client.send(DescribeListeners(made.id))
        return replace(seen, found=made, listeners=listeners)

    async def _claim(self, balancer: str, seen: Seen) -> Seen:
        mark = mark_of(seen.owner)
        seen = replace(
            seen, named=None, found=await self.client.send(ModifyBalancer(balancer, tags=mark))
        )
        for group in seen.groups:
            seen = await self._set_group(replace(group, tags=mark), seen)
        return seen

    async def _repair(self, step: plan.Repair, seen: Seen) -> Seen:
        subject = seen.subject
        match step:
            case plan.SetGroup(group):
                return await self._set_group(group, seen)
            case plan.SetTargets(group, targets):
                return await self._set_targets(group, targets, seen)
            case _ if subject is None:
                raise Conflict("the load balancer is not there any more; observe again")
            case plan.SetSources(sources):
                changed = await self.client.send(ModifyBalancer(subject.id, sources=sources))
                return replace(seen, found=changed)
            case plan.SetFamilies(families):
                changed = await self.client.send(ModifyBalancer(subject.id, families=families))
                return replace(seen, found=changed)
            case plan.PutPort() as put:
                return await self._put_port(subject.id, put, seen)
            case plan.RemovePort(port):
                await self.client.send(DeleteListener(subject.id, port))
                return seen.without_listener(port)
            case _:
                assert_never(step)

    async def _put_port(self, balancer: str, put: plan.PutPort, seen: Seen) -> Seen:
        """The listener comes last: until then nothing is sent to a group without members."""
        wanted = put.group
        made = await self.client.send(CreateTargetGroup(wanted.name, wanted.port, wanted.tags))
        seen = await self._set_group(replace(wanted, id=made.id, targets=made.targets), seen)
        targets = wanted.targets | (put.members & made.targets)
        seen = await self._set_targets(made.id, targets, seen)
        listener = await self.client.send(PutListener(balancer, put.port, made.id))
        return seen.with_listener(listener)

    async def _set_group(self, group: TargetGroup, seen: Seen) -> Seen:
        request = ModifyTargetGroup(group.id, group.tags, group.is_sticky, group.health_port)
        return seen.with_group(await self.client.send(request))

    async def _set_targets(self, group: str, targets: frozenset[str], seen: Seen) -> Seen:
        """Members join before others leave."""
        before = seen.group(group)
        present = before.targets if before else frozenset[str]()
        if targets - present:
            joined = await self.client.send(RegisterTargets(group, targets - present))
            seen = seen.with_group(joined)
        if present - targets:
            left = await self.client.send(DeregisterTargets(group, present - targets))
            seen = seen.with_group(left)
        return seen

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid
