"""What happens to a cluster while it is looked after: seeded, and of every kind."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from pileus.cloud.errors import CloudError
from pileus.kube.errors import Conflict, NotFound
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.patch import MergePatch
from pileus_lab.local.model.account import AddFault
from pileus_lab.local.model.balancers import (
    AddMembers,
    DeleteBalancer,
    ListBalancers,
    PutPort,
    RemoveMembers,
    RemovePort,
    SetTraffic,
)
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    ListMachines,
    StartMachine,
    StopMachine,
)
from pileus_lab.local.model.records import (
    Balancer,
    FaultKind,
    Machine,
    Member,
    Port,
    Power,
    Traffic,
)
from tests.soak.bed import NAMESPACE, Bed
from tests.soak.verdict import DRAIN, EXCLUDED

PLAIN = {"type": "ClusterIP", "loadBalancerSourceRanges": None, "externalTrafficPolicy": None}
Act = Callable[["Churn"], Awaitable[bool]]
"""Whether there was anything to do it to."""


@dataclass
class Churn:
    bed: Bed
    random: Random
    nodes: int
    services: int
    """How many there should be, about."""
    done: Counter[str] = field(default_factory=Counter[str])
    made: int = 0
    may_orphan: bool = True
    """Whether things are done that leave an orphan if nobody looks; those take a minute to go."""

    async def step(self) -> None:
        """One thing happens. What someone else has undone meanwhile is no error."""
        name = self.random.choices(list(WEIGHTS), weights=list(WEIGHTS.values()))[0]
        if name in ORPHANING and not self.may_orphan:
            return
        try:
            if await ACTS[name](self):
                self.done[name] += 1
        except (NotFound, Conflict, CloudError):
            self.done["came too late"] += 1

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"

    async def machine(self, *powers: Power) -> Machine | None:
        found = [one for one in await self.machines() if one.power in powers]
        return self.random.choice(found) if found else None

    async def machines(self) -> tuple[Machine, ...]:
        return (await self.bed.api.call(ListMachines())).items

    async def node(self) -> Node | None:
        found = (await self.bed.client.list(NODES)).items
        return self.random.choice(found) if found else None

    async def service(self, *types: str) -> Service | None:
        """One that is not the API server's own."""
        found = [
            one
            for one in (await self.bed.client.list(SERVICES, namespace=NAMESPACE)).items
            if one.metadata.name != "kubernetes" and (not types or _type(one) in types)
        ]
        return self.random.choice(found) if found else None

    async def are_few_services(self) -> bool:
        listed = (await self.bed.client.list(SERVICES, namespace=NAMESPACE)).items
        return len(listed) <= self.services * 0.8

    async def balancer(self) -> Balancer | None:
        """One of the manager's."""
        found = [one for one in (await self.bed.api.call(ListBalancers())).items if one.mark.owner]
        return self.random.choice(found) if found else None

    async def change(self, service: Service | None, **parts: object) -> bool:
        if service is None:
            return False
        patch = MergePatch(parts)
        name = service.metadata.name
        await self.bed.client.patch(SERVICES, name, patch, namespace=NAMESPACE)
        return True

    def ports(self) -> list[dict[str, Any]]:
        """The first one takes HTTP, so that it can be visited."""
        numbers = self.random.sample(range(8000, 9000), self.random.randint(1, 3))
        kinds = ["TCP", *self.random.choices(["TCP", "UDP"], k=2)]
        pairs = zip(numbers, kinds, strict=False)
        return [{"name": f"p{n}", "port": n, "protocol": kind} for n, kind in pairs]


def _type(service: Service) -> str:
    return service.spec.type if service.spec else ""


async def create_instance(churn: Churn) -> bool:
    if len(await churn.machines()) >= churn.nodes * 1.2:
        return False
    await churn.bed.api.call(CreateMachine(name=churn.name("n")))
    return True


async def delete_instance(churn: Churn) -> bool:
    if len(await churn.machines()) <= churn.nodes * 0.8:
        return False
    victim = await churn.machine(Power.RUNNING, Power.STOPPED)
    if victim:
        await churn.bed.api.call(DeleteMachine(machine=victim.id))
    return victim is not None


