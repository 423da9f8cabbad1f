"""Law: no controller writes to, looks up, routes to or uses a node of another cloud."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pileus.app.manager import Manager
from pileus.app.startup import World
from pileus.cloud.balancer import Wish
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import NodeRef, Route
from pileus.cloud.registry import Registry
from pileus.kube.model.core_v1 import CONFIG_MAPS, NODES
from pileus.kube.patch import StrategicPatch
from pileus.objects.nodes import UNINITIALIZED
from pileus.telemetry.metrics import new_metrics
from pileus_lab.local.connect import cloud_of
from tests.unit.app.scene import Scene, scene
from tests.unit.app.stage import configured

EVERYTHING = (
    "--controllers=*",
    "--cluster-cidr=10.244.0.0/16",
    "--route-reconciliation-period=10s",
    "--ssh-keys-from=configmap:default/keys",
    "--node-label-sync",
    "--node-deletion-policy=immediate",
)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
TAINT = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
OTHER_SCHEME = "elsewhere://{}"
STATES: Mapping[str, Mapping[str, Any]] = {
    "foreign-new": {"taints": [TAINT]},
    "foreign-ready": {"podCIDR": "10.244.100.0/24", "podCIDRs": ["10.244.100.0/24"]},
    "foreign-silent": {"podCIDR": "10.244.101.0/24", "podCIDRs": ["10.244.101.0/24"]},
}
"""Nodes that would be initialized, refreshed, routed to, members or deleted if they were ours."""


@dataclass
class Spy:
    """Stands between the manager and every capability of the cloud, and notes whom it is asked."""

    inner: Any
    named: list[str]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return self._spied(found) if callable(found) else found

    def _spied(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def spied(*given: Any, **more: Any) -> Any:
            self.named += _names((given, more))
            return call(*given, **more)

        return spied


def _names(value: object) -> Iterator[str]:
    """Every node that is named anywhere in a call."""
    match value:
        case NodeRef():
            yield value.name
        case Route():
            yield value.target or ""
        case dict():
            yield from _names(list(value.values()))
        case list() | tuple() | set() | frozenset():
            for each in value:
                yield from _names(each)
        case Wish():
            yield from _names(value.spec.members if value.spec else ())
        case _:
            pass


@dataclass
class Watched:
    """A scene whose cloud is spied on; `disowned` nodes are another cloud's by its own word."""

    made: Scene
    disowned: frozenset[str] = frozenset()
    named: list[str] = field(default_factory=list[str])

    def world(self) -> World:
        @asynccontextmanager
        async def connect(config: ProviderConfig):
            cloud = await cloud_of(self.made.cloud)
            spied = {
                name: Spy(found, self.named)
                for name in ("instances", "balancers", "routes", "ssh_keys")
                if (found := getattr(cloud, name)) is not None
            }
            assert len(spied) == 4
            yield replace(cloud, owns=self._owns(cloud), **spied)

        providers = Registry(discover=tuple)
        providers.register("fake", connect)
        return replace(self.made.world(), providers=providers)

    def _owns(self, cloud: Cloud) -> Callable[[NodeRef], bool | None]:
        def owns(node: NodeRef) -> bool | None:
            return False if node.name in self.disowned else cloud.owns and cloud.owns(node)

        return owns


async def add_foreign(made: Scene, provider_id: str) -> None:
    for name, spec in STATES.items():
        given = {"providerID": provider_id.format(name)} if provider_id else {}
        await made.client.create(NODES, {"metadata": {"name": name}, "spec": {**spec, **given}})
    for name, status in (("foreign-ready", "True"), ("foreign-silent", "Unknown")):
        ready = {"type": "Ready", "status": status}
        patch = StrategicPatch({"status": {"conditions": [ready]}})
        await made.client.patch(NODES, name, patch, subresource="status")


def writes_about(made: Scene, since: int) -> Sequence[str]:
    """Requests that change one of the foreign nodes, or tell of it."""
    changes = [request for _, request in made.kube.requests[since:] if request.method != "GET"]
    return [
        f"{request.method} {request.path}"
        for request in changes
        if "foreign-" in request.path or b"foreign-" in (request.body or b"")
    ]


@pytest.mark.parametrize(
    ("provider_id", "disowned"),
    [
        pytest.param(OTHER_SCHEME, frozenset[str](), id="another scheme"),
        pytest.param("local://{}", frozenset(STATES), id="our scheme, disowned by the provider"),
        pytest.param("", frozenset(STATES), id="no provider ID, disowned by the provider"),
    ],
)
async def test_no_controller_touches_a_node_of_another_cloud(caplog, provider_id, disowned):
    caplog.set_level("INFO")
    metrics = new_metrics()
    async with scene("web-1", "web-2") as made, asyncio.TaskGroup() as group:
        keys = {"metadata": {"name": "keys"}, "data": {"admin": KEY}}
        await made.client.create(CONFIG_MAPS, keys, namespace="default")
        await made.add_service("shop", 80)
        await add_foreign(made, provider_id)
        at = Watched(made, disowned)
        before = {name: await made.client.get(NODES, name) for name in STATES}
        since = len(made.kube.requests)

        world = replace(at.world(), metrics=lambda: metrics)
        running = group.create_task(Manager(configured(*made.flags, *EVERYTHING), world).run())
        await asyncio.sleep(3600)

        assert not running.done()
        assert {"web-1", "web-2"} <= set(at.named)
        assert set(at.named) & STATES.keys() == set()
        assert writes_about(made, since) == []
        assert {name: await made.client.get(NODES, name) for name in STATES} == before
        (balancer,) = made.cloud.state.balancers.values()
        assert {each.name for each in balancer.members} == {"web-1", "web-2"}
        assert metrics.registry.value("pileus_nodes_ignored") == len(STATES)
        ignored = [each for each in caplog.messages if "Ignoring node" in each]
        assert len(ignored) == len(STATES)
        running.cancel()


async def test_a_provider_without_instances_ignores_no_node_for_its_scheme():
    async with scene() as made, asyncio.TaskGroup() as group:
        await add_foreign(made, OTHER_SCHEME)
        await made.add_service("shop", 80)
        named: list[str] = []

        @asynccontextmanager
        async def connect(config: ProviderConfig):
            cloud = await cloud_of(made.cloud)
            balancers: Any = Spy(cloud.balancers, named)
            yield Cloud(name=cloud.name, balancers=balancers)

        providers = Registry(discover=tuple)
        providers.register("fake", connect)
        world = replace(made.world(), providers=providers)
        running = group.create_task(Manager(configured(*made.flags), world).run())
        await asyncio.sleep(60)

        assert set(STATES) <= set(named)  # the provider decides whether it can use them
        running.cancel()
