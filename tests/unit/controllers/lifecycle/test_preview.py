"""The plan of this controller: the same decisions, told and not performed."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import Unavailable
from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy
from pileus.objects.preview import EVERYTHING, Planned, Scope, Trouble
from tests.unit.controllers.lifecycle.world import World

TEN = tuple(f"n{number}" for number in range(10))


async def plan(
    world: World, scope: Scope = EVERYTHING, *, after: float = 0.0, **given: Any
) -> Sequence[Planned | Trouble]:
    """What a manager would do that has run for so long; 0: one that only plans."""
    settings = LifecycleSettings(period=10000 if not after else 5, **given)
    async with world.running(settings) as controller:
        await asyncio.sleep(after)
        before = list(world.wire.writes())
        lines = await controller.preview(scope)
        assert world.wire.writes() == before, "a plan writes nothing"
        assert await controller.preview(scope) == lines, "and remembers nothing"
        return lines


def deletion(lines: Sequence[Planned | Trouble]) -> Planned:
    (line,) = lines
    assert isinstance(line, Planned)
    assert line.effect is Effect.DELETE
    return line


async def test_a_cluster_that_is_well_has_an_empty_plan() -> None:
    world = World()
    await world.add(*TEN)

    assert await plan(world) == []
    assert world.cloud.calls == []


async def test_a_lost_node_waits_for_a_second_look() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose("n1")

    line = deletion(await plan(world))

    assert line.about.name == "n1"
    assert line.summary == "delete node: the cloud has no machine for it"
    assert line.details == ("the cloud reports: no server n1",)
    assert line.waits_for == "a second check with the same result, at least 30 s after the first"


async def test_with_immediate_nothing_is_waited_for() -> None:
    world = World()
    await world.add("n1")
    await world.lose("n1")
    world.wire.before = lambda request: asyncio.sleep(1e6) if request.method == "DELETE" else None

    assert deletion(await plan(world, policy=Policy.IMMEDIATE)).waits_for == ""


async def test_too_many_wait_for_the_breaker() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose(*TEN[:5])

    lines = await plan(world)

    deletions = [line for line in lines if isinstance(line, Planned) and line.effect == "-"]
    assert len(deletions) == 5
    assert all("5 of 10 nodes have no machine" in line.waits_for for line in deletions)


async def test_a_scope_shows_one_node_but_counts_all() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose(*TEN[:5])

    lines = await plan(world, Scope("Node", "", "n1"))

    assert {line.about.name for line in lines} == {"n1"}
    assert any("5 of 10" in line.waits_for for line in lines if isinstance(line, Planned))


async def test_a_kept_node_is_a_trouble_that_says_why() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose("n1")

    lines = await plan(world, policy=Policy.REPORT)

    assert [line.reason for line in lines if isinstance(line, Trouble)] == ["NodeKeptByPolicy"]
    (change,) = [line for line in lines if isinstance(line, Planned)]
    assert change.details == (
        'status.conditions[CloudProviderInstanceGone]: none → "True" (NodeKeptByPolicy)',
    )
    assert change.waits_for.startswith("a second check")


async def test_what_is_told_on_the_node_is_no_change_any_more() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose("n1")

    lines = await plan(world, after=60, policy=Policy.REPORT)

    assert [type(line) for line in lines] == [Trouble]


async def test_a_node_without_an_answer_is_a_trouble() -> None:
    world = World()
    await world.add(*TEN)
    await world.lose("n1")
    world.cloud.whole = Unavailable("the cloud is on holiday")

    (line,) = await plan(world)

    assert isinstance(line, Trouble)
    assert line.reason == "InstanceStateUnknown"
    assert "on holiday" in line.message


async def test_a_stopped_machine_is_a_taint_and_a_ready_node_loses_it() -> None:
    world = World()
    await world.add(*TEN)
    shutdown = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}
    await world.register("back", provider_id="fake://back", taints=[shutdown])

    async with world.running(LifecycleSettings(period=10000)) as controller:
        world.wire.before = lambda r: asyncio.sleep(1e6) if r.method == "PATCH" else None
        await asyncio.sleep(1)
        await world.ready("back", "True")
        await world.stop("n1")
        await asyncio.sleep(1)
        lines = await controller.preview(EVERYTHING)

    shown = {
        line.about.name: [part for part in line.details if "shutdown" in part]
        for line in lines
        if isinstance(line, Planned)
    }
    assert shown.keys() == {"back", "n1"}
    assert shown["back"] == ["spec.taints: without node.cloudprovider.kubernetes.io/shutdown"]
    assert shown["n1"] == ["spec.taints: with node.cloudprovider.kubernetes.io/shutdown:NoSchedule"]


async def test_a_stopped_machine_is_taken_out_of_service_after_a_second_look() -> None:
    world = World()
    await world.add(*TEN)
    await world.stop("n1")

    lines = await plan(world, takes_out_of_service=True)

    assert [(line.details, line.waits_for) for line in lines if isinstance(line, Planned)] == [
        (("spec.taints: with node.cloudprovider.kubernetes.io/shutdown:NoSchedule",), ""),
        (
            (
                "spec.taints: with node.kubernetes.io/out-of-service:NoExecute",
                'metadata.annotations[pileus.dev/out-of-service]: "true"',
            ),
            "a second check with the same result, at least 30 s after the first",
        ),
    ]


async def test_foreign_nodes_are_in_no_plan() -> None:
    world = World()
    await world.register("other", provider_id="metal://7")

    assert await plan(world) == []
    assert world.cloud.calls == []