async def stop_instance(churn: Churn) -> bool:
    victim = await churn.machine(Power.RUNNING)
    if victim:
        await churn.bed.api.call(StopMachine(machine=victim.id))
    return victim is not None


async def start_instance(churn: Churn) -> bool:
    victim = await churn.machine(Power.STOPPED)
    if victim:
        await churn.bed.api.call(StartMachine(machine=victim.id))
    return victim is not None


async def cordon(churn: Churn) -> bool:
    node = await churn.node()
    if node:
        was = bool(node.spec and node.spec.unschedulable)
        patch = MergePatch({"spec": {"unschedulable": not was}})
        await churn.bed.client.patch(NODES, node.metadata.name, patch)
    return node is not None


async def exclude(churn: Churn) -> bool:
    node = await churn.node()
    if node:
        was = EXCLUDED in (node.metadata.labels or {})
        patch = MergePatch({"metadata": {"labels": {EXCLUDED: None if was else "true"}}})
        await churn.bed.client.patch(NODES, node.metadata.name, patch)
    return node is not None


async def create_service(churn: Churn) -> bool:
    listed = (await churn.bed.client.list(SERVICES, namespace=NAMESPACE)).items
    if len(listed) >= churn.services * 1.2:
        return False
    chance = churn.random
    spec: dict[str, Any] = {"type": "LoadBalancer", "ports": churn.ports()}
    if chance.random() < 0.3:
        spec["sessionAffinity"] = "ClientIP"
    if chance.random() < 0.2:
        spec["externalTrafficPolicy"] = "Local"
    if chance.random() < 0.3:
        spec["loadBalancerSourceRanges"] = ["127.0.0.0/8"]
    if chance.random() < 0.2:
        spec["loadBalancerClass"] = chance.choice(["pileus.dev/local", "example.com/other"])
    body = {"metadata": {"name": churn.name("s")}, "spec": spec}
    path = f"/api/v1/namespaces/{NAMESPACE}/services"
    await churn.bed.client.raw("POST", path, body=msgspec.json.encode(body))
    return True


async def delete_service(churn: Churn) -> bool:
    if await churn.are_few_services():
        return False
    service = await churn.service()
    if service:
        await churn.bed.client.delete(SERVICES, service.metadata.name, namespace=NAMESPACE)
    return service is not None


async def force_delete_service(churn: Churn) -> bool:
    """Without waiting for anyone: the finalizer is taken off by hand."""
    if await churn.are_few_services():
        return False
    service = await churn.service("LoadBalancer")
    if service:
        await churn.change(service, metadata={"finalizers": None})
        await churn.bed.client.delete(SERVICES, service.metadata.name, namespace=NAMESPACE)
        with suppress(NotFound):
            await churn.change(service, metadata={"finalizers": None})
    return service is not None


async def change_ports(churn: Churn) -> bool:
    return await churn.change(await churn.service(), spec={"ports": churn.ports()})


async def change_type(churn: Churn) -> bool:
    service = await churn.service("LoadBalancer", "ClusterIP")
    if service and _type(service) == "LoadBalancer":
        return await churn.change(service, spec=PLAIN)
    return await churn.change(service, spec={"type": "LoadBalancer"})


async def back_to_a_balancer(churn: Churn) -> bool:
    return await churn.change(await churn.service("ClusterIP"), spec={"type": "LoadBalancer"})


async def change_class(churn: Churn) -> bool:
    """The class of a Service cannot change while it is of that type: it goes there and back."""
    service = await churn.service("LoadBalancer", "ClusterIP")
    if service and _type(service) == "LoadBalancer":
        await churn.change(service, spec=PLAIN)
    chosen = churn.random.choice([None, None, "pileus.dev/local", "example.com/other"])
    return await churn.change(service, spec={"type": "LoadBalancer", "loadBalancerClass": chosen})


async def change_annotation(churn: Churn) -> bool:
    value = churn.random.choice([None, "0", "7", "60"])
    noise = {DRAIN: value, "example.com/note": str(churn.random.random())}
    return await churn.change(await churn.service(), metadata={"annotations": noise})


