"""Shared informers: one per kind, made when asked for, and what health checks say of them."""

import asyncio
from dataclasses import dataclass

import pytest

from pileus.app.provider_access import Access
from pileus.cloud.interface import Cloud
from pileus.kube.errors import KubeError, Unreachable
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.runtime.informers import DEAD, SILENT, UID_INDEX, illness, unreadiness
from tests.unit.app.stage import Kube, manager_context

AWAY = Unreachable("GET /api/v1/nodes", "api", "connection refused")


@dataclass
class Watch:
    silent: float
    failure: KubeError | None = None
    has_synced: bool = True

    def age(self) -> float:
        return self.silent

    async def run(self) -> None: ...
    async def wait_synced(self) -> None: ...


@pytest.mark.parametrize(
    ("watch", "ill", "not_ready"),
    [
        pytest.param(Watch(0), None, None, id="heard just now"),
        pytest.param(
            Watch(SILENT + 1), None, "watch of nodes: silent for 121 s: no byte", id="silent"
        ),
        pytest.param(
            Watch(DEAD + 1),
            "watch of nodes: no byte for 301 s",
            "watch of nodes: silent for 301 s: no byte",
            id="dead",
        ),
        pytest.param(
            Watch(DEAD + 1, AWAY),
            None,
            f"watch of nodes: silent for 301 s: {AWAY}",
            id="known to be away",
        ),
        pytest.param(
            Watch(0, has_synced=False), None, "nodes are not listed yet: under way", id="new"
        ),
        pytest.param(
            Watch(0, AWAY, has_synced=False),
            None,
            f"nodes are not listed yet: {AWAY}",
            id="never listed",
        ),
    ],
)
def test_a_watch_is_judged_by_its_silence_and_its_known_trouble(
    watch: Watch, ill: str | None, not_ready: str | None
):
    assert (illness("nodes", watch), unreadiness("nodes", watch)) == (ill, not_ready)


async def test_a_kind_is_followed_from_when_it_is_first_asked_for():
    kube = Kube()
    async with (
        manager_context(Cloud(name="fake"), kube=kube) as context,
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(context.informers.run())
        nodes = context.informers.of(NODES)
        await nodes.wait_synced()
        assert {request.path for _, request in kube.requests} == {"/api/v1/nodes"}

        services = context.informers.of(SERVICES, UID_INDEX)
        assert context.informers.not_ready() == "services are not listed yet: under way"
        await services.wait_synced()

        assert context.informers.not_ready() is None
        assert context.informers.ill() is None
        assert context.informers.of(NODES) is nodes
        assert context.informers.of(SERVICES, UID_INDEX) is services
        running.cancel()


async def test_an_api_server_that_is_away_makes_nobody_ill_but_not_ready():
    kube = Kube(is_down=True)
    async with (
        manager_context(Cloud(name="fake"), kube=kube) as context,
        asyncio.TaskGroup() as group,
    ):
        running = group.create_task(context.informers.run())
        context.informers.of(NODES)
        await asyncio.sleep(2 * DEAD)

        assert context.informers.ill() is None
        assert "connection refused" in (context.informers.not_ready() or "")
        running.cancel()


async def test_a_provider_finds_a_service_by_its_uid():
    async with (
        manager_context(Cloud(name="fake"), kube=Kube()) as context,
        asyncio.TaskGroup() as group,
    ):
        body = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
        made = await context.clients.main("test").create(SERVICES, body, namespace="default")
        running = group.create_task(context.informers.run())
        await context.informers.of(SERVICES, UID_INDEX).wait_synced()

        view = Access(context).view()

        assert view.service(made.metadata.uid) == made
        assert view.service("another") is None
        running.cancel()
