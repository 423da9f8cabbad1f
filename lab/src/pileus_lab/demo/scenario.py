"""The scenario as data: what is done, what must hold then, and how long that may take."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pileus_lab.demo.cluster import is_listening
from pileus_lab.demo.environment import Stage
from pileus_lab.demo.facts import missing_in, zone_of

FIRST = ("web-1", "web-2", "web-3")
LOST, NEW = "web-2", "web-4"
LEFT = tuple(name for name in FIRST if name != LOST)
NOW = (*LEFT, NEW)
ROUNDS = 3
"""How many times each member must answer."""
PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Held:
    """It holds; `evidence` is what was observed."""

    evidence: str


@dataclass(frozen=True, slots=True)
class Missing:
    """It does not hold yet."""

    why: str


Act: TypeAlias = Callable[[Stage], Awaitable[None]]
Proof: TypeAlias = Callable[[Stage], Awaitable[Held | Missing]]


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    act: Act
    proof: Proof
    within: float = PATIENCE
    """Seconds within which the proof must hold."""


async def just_look(_: Stage) -> None:
    """Does nothing: an earlier step has this effect."""


async def manager_leads(stage: Stage) -> Held | Missing:
    leader = await stage.cluster.leader()
    return Held(f"{stage.url}, led by {leader}") if leader else Missing("no leader")


async def boot(stage: Stage) -> None:
    await stage.create_instances(FIRST)


async def registered(stage: Stage) -> Held | Missing:
    nodes = stage.cluster.nodes()
    if missing := [name for name in FIRST if name not in nodes]:
        return Missing(f"no node {', '.join(missing)}")
    if plain := [name for name in FIRST if name not in stage.cluster.came_tainted]:
        return Missing(f"registered without the taint: {', '.join(plain)}")
    return Held(", ".join(FIRST))


def initialized(names: Sequence[str]) -> Proof:
    async def proof(stage: Stage) -> Held | Missing:
        nodes = stage.cluster.nodes()
        lacks = {name: missing_in(nodes[name]) if name in nodes else "no node" for name in names}
        if told := [f"{name}: {what}" for name, what in lacks.items() if what]:
            return Missing("; ".join(told))
        return Held(", ".join(f"{name} in {zone_of(nodes[name])}" for name in names))

    return proof


async def open_shop(stage: Stage) -> None:
    await stage.shop.open()


def answered_by(names: Sequence[str]) -> Proof:
    async def proof(stage: Stage) -> Held | Missing:
        told = await stage.shop.visit(ROUNDS * len(names))
        said = ", ".join(f"{name} {times} times" for name, times in sorted(told.items()))
        return Held(said) if set(told) == set(names) else Missing(f"answers: {said}")

    return proof


async def lose(stage: Stage) -> None:
    await stage.lose_instance(LOST)


async def forgotten(stage: Stage) -> Held | Missing:
    """The node is deleted, and the balancer's members are the others."""
    if stage.cluster.node(LOST) is not None:
        return Missing(f"node {LOST} is still there")
    reasons = {(one.involved_object.name, one.reason) for one in stage.cluster.events()}
    if (LOST, "DeletingNode") not in reasons:
        return Missing(f"no event says that the manager deletes node {LOST}")
    (balancer,) = stage.cloud.state.balancers.values()
    members = sorted(member.name for member in balancer.members)
    if members != sorted(LEFT):
        return Missing(f"the balancer's members are {', '.join(members)}")
    return Held(f"no node {LOST}; members {', '.join(members)}")


async def replace(stage: Stage) -> None:
    await stage.create_instances([NEW])


async def close(stage: Stage) -> None:
    await stage.shop.close()


async def nothing_left(stage: Stage) -> Held | Missing:
    if stage.shop.service() is not None:
        return Missing("the Service is still there")
    if stage.cloud.state.balancers:
        return Missing("the cloud still has the balancer")
    if open_ones := [place for place in sorted(stage.listened) if await is_listening(*place)]:
        where = ", ".join(f"{address}:{port}" for address, port in open_ones)
        return Missing(f"still listening: {where}")
    return Held("no Service, no balancer, no listener")


STORY: tuple[Step, ...] = (
    Step("API server, cloud and manager run", just_look, manager_leads),
    Step("three instances boot; their nodes register with the taint", boot, registered),
    Step("the manager initializes the three nodes", just_look, initialized(FIRST)),
    Step("a Service gets an address: three instances answer", open_shop, answered_by(FIRST)),
    Step("an instance is lost: the other two answer", lose, answered_by(LEFT)),
    Step("the manager checks twice and deletes its node", just_look, forgotten),
    Step("its replacement registers as a node and is initialized", replace, initialized([NEW])),
    Step("the replacement gets traffic: three instances answer again", just_look, answered_by(NOW)),
    Step("the Service is deleted together with its load balancer", close, nothing_left),
)
"""The first step begins before the environment exists."""

ENCORE = Step("a Service to try commands on", open_shop, answered_by(NOW))
"""Runs after the scenario."""