async def change_affinity(churn: Churn) -> bool:
    wanted = churn.random.choice(["None", "ClientIP"])
    spec = {"sessionAffinity": wanted, "sessionAffinityConfig": None}
    return await churn.change(await churn.service("LoadBalancer"), spec=spec)


async def hand_deletes(churn: Churn) -> bool:
    found = await churn.balancer()
    if found:
        await churn.bed.api.call(DeleteBalancer(balancer=found.id))
    return found is not None


async def hand_removes_members(churn: Churn) -> bool:
    found = await churn.balancer()
    if found and found.members:
        some = churn.random.sample(found.members, max(1, len(found.members) // 4))
        names = tuple(member.name for member in some)
        await churn.bed.api.call(RemoveMembers(balancer=found.id, names=names))
    return found is not None


async def hand_adds_member(churn: Churn) -> bool:
    found = await churn.balancer()
    if found:
        stranger = Member(name=churn.name("stranger"))
        await churn.bed.api.call(AddMembers(balancer=found.id, members=(stranger,)))
    return found is not None


async def hand_changes_ports(churn: Churn) -> bool:
    found = await churn.balancer()
    if found and found.ports and churn.random.random() < 0.5:
        port = found.ports[0]
        gone = RemovePort(balancer=found.id, port=port.port, transport=port.transport)
        await churn.bed.api.call(gone)
    elif found:
        more = Port(port=churn.random.randint(9100, 9999), node_port=29999)
        await churn.bed.api.call(PutPort(balancer=found.id, port=more))
    return found is not None


async def hand_changes_traffic(churn: Churn) -> bool:
    found = await churn.balancer()
    if found:
        odd = Traffic(sources=("127.0.0.0/9",), drain_seconds=1)
        await churn.bed.api.call(SetTraffic(balancer=found.id, traffic=odd))
    return found is not None


async def misbehave(churn: Churn) -> bool:
    """The next calls of the manager fail, come late, or have their effect and fail."""
    kind = churn.random.choice([
        FaultKind.ERROR,
        FaultKind.LOST,
        FaultKind.LATENCY,
        FaultKind.THROTTLE,
    ])
    where = churn.random.choice(["instances.*", "balancers.*", "balancers.*", "*"])
    await churn.bed.api.call(AddFault(kind=kind, where=where, times=3, seconds=1.0))
    return True


ACTS: dict[str, Act] = {
    "instance created": create_instance,
    "instance deleted": delete_instance,
    "instance stopped": stop_instance,
    "instance started": start_instance,
    "node cordoned, or back": cordon,
    "node excluded, or back": exclude,
    "service created": create_service,
    "service deleted": delete_service,
    "service force-deleted": force_delete_service,
    "service ports changed": change_ports,
    "service type changed": change_type,
    "service balanced again": back_to_a_balancer,
    "service class changed": change_class,
    "service annotation changed": change_annotation,
    "service affinity changed": change_affinity,
    "by hand: balancer deleted": hand_deletes,
    "by hand: members removed": hand_removes_members,
    "by hand: member added": hand_adds_member,
    "by hand: ports changed": hand_changes_ports,
    "by hand: traffic changed": hand_changes_traffic,
    "cloud misbehaves": misbehave,
}
WEIGHTS = {
    **dict.fromkeys(ACTS, 2),
    "instance created": 5,
    "instance deleted": 4,
    "service created": 9,
    "service balanced again": 5,
    "service deleted": 3,
    "service ports changed": 4,
    "cloud misbehaves": 1,
    "instance started": 3,
}

ORPHANING = frozenset({"service force-deleted", "service class changed"})


async def fill(churn: Churn) -> None:
    """As many nodes and Services as there should be."""
    for _ in range(churn.nodes):
        await create_instance(churn)
    while len((await churn.bed.client.list(SERVICES, namespace=NAMESPACE)).items) < churn.services:
        await create_service(churn)


async def go_on(churn: Churn, per_second: float) -> None:
    """One thing after the other, until cancelled."""
    while True:
        await churn.step()
        await asyncio.sleep(churn.random.expovariate(per_second))
