"""A controller is added by one line; `app` names no controller outside of the registry."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pileus.app import registry
from pileus.app.leader import Leases, lead
from pileus.app.migration import ControllerLeader, Lock, Migration
from pileus.app.plan import Planner, started_context
from pileus.app.validate import problems
from pileus.cloud.interface import Cloud
from pileus.kube.model.core_v1 import NODES
from pileus.objects.preview import EVERYTHING
from pileus.server.health import Health, Kind
from tests.unit.app.heartbeat.descriptor import DESCRIPTOR, HEARTBEAT
from tests.unit.app.stage import Kube, configured, manager_context, new_node

CONTROLLERS = registry.CONTROLLERS.with_also(DESCRIPTOR)
BARE = Cloud(name="fake")
APP = Path(registry.__file__).parent
AS_UPSTREAM = {"migration.py"}
"""The names in the leader migration file of kube-controller-manager."""
LEFT_TO_EXPLAIN = {"orphans.py", "explain"}
"""Until explanations and the search for orphans are part of the controllers."""


def test_controllers_and_help_know_it():
    names = [each.canonical for each in CONTROLLERS.names]

    assert [each.names for each in CONTROLLERS.enabled(["heartbeat"])] == [HEARTBEAT]
    assert HEARTBEAT in [each.names for each in CONTROLLERS.enabled(["*"])]
    assert CONTROLLERS.unknown(["-heartbeat", "heartbeet"], names) == ("heartbeet",)
    assert "heartbeat-controller" in CONTROLLERS.described()
    (wrong,) = problems(configured("--controllers=heartbeat-controler"), controllers=names)
    assert 'did you mean "heartbeat-controller"' in wrong


async def test_health_and_metrics_know_it():
    health = Health()
    async with manager_context(BARE, "--controllers=heartbeat") as context:
        having = replace(context, controllers=CONTROLLERS)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(lead(having, Leases(), health))
            await asyncio.sleep(1)
            labels = {"name": "heartbeat", "manager": "cloud-controller-manager"}
            read = context.metrics.registry.value
            running = read("running_managed_controllers", labels)
            living = [check.name for check in health.checkups(Kind.LIVEZ)]
            ready = {check.name: check._ask() for check in health.checkups(Kind.READYZ)}
            task.cancel()

    assert running == 1
    assert "heartbeat-controller" in living
    assert ready["heartbeat-controller-rounds"] == "the heart does not beat"


async def test_every_informer_that_it_asks_for_is_in_the_health_checks():
    kube = Kube(refuses={"/api/v1/configmaps"})
    health = Health()
    async with manager_context(BARE, "--controllers=heartbeat", kube=kube) as context:
        having = replace(context, controllers=CONTROLLERS)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(lead(having, Leases(), health))
            await asyncio.sleep(10)
            ready = {check.name: check._ask() for check in health.checkups(Kind.READYZ)}
            task.cancel()

    assert "configmaps are not listed yet" in (ready["informers-synced"] or "")


async def test_plans_know_it():
    kube = Kube()
    async with manager_context(BARE, "--controllers=heartbeat", kube=kube) as context:
        await context.clients.main("user").create(NODES, new_node("n1"))
        async with started_context(replace(context, controllers=CONTROLLERS)) as ready:
            made = await Planner(ready).plan(EVERYTHING)

    assert [(name, line.summary) for name, line in made.changes] == [
        ("heartbeat-controller", "label example.com/seen")
    ]


async def test_leader_migration_knows_it():
    plan = Migration("moving", (ControllerLeader("heartbeat-controller", "*"),))

    assert Leases(plan=plan).lock_of(HEARTBEAT) is Lock.MIGRATION
    assert Leases().lock_of(HEARTBEAT) is Lock.MAIN


@pytest.mark.parametrize("descriptor", tuple(registry.CONTROLLERS), ids=lambda one: one.names.alias)
def test_app_names_no_controller_but_in_the_registry(descriptor: registry.AnyDescriptor):
    package = descriptor.build.__module__.rpartition(".")[0]
    # `pileus.admission` is a server first, which `app` starts, and has a controller.
    names = (descriptor.names.canonical, *({package} - {"pileus.admission"}))
    spared = {"registry.py", *AS_UPSTREAM, *LEFT_TO_EXPLAIN}

    found = [
        path.relative_to(APP)
        for path in APP.rglob("*.py")
        if path.relative_to(APP).parts[0] not in spared
        and any(re.search(rf"{re.escape(name)}\b", path.read_text()) for name in names)
    ]

    assert found == []
