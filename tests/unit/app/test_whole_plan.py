"""Plans of the whole: what they say of a life of nodes and Services, and that nothing changes."""

from collections.abc import Iterable

from pileus.app.planning import Plan
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.kube.patch import MergePatch
from pileus.objects.planned import EVERYTHING, Scope
from pileus.providers.local.model.machines import DeleteMachine
from tests.unit.app.scene import Scene, scene

WEB = Scope("Service", "default", "web")


def shown(plan: Plan) -> list[str]:
    return [f"{change.effect} {change.place} {change.summary}" for _, change in plan.changes]


def about(plan: Plan) -> Iterable[str]:
    return {change.about.name for _, change in plan.changes}


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
