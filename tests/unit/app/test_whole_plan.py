"""Plans of the whole: what they say of a life of nodes and Services, and that nothing changes."""

from collections.abc import Iterable

from pileus.app.plan import Plan
from pileus.controllers.service.orphans import GRACE
from pileus.kube.model.core_v1 import EVENTS, NODES, SERVICES
from pileus.kube.patch import MergePatch
from pileus.objects.preview import EVERYTHING, Scope
from pileus_lab.local.model.machines import DeleteMachine
from pileus_lab.local.model.state import A, Operation
from tests.unit.app.scene import Scene, scene

WEB = Scope("Service", "default", "web")


def shown(plan: Plan) -> list[str]:
    return [f"{change.effect} {change.place} {change.summary}" for _, change in plan.changes]


def about(plan: Plan) -> Iterable[str]:
    return {change.about.name for _, change in plan.changes}


ALL = (
    "--cluster-cidr=10.244.0.0/16",
    "--allocate-node-cidrs",
    "--controllers=node-ipam-controller",
)
"""Flags with which every controller runs."""


async def planned(stage: Scene, scope: Scope = EVERYTHING) -> Plan:
    """A plan, made while holding it to change nothing."""
    stage.kube.requests.clear()
    before = stage.cloud.state

    made = await stage.plan(scope)

    assert stage.writes() == []
    assert stage.cloud.state is before
    return made


async def test_a_new_cluster_is_planned_whole_then_nothing_is_left_to_plan() -> None:
    async with scene("web-1", "web-2") as stage:
        await stage.add_service("web", 80)

        first = await planned(stage)
        await stage.managed(60)
        after = await planned(stage)

    assert about(first) == {"web-1", "web-2", "web"}
    assert "+ cloud balancer default-web on 80/TCP with members web-1, web-2" in shown(first)
    assert (shown(after), after.is_whole) == ([], True)


async def test_a_changed_port_is_planned_and_a_scope_shows_it_alone() -> None:
    async with scene("web-1") as stage:
        await stage.add_service("web", 80)
        await stage.managed(60)
        change = MergePatch({"spec": {"ports": [{"port": 8080, "nodePort": 30080}]}})
        await stage.client.patch(SERVICES, "web", change, namespace="default")
        await stage.add_nodes("web-2")

        alone = await planned(stage, WEB)

    assert about(alone) == {"web"}
    assert "- cloud listener 80/TCP" in shown(alone)
    assert "+ cloud listener 8080/TCP to node port 30080" in shown(alone)


async def test_a_service_to_be_deleted_is_planned_with_what_waits() -> None:
    async with scene("web-1") as stage:
        await stage.add_service("web", 80)
        await stage.managed(60)
        await stage.client.delete(SERVICES, "web", namespace="default")

        made = await planned(stage)

    (deletion, release) = [change for _, change in made.changes]
    assert (deletion.effect, deletion.waits_for) == ("-", "")
    assert "finalizer" in release.summary
    assert release.waits_for


async def test_a_lost_node_is_planned_to_go_after_the_guards_second_look() -> None:
    async with scene("web-1", "web-2") as stage:
        await stage.managed(60)
        await stage.cloud.call(DeleteMachine(machine="web-2"))
        silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        await stage.client.patch(
            NODES,
            "web-2",
            MergePatch({"status": {"conditions": [silent]}}),
            subresource="status",
        )

        made = await planned(stage)

    (change,) = [change for _, change in made.changes]
    assert (change.about.name, change.effect, change.place) == ("web-2", "-", "cluster")
    assert change.waits_for
    assert made.is_whole, list(made.troubles)


async def test_with_every_controller_what_is_planned_is_done_and_then_nothing_is_planned() -> None:
    async with scene("web-1", "web-2") as stage:
        stage.flags = (*stage.flags, *ALL)
        await stage.add_service("web", 80)

        first = await planned(stage)
        await stage.managed(120)
        after = await planned(stage)

    assert {controller for controller, _ in first.changes} >= {
        "cloud-node-controller",
        "node-ipam-controller",
        "service-lb-controller",
    }
    assert len(stage.cloud.state.routes) == 2
    assert (shown(after), after.is_whole) == ([], True), list(after.troubles)


DELETES = "--service-orphans=delete"


async def orphaned(stage: Scene) -> str:
    """Leaves the balancer of a deleted Service behind; returns that Service's UID."""
    uid = await stage.add_service("web", 80)
    await stage.managed(60)
    free = MergePatch({"metadata": {"finalizers": None}})
    await stage.client.patch(SERVICES, "web", free, namespace="default")
    await stage.client.delete(SERVICES, "web", namespace="default")
    return uid


async def test_what_the_orphan_sweeper_would_delete_is_in_the_plan() -> None:
    async with scene("web-1") as stage:
        uid = await orphaned(stage)
        only_reported = await planned(stage)
        stage.flags = (*stage.flags, DELETES)

        made = await planned(stage)
        await stage.managed(GRACE - 1)
        before = len(stage.cloud.state.balancers)
        await stage.managed(2 * GRACE)
        after = await planned(stage)

    assert shown(only_reported) == []
    (change,) = [change for _, change in made.changes]
    assert (change.about.uid, change.effect, change.place) == (uid, "-", "cloud")
    assert change.summary.startswith("balancer default-web")
    assert change.waits_for == "a second check, at least 60 s after the first"
    assert (before, len(stage.cloud.state.balancers)) == (1, 0)
    assert shown(after) == []


async def test_a_dry_run_reports_what_the_orphan_sweeper_would_delete() -> None:
    async with scene("web-1") as stage:
        await orphaned(stage)

        await stage.managed(60, "--dry-run", DELETES)

        events = (await stage.client.list(EVENTS)).items
        told = [each for each in events if each.reason == "Planned"]
        assert [(each.involved_object.kind, each.involved_object.name) for each in told] == [
            ("Namespace", "kube-system")
        ]
        assert len(stage.cloud.state.balancers) == 1


async def test_an_hour_of_dry_run_with_every_controller_writes_events_alone() -> None:
    async with scene("web-1", "web-2") as stage:
        stage.flags = (*stage.flags, *ALL)
        await stage.add_service("web", 80)
        stage.kube.requests.clear()
        calls = Counter(stage)

        await stage.managed(3600, "--dry-run")

        written = [write for write in stage.writes() if "/events" not in write]
        assert written == []
        assert stage.cloud.state is calls.before
        assert len(stage.writes()) <= 2 * 3, "each of three objects, at the start and after an hour"
        assert calls.count <= 14 * 8, "about one plan in five minutes, of a few calls each"


class Counter:
    """Counts the calls to a scene's cloud, and has its state before them."""

    def __init__(self, stage: Scene) -> None:
        self.before, self.count, call = stage.cloud.state, 0, stage.cloud.call

        async def counted(operation: Operation[A]) -> A:
            self.count += 1
            return await call(operation)

        stage.cloud.call = counted
