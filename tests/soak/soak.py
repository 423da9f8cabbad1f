"""A cluster in constant change, a manager that is killed again and again, and what must hold.

fill ▸ converge ▸ churn with restarts ▸ churn in peace ▸ converge ▸ traffic ▸ delete all ▸ converge
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from pileus.app.background import background
from pileus.kube.errors import NotFound
from pileus.kube.model.core_v1 import NODES, SERVICES, Service
from pileus.kube.patch import MergePatch
from pileus.runtime.failure import leaves
from pileus.testing.control_plane import ControlPlane
from tests.real.manager import Manager
from tests.soak.bed import NAMESPACE, Bed, bed
from tests.soak.churn import Churn, fill, go_on
from tests.soak.replicas import HOW, Used, resident
from tests.soak.verdict import (
    APPROVAL,
    EXCLUDED,
    World,
    is_served,
    kept,
    members,
    orphans,
    overgrown,
    problems,
)

Tell = Callable[[str], None]
SHOWN = 12
"""Problems that are named when it does not converge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    nodes: int
    services: int
    restless: float
    """Seconds of churn in which the manager is killed, every so often."""
    calm: float
    """Seconds of churn in which it is not, and its memory is watched."""
    per_second: float
    """Changes, on average."""
    restart_every: float
    patience: float
    """Seconds to converge in."""
    leaves_orphans: bool
    """Whether Services are force-deleted while nobody looks."""
    slack: float
    """MiB by which the manager may grow beyond a tenth while it is watched."""
    carriers: int = 6
    """Members that stay when real traffic is sent: a socket is needed for each node port."""


@dataclass
class Outcome:
    size: Size
    seed: int
    took: dict[str, float] = field(default_factory=dict[str, float])
    churn: Counter[str] = field(default_factory=Counter[str])
    ended: Mapping[str, int] = field(default_factory=dict[str, int])
    used: Used = field(default_factory=Used)
    memory: list[float] = field(default_factory=list[float])
    """MiB of who leads: after the restarts, in the middle of the calm time, at its end."""
    nodes: int = 0
    services: int = 0
    balancers: int = 0
    visited: int = 0
    approved: int = 0
    """Deletions of nodes that the guard left to a human."""
    orphans: int = 0


class NotConverged(AssertionError):
    """What still differs when the time is up."""


class Leaking(AssertionError):
    """Memory grows while nothing does."""


async def soak(cluster: ControlPlane, folder: Path, size: Size, seed: int, tell: Tell) -> Outcome:
    """Errors: `NotConverged`, `Leaking`, `AssertionError` that says what did not hold."""
    outcome = Outcome(size, seed)
    try:
        async with bed(cluster, folder) as it:
            await _live(it, outcome, tell)
            await _settle(it, outcome, tell)
            outcome.used, outcome.approved = it.replicas.total(), it.approved
    except BaseExceptionGroup as group:
        raise next(leaves(group)) from group
    return outcome


async def _live(it: Bed, outcome: Outcome, tell: Tell) -> None:
    size = outcome.size
    churn = Churn(it, Random(outcome.seed), size.nodes, size.services)
    outcome.churn, outcome.ended = churn.done, it.replicas.ended
    churn.may_orphan = size.leaves_orphans
    async with _timed(outcome, tell, "filled and converged"):
        await fill(churn)
        await _converged(it, size.patience, tell)
    async with background(go_on(churn, size.per_second)):
        async with _timed(outcome, tell, "churn with restarts"):
            await _restless(it, size, churn, tell)
        async with _timed(outcome, tell, "churn in peace"):
            pid = (await _leader(it, size.patience)).process.pid
            await asyncio.sleep(size.calm / 4)
            churn.may_orphan = True
            await _calm(pid, size, outcome, tell)


async def _settle(it: Bed, outcome: Outcome, tell: Tell) -> None:
    size = outcome.size
    async with _timed(outcome, tell, "converged after the churn"):
        world = await _converged(it, size.patience, tell)
    outcome.nodes, outcome.services = len(world.nodes), len(world.services)
    outcome.balancers, outcome.orphans = len(world.balancers), len(orphans(world))
    async with _timed(outcome, tell, "traffic through every balancer"):
        outcome.visited = await _visit_all(it, size, tell)
    async with _timed(outcome, tell, "all Services deleted"):
        await _delete_all(it)
        world = await _converged(it, size.patience, tell)
    async with _timed(outcome, tell, "deleted objects forgotten"):
        await _forgotten(it, world, size.patience)


async def _forgotten(it: Bed, world: World, patience: float) -> None:
    """Wait until the leader remembers nothing of objects that do not exist. Raises `Leaking`."""
    deadline = time.monotonic() + patience
    while True:
        manager = await _leader(it, patience)
        _, text = await asyncio.to_thread(manager.get, "/metrics")
        wrong = overgrown(text, len(world.nodes), len(world.services))
        if not wrong:
            return
        if time.monotonic() > deadline:
            raise Leaking("; ".join(wrong))
        await asyncio.sleep(2)


