"""No unexpected exception of a periodic task ends the manager, whichever task it is."""

import ast
import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pileus import app
from pileus.app.leader import Leases, lead
from pileus.app.manager import Manager
from pileus.kube.model.core_v1 import CONFIG_MAPS, NODES
from pileus.objects.nodes import is_uninitialized
from pileus.runtime.periodic import Periodic
from pileus.runtime.supervision import Supervised
from pileus.server.health import Health, Kind
from pileus.telemetry.metrics import Metrics, new_metrics
from pileus_lab.local.connect import cloud_of
from tests.unit.app.scene import Scene, scene
from tests.unit.app.stage import configured, manager_context

EVERYTHING = (
    "--controllers=*,node-ipam-controller",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/16",
    "--route-reconciliation-period=10s",
    "--ssh-keys-from=configmap:default/keys",
)
TASKS = {
    "informer-configmaps",
    "informer-nodes",
    "informer-services",
    "node-monitor",
    "node-refresh",
    "orphan-sweep",
    "pod-range-inventory",
    "route-check",
    "ssh-key-source",
}
"""Every periodic or background task of a leader."""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"


class Bug(Exception):
    """Nothing that any task expects."""


class Saboteur:
    """Makes the first calls of every periodic task raise, and counts the calls."""

    def __init__(
        self, patch: pytest.MonkeyPatch, failures: int = 1, spared: frozenset[str] = frozenset()
    ) -> None:
        self.calls = Counter[str]()
        self._spared = spared
        self._failures = failures
        patch.setattr(Periodic, "__init__", self._with_sabotaged_work(Periodic.__init__))
        patch.setattr(Supervised, "__init__", self._with_sabotaged_work(Supervised.__init__))

    def _with_sabotaged_work(self, begin: Callable[..., None]) -> Callable[..., None]:
        def sabotaged(one: object, name: str, work: Any, *rest: Any, **more: Any) -> None:
            begin(one, name, self._sabotaged(name, work), *rest, **more)

        return sabotaged

    def _sabotaged(self, name: str, work: Any) -> Callable[[], Awaitable[Any]]:
        async def call() -> Any:
            self.calls[name] += 1
            if self.calls[name] <= self._failures and name not in self._spared:
                raise Bug(name)
            return await work()

        return call


async def in_a_cluster(made: Scene) -> None:
    keys = {"metadata": {"name": "keys"}, "data": {"admin": KEY}}
    await made.client.create(CONFIG_MAPS, keys, namespace="default")
    await made.add_service("shop", 80)


def failures(metrics: Metrics) -> dict[str, float]:
    samples = (
        sample
        for reading in metrics.registry.read()
        for sample in reading.samples
        if sample.name == "pileus_round_failures_total"
    )
    return {sample.labels["round"]: sample.value for sample in samples}


async def test_every_periodic_task_that_raises_is_made_again_and_the_manager_lives(monkeypatch):
    saboteur, metrics = Saboteur(monkeypatch), new_metrics()
    async with scene("web-1") as made, asyncio.TaskGroup() as group:
        await in_a_cluster(made)
        world = replace(made.world(), metrics=lambda: metrics)
        running = group.create_task(Manager(configured(*made.flags, *EVERYTHING), world).run())
        await asyncio.sleep(60)

        assert not running.done()
        assert set(saboteur.calls) == TASKS
        assert failures(metrics) == dict.fromkeys(TASKS, 1)
        assert {name for name, calls in saboteur.calls.items() if calls < 2} == set()
        node = await made.client.get(NODES, "web-1")
        assert not is_uninitialized(node)
        assert node.spec is not None
        assert node.spec.pod_cidr
        running.cancel()


async def test_tasks_that_keep_failing_are_named_by_readyz_and_not_by_livez(monkeypatch):
    informers = frozenset({"informer-nodes", "informer-services", "pod-range-inventory"})
    Saboteur(monkeypatch, failures=99, spared=informers)
    health = Health()
    async with scene("web-1") as made, asyncio.TaskGroup() as group:
        await in_a_cluster(made)
        cloud = await cloud_of(made.cloud)
        flags = (*made.flags, *EVERYTHING)
        async with manager_context(cloud, *flags, kube=made.kube) as context:
            running = group.create_task(lead(context, Leases(), health))
            await asyncio.sleep(20)

            ready = await health.examine(Kind.READYZ)
            assert {each.name: each.failure for each in ready.failures}.keys() == {
                "cloud-node-controller-rounds",
                "cloud-node-lifecycle-controller-rounds",
                "node-route-controller-rounds",
                "service-lb-controller-rounds",
                "ssh-key-controller-rounds",
            }
            assert (await health.examine(Kind.LIVEZ)).failures == ()
            assert (await health.examine(Kind.HEALTHZ)).failures == ()
            assert not running.done()
            running.cancel()


LOOPS = {
    "app/cluster_id.py:_read": "catches what it expects; part of the controller that waits for it",
    "runtime/informers.py:run": "starts informers as they are asked for; each is supervised",
    "app/orphans.py:delete": "a command that ends",
    "app/plan.py:_watch": "reports why a plan cannot be made yet",
    "runtime/controller.py:_hand_out": "hands out passes, which are isolated one by one",
    "runtime/events.py:_work": "every event is isolated",
    "runtime/leadership.py:_renew_until_lost": "its end is the end of leadership, on purpose",
    "runtime/leadership.py:_watch": "an exception is logged, and the lease is polled",
    "runtime/supervision.py:run": "the mechanism itself",
    "server/serving_certificates.py:follow": "supervised by server/port.py",
    "server/reviews.py:follow": "supervised by server/port.py",
    "server/client_certificates.py:_refresh_often": "supervised by server/port.py",
    "controllers/ssh_keys/source.py:follow": "supervised by its controller",
}
"""Every endless loop of the manager, and why an exception in it does not end the process."""


def is_endless(function: ast.AST) -> bool:
    loops = (each for each in ast.walk(function) if isinstance(each, ast.While))
    return any(isinstance(each.test, ast.Constant) and each.test.value is True for each in loops)


def endless_loops(package: Path) -> Iterator[str]:
    layers = ("app", "controllers", "objects", "runtime", "server")
    for path in sorted(path for layer in layers for path in (package / layer).rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.AsyncFunctionDef) and is_endless(function):
                yield f"{path.relative_to(package)}:{function.name}"


def test_every_endless_loop_of_the_manager_is_isolated():
    assert app.__file__ is not None
    assert set(endless_loops(Path(app.__file__).parent.parent)) == set(LOOPS)
