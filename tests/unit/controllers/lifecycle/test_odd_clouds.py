"""Clouds that fail, lie or dawdle: nothing is concluded, it is told once, and others are served."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from pileus.cloud.errors import (
    CloudError,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.model import Absent, Failure, NodeName
from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy
from pileus.kube.transport import Request
from pileus.objects.preview import EVERYTHING
from tests.unit.controllers.lifecycle.world import SHUTDOWN, World, gone, instance

FEW = ("n1", "n2", "n3", "n4", "n5", "n6")
CALLS = "cloud_node_lifecycle_controller_cloud_provider_calls_total"

ODD_WHOLES = [
    pytest.param({}, id="an empty answer"),
    pytest.param([], id="a list"),
    pytest.param({NodeName("other"): Absent("no such thing")}, id="an answer for others"),
    pytest.param(Unauthorized("403"), id="403"),
    pytest.param(Throttled("429", retry_after=7), id="429"),
    pytest.param(Unavailable("503"), id="503"),
    pytest.param(NotFound("the project is gone"), id="not found"),
    pytest.param(Unsupported("no"), id="unsupported"),
    pytest.param(ValueError("a bug"), id="a bug"),
]
ODD_ANSWERS = [
    pytest.param(Failure(Unavailable("503")), id="a failure"),
    pytest.param(Failure(NotFound("404")), id="not found as a failure"),
    pytest.param(None, id="None"),
    pytest.param("absent", id="a word"),
    pytest.param(Absent, id="a type"),
    pytest.param(Absent(None), id="absent without evidence"),  # type: ignore[arg-type]
    pytest.param(Failure("why"), id="a failure that is none"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("policy", [Policy.GUARDED, Policy.IMMEDIATE])
@pytest.mark.parametrize("whole", ODD_WHOLES)
async def test_trap_1_a_cloud_without_a_good_answer_deletes_nothing(
    whole: object, policy: Policy
) -> None:
    world = World()
    await world.add(*FEW)
    await world.lose(*FEW)
    world.cloud.whole = whole

    async with world.running(LifecycleSettings(policy=policy)):
        await asyncio.sleep(120)

        assert await world.names() == set(FEW)
        assert world.wire.writes() == []
        assert world.events.told == []


@pytest.mark.parametrize("policy", [Policy.GUARDED, Policy.IMMEDIATE])
@pytest.mark.parametrize("answer", ODD_ANSWERS)
async def test_trap_1_an_odd_answer_for_one_node_harms_neither_it_nor_others(
    answer: object, policy: Policy
) -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1", "n2")
    world.cloud.machines["n2"] = answer

    async with world.running(LifecycleSettings(policy=policy)):
        await asyncio.sleep(120)

        assert await world.names() == set(FEW) - {"n1"}
        assert await world.taints("n2") == []


async def test_trap_1_a_page_that_is_missing_is_no_absence() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose(*FEW)
    for name in FEW[1:]:
        del world.cloud.machines[name]

    async with world.running(LifecycleSettings(policy=Policy.IMMEDIATE)):
        await asyncio.sleep(120)

        assert await world.names() == set(FEW[1:])


async def test_trap_1_a_cloud_that_denies_what_is_alive_is_not_believed() -> None:
    world = World()
    await world.add(*FEW)
    world.cloud.machines = {name: gone(name) for name in FEW}

    async with world.running():
        await world.lose("n1")
        await asyncio.sleep(300)
        assert await world.names() == set(FEW)

        world.cloud.machines |= {name: instance(name) for name in FEW[1:]}
        await asyncio.sleep(40)

        assert await world.names() == set(FEW[1:])


async def test_trap_1_the_grace_begins_with_a_look_that_is_believed() -> None:
    world = World()
    await world.add(*FEW)
    world.cloud.machines = {name: gone(name) for name in FEW}

    async with world.running():
        await world.lose("n1")
        await asyncio.sleep(28)
        world.cloud.machines |= {name: instance(name) for name in FEW[1:]}
        await asyncio.sleep(28)

        assert await world.names() == set(FEW)


async def test_machines_that_are_there_cost_no_witnesses() -> None:
    world = World()
    await world.add(*FEW)

    async with world.running():
        await world.stop("n1")
        await asyncio.sleep(60)

    assert set(world.cloud.calls) == {("n1",)}


async def test_one_machine_that_is_found_is_witness_enough() -> None:
    world = World()
    await world.add(*FEW)
    world.cloud.machines |= {"n1": gone("n1"), "n2": gone("n2"), "n3": Failure(Unavailable("x"))}

    async with world.running():
        await world.lose("n1")
        await asyncio.sleep(40)

        assert await world.names() == set(FEW[1:])


async def test_without_witnesses_the_two_looks_have_to_do() -> None:
    world = World()
    await world.add("n1")

    async with world.running():
        await world.lose("n1")
        await asyncio.sleep(40)

        assert await world.names() == set()


async def test_trap_2_only_fresh_answers_are_asked_for() -> None:
    world = World()
    await world.add(*FEW)
    asked: list[bool] = []
    find = world.cloud.find

    async def spy(nodes: Sequence[object], *, fresh: bool) -> Mapping[NodeName, object]:
        asked.append(fresh)
        return await find(nodes, fresh=fresh)  # type: ignore[arg-type]

    world.cloud.find = spy  # type: ignore[method-assign,assignment]

    async with world.running() as controller:
        await world.lose("n1")
        await asyncio.sleep(60)
        await controller.preview(EVERYTHING)

    assert len(asked) >= 3
    assert all(asked)


async def test_no_answer_in_between_neither_ends_a_case_nor_confirms_it() -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1")

    async with world.running():
        await asyncio.sleep(10)
        world.cloud.whole = Unavailable("503")
        await asyncio.sleep(300)
        assert "n1" in await world.names()
        world.cloud.whole = None
        await asyncio.sleep(6)

        assert "n1" not in await world.names()


async def test_a_cloud_that_fails_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    await world.add(*FEW)
    await world.lose("n1", "n2")
    world.cloud.whole = Unauthorized("the token may not list servers")

    async with world.running():
        await asyncio.sleep(300)
        lines = [r.message for r in caplog.records if "Cannot look up nodes" in r.message]
        assert len(lines) == 1
        assert world.sample(CALLS, operation="instance_exists", result="error") > 100

        world.cloud.whole = None
        world.cloud.machines |= {name: instance(name) for name in FEW}
        await asyncio.sleep(20)
        world.cloud.whole = Unauthorized("the token may not list servers")
        await asyncio.sleep(300)

        lines = [r.message for r in caplog.records if "Cannot look up nodes" in r.message]
        assert len(lines) == 2, "it was well in between"


async def test_a_slow_call_holds_up_no_other_node() -> None:
    world = World()
    await world.add(*FEW)
    world.cloud.takes = lambda names: 50 if "n1" in names else 0.01

    async with world.running():
        await world.lose("n1")
        await asyncio.sleep(2)
        await world.lose("n2")
        await asyncio.sleep(2)
        await world.stop("n3")
        await asyncio.sleep(2)
        assert await world.taints("n3") == [SHUTDOWN]
        await asyncio.sleep(33)

        assert await world.names() == set(FEW) - {"n2"}


async def test_a_slow_write_holds_up_no_other_node() -> None:
    world = World()
    await world.add(*FEW)

    async def dawdle(path: str) -> None:
        if path.endswith("/n1"):
            await asyncio.sleep(50)

    world.wire.before = lambda r: dawdle(r.path) if r.method in {"DELETE", "PATCH"} else None

    async with world.running():
        await world.stop("n1", "n2")
        await asyncio.sleep(2)
        world.cloud.machines["n2"] = gone("n2")
        await asyncio.sleep(40)

        assert await world.names() == set(FEW) - {"n2"}


async def test_a_call_that_never_ends_makes_the_process_ill() -> None:
    world = World()
    await world.add("n1", ready=False)
    world.cloud.takes = lambda _: 1e6

    async with world.running() as controller:
        await asyncio.sleep(50)

        with ThreadPoolExecutor(1) as probes:  # health checks run in threads
            assert probes.submit(controller.stuck, 600).result() is None
            told = probes.submit(controller.stuck, 40).result()
        assert told == "work on node n1 has been running for 50 s"


STOPPED_UNKNOWN = CloudError("which state?")
STOPPED_UNKNOWN.asked = (("instance_exists", "success"), ("instance_shutdown", "error"))


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (instance("n1"), {"instance_exists": "success", "instance_shutdown": "success"}),
        (gone("n1"), {"instance_exists": "instance_not_found"}),
        (Failure(Unsupported("no")), {"instance_exists": "not_implemented"}),
        (Failure(CloudError("odd")), {"instance_exists": "error"}),
        (Failure(NotFound("404")), {"instance_exists": "instance_not_found"}),
        (Failure(STOPPED_UNKNOWN), dict(STOPPED_UNKNOWN.asked)),
        (
            Absent("no ID", (("instance_metadata", "instance_not_found"),)),
            {"instance_metadata": "instance_not_found"},
        ),
    ],
)
async def test_each_node_is_counted_as_the_calls_that_upstream_would_make(
    answer: object, counted: dict[str, str]
) -> None:
    world = World()
    await world.add("n1", ready=False)
    world.cloud.machines["n1"] = answer

    async with world.running():
        await asyncio.sleep(1)

    for operation in ("instance_exists", "instance_shutdown", "instance_metadata"):
        for result in ("success", "error", "instance_not_found", "not_implemented", "canceled"):
            found = world.sample(CALLS, operation=operation, result=result)
            assert found == (counted.get(operation) == result), (operation, result)


async def test_rounds_are_measured_and_cancelled_questions_are_counted() -> None:
    world = World()
    await world.add("n1", "n2", ready=False)
    world.cloud.takes = lambda _: 30

    async with world.running():
        await asyncio.sleep(40)

    duration = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds"
    assert world.sample(f"{duration}_sum") >= 30
    assert world.sample(CALLS, operation="instance_exists", result="canceled") == 2


async def test_an_unexpected_error_about_one_node_harms_no_other_and_is_retried() -> None:
    world = World()
    await world.add(*FEW)
    failing = True

    def fail(request: Request) -> None:
        if failing and request.path.endswith("/nodes/n1") and request.method == "GET":
            raise KeyError("a bug")

    world.wire.before = fail
    async with world.running() as controller:
        await asyncio.sleep(1)
        await world.lose("n1")
        await asyncio.sleep(60)
        await world.stop("n2")
        await asyncio.sleep(10)

        assert await world.taints("n2") == [SHUTDOWN]
        assert "n1" in await world.names()
        assert 1 <= world.sample("pileus_round_failures_total", round="node-monitor") <= 4
        assert controller.failing() is None
        failing = False
        await asyncio.sleep(300)

    assert await world.names() == set(FEW) - {"n1"}