@asynccontextmanager
async def _timed(outcome: Outcome, tell: Tell, what: str) -> AsyncGenerator[None]:
    began = time.monotonic()
    yield
    outcome.took[what] = time.monotonic() - began
    tell(f"{outcome.took[what]:6.1f} s  {what}")


async def _converged(it: Bed, patience: float, tell: Tell) -> World:
    """Wait until desired is actual. Errors: `NotConverged`."""
    deadline = time.monotonic() + patience
    while True:
        world = await it.world()
        wrong = problems(world)
        if not wrong:
            return world
        if time.monotonic() > deadline:
            lines = "\n  ".join(sorted(wrong)[:SHOWN])
            raise NotConverged(f"{len(wrong)} things differ after {patience:g} s:\n  {lines}")
        tell(f"          {len(wrong)} things differ, such as: {wrong[0]}")
        await _approve(it, world)
        await asyncio.sleep(2)


async def _approve(it: Bed, world: World) -> None:
    """As its operator would: machines that went before their nodes were initialized are gone."""
    for node in kept(world):
        patch = MergePatch({"metadata": {"annotations": {APPROVAL: "approved"}}})
        with suppress(NotFound):
            await it.client.patch(NODES, node.metadata.name, patch)
            it.approved += 1


async def _restless(it: Bed, size: Size, churn: Churn, tell: Tell) -> None:
    """Each way of ending the manager has its turn."""
    until = time.monotonic() + size.restless
    turn = 0
    while time.monotonic() < until:
        await asyncio.sleep(size.restart_every)
        how = HOW[turn % len(HOW)]
        turn += 1
        await it.replicas.disturb(how)
        tell(f"          {sum(churn.done.values())} changes; manager: {how}")


async def _calm(pid: int, size: Size, outcome: Outcome, tell: Tell) -> None:
    """The memory of who leads may grow no more than a little. Errors: `Leaking`."""
    for _ in range(3):
        outcome.memory.append(resident(pid))
        tell(f"          manager {outcome.memory[-1]:.0f} MiB")
        await asyncio.sleep(size.calm / 4)
    outcome.memory[-1] = resident(pid)
    first, _, last = outcome.memory
    allowed = first * 1.1 + size.slack
    if not 0 < last <= allowed:
        raise Leaking(f"memory was {first:.0f} MiB and is {last:.0f}, more than {allowed:.0f}")


async def _leader(it: Bed, patience: float) -> Manager:
    deadline = time.monotonic() + patience
    while (manager := it.replicas.leader()) is None:
        assert time.monotonic() < deadline, f"nobody leads after {patience:g} s"
        await asyncio.sleep(1)
    return manager


async def _visit_all(it: Bed, size: Size, tell: Tell) -> int:
    """Send a request through each balancer; the cloud is started anew for that, with sockets."""
    await _keep_members(it, size.carriers)
    await _converged(it, size.patience, tell)
    await asyncio.to_thread(it.cloud.stop)
    await it.cloud.start("loopback")
    world = await _converged(it, size.patience, tell)
    names = members(world.nodes)
    timeout = aiohttp.ClientTimeout(total=5)
    visited = 0
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for service in filter(is_served, world.services):
            answer = await _visited(session, _url(service), size.patience)
            assert answer in names, f"service {service.metadata.name}: answered by {answer}"
            visited += 1
    return visited


def _url(service: Service) -> str:
    spec, status = service.spec, service.status
    assert spec
    assert spec.ports
    assert status
    assert status.load_balancer
    assert status.load_balancer.ingress
    return f"http://{status.load_balancer.ingress[0].ip}:{spec.ports[0].port}/"


async def _visited(session: aiohttp.ClientSession, url: str, patience: float) -> str:
    """Who answers; a health check may still be under way."""
    deadline = time.monotonic() + patience
    told = ""
    while time.monotonic() < deadline:
        try:
            async with session.get(url) as response:
                return (await response.text()).partition("\n")[0]
        except (aiohttp.ClientError, TimeoutError) as error:
            told = str(error)
        await asyncio.sleep(0.2)
    return f"nobody at {url}: {told}"


async def _keep_members(it: Bed, count: int) -> None:
    """Leave that many running nodes in the balancers."""
    machines = {m.name for m in (await it.world()).machines if m.power == "running"}
    kept = 0
    for node in sorted((await it.client.list(NODES)).items, key=lambda one: one.metadata.name):
        is_kept = node.metadata.name in machines and kept < count
        kept += is_kept
        labels = {EXCLUDED: None if is_kept else "true"}
        await it.client.patch(
            NODES, node.metadata.name, MergePatch({"metadata": {"labels": labels}})
        )


async def _delete_all(it: Bed) -> None:
    for service in (await it.client.list(SERVICES, namespace=NAMESPACE)).items:
        name = service.metadata.name
        if name != "kubernetes":
            with suppress(NotFound):
                await it.client.delete(SERVICES, name, namespace=NAMESPACE)
