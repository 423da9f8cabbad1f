"""A second cloud beside the simulated one: small, correct, and often in trouble.

Its trouble (calls that hang, fail or are throttled, and connections that are refused) ends with the
schedule. The first cloud is judged by the same bounds as without it: trouble of one cloud must not
delay the other. The second cloud has one machine and one Service of its own, which users change,
delete and create again.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pileus.cloud.balancer import (
    Balancer,
    BalancerSpec,
    BalancerState,
    Effect,
    Ingress,
    Owner,
    Part,
    Wish,
)
from pileus.cloud.errors import Throttled, Unavailable
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import Absent, Address, Found, Instance, InstanceId, NodeName, NodeRef

SECOND = "second"
"""The name of the provider and of the cloud."""
MACHINE, ADDRESS = "second-1", "10.77.0.1"
SERVICE = "second-web"
CLASS = f"pileus.dev/{SECOND}"
SERVICES_PATH = "/api/v1/namespaces/default/services"
INGRESS = "203.0.113.77"
"""The address of its load balancers: there is one at a time."""
MOST_DEEDS = 5
LONGEST = 60.0
"""Seconds of one trouble."""
HANG = 45.0
"""Seconds for which a call hangs; longer than lookups wait once another cloud has answered."""


@dataclass(frozen=True, slots=True)
class Seen:
    owner: Owner
    spec: BalancerSpec | None

    @property
    def balancer(self) -> Balancer | None:
        if self.spec is None:
            return None
        return Balancer(
            id=f"second-{self.owner.uid}",
            state=BalancerState.READY,
            ingress=(Ingress(ip=INGRESS),),
            members=len(self.spec.members),
        )


@dataclass(frozen=True, slots=True)
class Change:
    effect: Effect
    summary: str
    spec: BalancerSpec | None
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Trouble:
    begins: float
    ends: float
    kind: str


def troubles(chance: Random, seconds: float) -> tuple[Trouble, ...]:
    """Draws the trouble of one seed; it covers about half of the time."""
    found: list[Trouble] = []
    now = chance.uniform(0, LONGEST)
    while now < seconds:
        ends = min(now + chance.uniform(5, LONGEST), seconds)
        found.append(Trouble(now, ends, chance.choice(["hangs", "fails", "throttled", "refused"])))
        now = ends + chance.uniform(5, LONGEST)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class UserRequest:
    """What a user does to the Service of the second cloud."""

    at: float
    method: str
    path: str
    body: Any = None


def user_requests(chance: Random, seconds: float) -> tuple[UserRequest, ...]:
    """Draws what users do in one seed. A Service that exists cannot be created again."""
    count = chance.randint(0, MOST_DEEDS)
    times = sorted(chance.uniform(0.1, 0.9) * seconds for _ in range(count))
    return tuple(_request(chance.choice(["change", "delete", "create"]), at) for at in times)


def _request(kind: str, at: float) -> UserRequest:
    if kind == "create":
        return UserRequest(at, "POST", SERVICES_PATH, service())
    if kind == "delete":
        return UserRequest(at, "DELETE", f"{SERVICES_PATH}/{SERVICE}")
    ports = [{"port": 81 + int(at) % 100}]
    return UserRequest(at, "PATCH", f"{SERVICES_PATH}/{SERVICE}", {"spec": {"ports": ports}})


@dataclass
class SecondCloud:
    """The state of the cloud, shared by all managers."""

    now: Callable[[], float]
    troubles: tuple[Trouble, ...]
    balancers: dict[Owner, BalancerSpec] = field(default_factory=dict[Owner, BalancerSpec])

    def ends(self) -> None:
        """End all trouble."""
        self.troubles = ()

    async def suffer(self, *, connecting: bool = False) -> None:
        """Does to a call what is wrong at the moment. Raises CloudError."""
        kind = next((one.kind for one in self.troubles if one.begins <= self.now() < one.ends), "")
        if kind == "hangs":
            await asyncio.sleep(HANG)
        elif kind == "throttled" and not connecting:
            raise Throttled("the second cloud asks to wait", retry_after=10.0)
        elif kind == "fails" or (kind == "refused" and connecting):
            raise Unavailable(f"the second cloud {kind}")

    @asynccontextmanager
    async def connect(self, config: ProviderConfig) -> AsyncGenerator[Cloud]:
        del config
        await self.suffer(connecting=True)
        yield Cloud(name=SECOND, instances=_Instances(self), balancers=_Balancers(self))


@dataclass(frozen=True, slots=True)
class _Instances:
    cloud: SecondCloud

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        del fresh
        await self.cloud.suffer()
        return {node.name: _machine(node) for node in nodes}


def _machine(node: NodeRef) -> Found:
    if node.name != MACHINE:
        return Absent(f"no machine {node.name}")
    return Instance(
        id=InstanceId(MACHINE),
        provider_id=f"{SECOND}://{MACHINE}",
        addresses=(Address("InternalIP", ADDRESS),),
    )


@dataclass(frozen=True, slots=True)
class _Balancers:
    cloud: SecondCloud

    async def owners(self, cluster: str) -> frozenset[Owner]:
        await self.cloud.suffer()
        return frozenset(owner for owner in self.cloud.balancers if owner.cluster == cluster)

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        del deep
        await self.cloud.suffer()
        return {one.owner: Seen(one.owner, self.cloud.balancers.get(one.owner)) for one in wishes}

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if wish.spec == seen.spec:
            return ()
        effect = Effect.CREATE if seen.spec is None else Effect.UPDATE
        effect = Effect.DELETE if wish.spec is None else effect
        return (Change(effect, "the second cloud's load balancer", wish.spec),)

    async def apply(self, change: Change, seen: Seen) -> Seen:
        await self.cloud.suffer()
        if change.spec is None:
            self.cloud.balancers.pop(seen.owner, None)
        else:
            self.cloud.balancers[seen.owner] = change.spec
        return Seen(seen.owner, change.spec)

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid


def node() -> dict[str, Any]:
    """The node of the cloud's machine, as its kubelet registers it."""
    taint = {
        "key": "node.cloudprovider.kubernetes.io/uninitialized",
        "value": "true",
        "effect": "NoSchedule",
    }
    return {
        "metadata": {"name": MACHINE},
        "spec": {"providerID": f"{SECOND}://{MACHINE}", "taints": [taint]},
    }


def service() -> dict[str, Any]:
    ports = [{"port": 80}]
    spec = {"type": "LoadBalancer", "ports": ports, "loadBalancerClass": CLASS}
    return {"metadata": {"name": SERVICE}, "spec": spec}
