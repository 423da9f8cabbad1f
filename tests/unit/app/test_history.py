"""The journal of a whole manager: it says what plans said, and nothing while nothing happens."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from pileus.app.manager import Manager
from pileus.app.plan import Plan
from pileus.telemetry.journal import Entry, Journal, Question, decoded
from pileus.testing.virtual_time import LoopClock
from pileus_lab.local.model.machines import DeleteMachine
from tests.unit.app.scene import Scene, scene
from tests.unit.app.stage import configured

HOUR = 3600


def entries(journal: Journal, **asked: str) -> Sequence[Entry]:
    return decoded(journal.history(Question(**asked), LoopClock().now()))  # type: ignore[arg-type]


@asynccontextmanager
async def managing(stage: Scene) -> AsyncGenerator[Journal]:
    manager = Manager(configured(*stage.flags), stage.world())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(manager.run())
        yield manager.journal
        running.cancel()


Change = tuple[str, str, frozenset[str]]
"""Place, action and the parts of the summary, which a later plan of a pass may order otherwise."""


def texts(plan: Plan, name: str) -> set[Change]:
    return {
        (change.place.value, change.effect.name.lower(), frozenset(change.summary.split(", ")))
        for _, change in plan.changes
        if change.about.name == name
    }


def recorded(found: Sequence[Entry]) -> set[Change]:
    lines = (line for each in found for line in each.plan)
    return {(line.place, line.action, frozenset(line.summary.split(", "))) for line in lines}


async def test_the_journal_says_what_the_plan_said_before() -> None:
    async with scene("web-1", "web-2") as stage:
        await stage.add_service("shop", 80)
        plan = await stage.plan()
        async with managing(stage) as journal:
            await asyncio.sleep(60)

    for kind, name in (("Node", "web-1"), ("Node", "web-2"), ("Service", "shop")):
        assert texts(plan, name) <= recorded(entries(journal, kind=kind, name=name))


async def test_a_new_node_is_told_from_lookup_to_the_last_write() -> None:
    async with scene("web-1") as stage, managing(stage) as journal:
        await asyncio.sleep(60)

    first = entries(journal, kind="Node", name="web-1")[0]
    assert (first.controller, first.result) == ("cloud-node-controller", "done")
    assert first.observed.startswith("instance local://")
    assert [call.method for call in first.calls] == ["instances.find"]
    assert [write.request for write in first.writes] == [
        "PATCH /api/v1/nodes/web-1/status",
        "PATCH /api/v1/nodes/web-1",
    ]
    assert all(write.status == 200 for write in first.writes)


async def test_a_service_is_told_with_the_calls_that_made_its_load_balancer() -> None:
    async with scene("web-1") as stage:
        await stage.add_service("shop", 80)
        async with managing(stage) as journal:
            await asyncio.sleep(60)

    found = entries(journal, kind="Service", namespace="default", name="shop")
    methods = [call.method for each in found for call in each.calls]
    assert "balancers.observe" in methods
    assert "balancers.apply" in methods
    assert any(line.summary.startswith("balancer default-shop") for e in found for line in e.plan)
    assert any(write.request.endswith("services/shop/status") for e in found for write in e.writes)


async def test_an_hour_in_which_nothing_happens_adds_nothing() -> None:
    async with scene("web-1", "web-2") as stage:
        await stage.add_service("shop", 80)
        async with managing(stage) as journal:
            await asyncio.sleep(300)
            before = journal.sequence
            await asyncio.sleep(HOUR)

    assert journal.sequence == before


async def test_a_lost_machine_is_told_until_its_node_is_deleted() -> None:
    async with scene("web-1", "web-2", "web-3") as stage:
        await stage.add_service("shop", 80)
        async with managing(stage) as journal:
            await asyncio.sleep(120)
            await stage.cloud.call(DeleteMachine(machine="web-3"))
            await asyncio.sleep(300)

    deletion = entries(journal, kind="Node", name="web-3")[-1]
    assert "no instance" in deletion.observed
    assert [line.action for line in deletion.plan] == ["delete"]
    assert deletion.writes[-1].request == "DELETE /api/v1/nodes/web-3"
