"""A dry run looks on, tells what would be done once, and leaves cluster, cloud and lease alone."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from pileus.app.background import background
from pileus.app.dry_run import DryRun, PlanReporter
from pileus.app.manager import Manager
from pileus.app.plan import Plan, PlanLine, Planner
from pileus.cloud.balancer import Effect
from pileus.cloud.interface import Cloud, OwnController
from pileus.cloud.model import NodeRef
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import EVENTS, NODES, Event, ObjectReference
from pileus.kube.patch import MergePatch
from pileus.objects.preview import Place, Planned, Scope, Trouble
from pileus.runtime.cluster_access import KubernetesAccess
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.app.stage import Kube, configured, manager_context, new_node
from tests.unit.app.test_plan import world
from tests.unit.cloud.fakes import FakeInstances
from tests.unit.controllers.events import FakeEvents

HOUR = 3600.0
ALONE = "--controllers=cloud-node-controller"
"""So that calls to the cloud can be counted: nodes without kubelets are not ready."""
WEB = ObjectReference(kind="Service", namespace="default", name="web", uid="u1")


@dataclass
class Stage:
    kube: Kube
    client: Client
    metrics: Metrics
    instances: FakeInstances = field(default_factory=FakeInstances)

    def writes(self) -> list[tuple[str, str]]:
        """Those of the manager: the stage's own client has a connection of its own."""
        return [
            (request.method, request.path)
            for wire, request in self.kube.requests
            if request.method != "GET" and wire is not self.kube.wires[0]
        ]

    async def events(self) -> Sequence[Event]:
        return (await self.client.list(EVENTS, namespace="default")).items


@asynccontextmanager
async def staged(*names: str, **more: object) -> AsyncGenerator[Stage]:
    """A manager with `--dry-run` on a cluster with such new nodes."""
    kube = Kube()
    async with manager_context(Cloud(name="fake"), kube=kube) as context:
        stage = Stage(kube, context.clients.main("stage"), context.metrics)
        for name in names:
            await stage.client.create(NODES, new_node(name))
        cloud = Cloud(name="fake", instances=stage.instances, **more)  # type: ignore[arg-type]
        manager = Manager(configured("--dry-run", ALONE), world(cloud, kube))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(manager.run())
            yield stage
            running.cancel()


async def test_a_new_node_is_told_once_by_an_event_and_never_touched() -> None:
    async with staged("n1") as stage:
        before = await stage.client.get(NODES, "n1")
        await asyncio.sleep(HOUR - 60)

        (event,) = await stage.events()
        assert (event.type, event.reason, event.count) == ("Normal", "Planned", 1)
        assert event.involved_object.name == "n1"
        assert event.message == ("dry run: ~ provider ID, initialized (cluster)")
        assert await stage.client.get(NODES, "n1") == before
        assert [path for _, path in stage.writes()] == ["/api/v1/namespaces/default/events"]


async def test_an_hour_costs_few_calls_and_no_spin() -> None:
    async with staged("n1", "n2") as stage:
        await asyncio.sleep(HOUR)

        assert 10 <= len(stage.instances.asked) <= 14
        requests = [request for _, request in stage.kube.requests if "watch" not in request.query]
        assert len(requests) < 30


async def test_it_takes_no_lease_so_that_the_real_manager_may_have_it() -> None:
    async with staged("n1") as stage:
        await asyncio.sleep(60)

        assert not [request for _, request in stage.kube.requests if "leases" in request.path]


async def test_a_change_in_the_cluster_is_told_within_seconds() -> None:
    async with staged() as stage:
        await asyncio.sleep(60)
        assert await stage.events() == ()

        await stage.client.create(NODES, new_node("n2"))
        await asyncio.sleep(10)

        assert [event.involved_object.name for event in await stage.events()] == ["n2"]


async def test_heartbeats_make_no_new_plan() -> None:
    async with staged("n1") as stage:
        await asyncio.sleep(20)
        asked = len(stage.instances.asked)

        for second in range(20):
            beat = {
                "type": "Ready",
                "status": "True",
                "lastHeartbeatTime": f"2030-01-01T00:00:{second:02}Z",
            }
            status = MergePatch({"status": {"conditions": [beat]}})
            await stage.client.patch(NODES, "n1", status, subresource="status")
            await asyncio.sleep(10)

        assert len(stage.instances.asked) <= asked + 1, "one for the period, none for heartbeats"


async def test_constant_change_is_looked_at_in_pauses() -> None:
    async with staged("n1") as stage:
        for number in range(100):
            label = MergePatch({"metadata": {"labels": {"n": str(number)}}})
            await stage.client.patch(NODES, "n1", label)
            await asyncio.sleep(1)

        assert len(stage.instances.asked) <= 100 / 5


async def test_a_slow_cloud_is_given_rest_in_proportion() -> None:
    async with staged("n1") as stage:
        stage.instances.latency = 10
        for number in range(50):
            label = MergePatch({"metadata": {"labels": {"n": str(number)}}})
            await stage.client.patch(NODES, "n1", label)
            await asyncio.sleep(20)

        assert len(stage.instances.asked) <= 1000 / (10 + 10 * 20) + 1


async def test_a_plan_that_never_ends_makes_the_process_ill_and_says_so_in_any_thread() -> None:
    async def never(_: Scope) -> Sequence[Planned | Trouble]:
        await asyncio.get_running_loop().create_future()
        return ()

    async with manager_context(Cloud(name="fake")) as context:
        planner = Planner(context)
        planner.plan = never  # type: ignore[method-assign, assignment]
        rehearsal = DryRun(planner, PlanReporter(FakeEvents(), context.metrics), context.random)
        async with background(rehearsal.run()):
            await asyncio.sleep(599)
            assert told_from_a_thread(rehearsal) is None
            await asyncio.sleep(2)
            assert told_from_a_thread(rehearsal) == "a pass of dry-run has been running for 601 s"


def told_from_a_thread(rehearsal: DryRun) -> str | None:
    """Joined at once: virtual time does not wait for threads."""
    said: list[str | None] = []
    asking = threading.Thread(target=lambda: said.append(rehearsal.stuck()))
    asking.start()
    asking.join()
    return said[0]


async def test_controllers_of_the_provider_do_not_run_in_a_dry_run() -> None:
    ran: list[KubernetesAccess] = []

    async def own(access: KubernetesAccess) -> None:
        ran.append(access)

    async with staged("n1", controllers=(OwnController("own", own),)):
        await asyncio.sleep(60)

    assert ran == []


async def test_a_cloud_that_is_down_is_trouble_and_told_by_a_warning() -> None:
    def down(_: Sequence[NodeRef]) -> object:
        return {}

    async with staged("n1") as stage:
        stage.instances.answer = down
        await asyncio.sleep(30)

        warning = (await stage.events())[-1]
        assert (warning.type, warning.reason) == ("Warning", "PlanTrouble")
        assert warning.message.startswith("dry run: CloudUnavailable: ")


def planned(summary: str, effect: Effect = Effect.CREATE, waits_for: str = "") -> PlanLine:
    line = Planned(
        about=WEB, place=Place.CLOUD, effect=effect, summary=summary, waits_for=waits_for
    )
    return PlanLine("service-lb-controller", line)


@dataclass
class Audience:
    events: FakeEvents = field(default_factory=FakeEvents)
    metrics: Metrics = field(default_factory=lambda: Metrics(MetricRegistry()))

    def figure(self, name: str, effect: str = "create") -> float | None:
        labels = {"controller": "service-lb-controller", "place": "cloud", "effect": effect}
        return self.metrics.registry.value(name, labels)


@pytest.fixture
def told() -> Audience:
    return Audience()


async def test_what_stands_is_counted_once_and_what_went_is_no_longer_open(told: Audience) -> None:
    reporter = PlanReporter(told.events, told.metrics)

    for _ in range(3):
        reporter.report(Plan((planned("balancer"), planned("listener"))))
    reporter.report(Plan((planned("listener"),)))

    assert told.figure("pileus_planned_changes_total") == 2
    assert told.figure("pileus_planned_changes_open") == 1
    reporter.report(Plan())
    assert told.figure("pileus_planned_changes_open") is None


async def test_a_plan_that_comes_back_is_news(told: Audience) -> None:
    reporter = PlanReporter(told.events, told.metrics)

    for plan in (Plan((planned("balancer"),)), Plan(), Plan((planned("balancer"),))):
        reporter.report(plan)

    assert told.events.reasons() == ["Planned", "Planned"]
    assert told.figure("pileus_planned_changes_total") == 2


async def test_a_wait_that_gets_shorter_is_no_news_but_an_hour_is(told: Audience) -> None:
    reporter = PlanReporter(told.events, told.metrics)

    for seconds in range(30, 0, -10):
        reporter.report(Plan((planned("node", Effect.DELETE, f"{seconds} s"),)))
    assert len(told.events.told) == 1

    await asyncio.sleep(HOUR)
    reporter.report(Plan((planned("node", Effect.DELETE, "5 s"),)))

    assert len(told.events.told) == 2
    assert told.figure("pileus_planned_changes_total", "delete") == 1


async def test_changes_and_troubles_of_one_object_are_two_events(told: Audience) -> None:
    trouble = PlanLine("service-lb-controller", Trouble(WEB, "Odd", "a range does not parse"))

    PlanReporter(told.events, told.metrics).report(Plan((planned("balancer"), trouble)))

    assert [(each.kind, each.reason, each.message) for each in told.events.told] == [
        ("Normal", "Planned", "dry run: + balancer (cloud)"),
        ("Warning", "PlanTrouble", "dry run: Odd: a range does not parse"),
    ]
