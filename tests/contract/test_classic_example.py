"""Load balancers and routes of the classic example, under the running controllers and the laws."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from pileus.cloud.connection import connected, read_config
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.registry import Registry
from pileus.controllers.service.controller import ServiceController
from pileus.kube.client import Client
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.conformance.harness import RoutesHarness
from pileus.testing.conformance.routes import RoutesLaws
from tests.examples import install_examples
from tests.unit.classic import fakes
from tests.unit.classic.world import Access
from tests.unit.controllers.service import world
from tests.unit.controllers.service.world import running

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300)]


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory):
    target = install_examples(tmp_path_factory.mktemp("site"))
    sys.path.insert(0, str(target))
    yield
    sys.path.remove(str(target))


class Shelf:
    """The example with a state file, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state.yaml"
        inventory = folder / "machines.json"
        inventory.write_text('{"machines": []}', encoding="utf-8")
        self.config = folder / "shelf.json"
        settings = {
            "inventory": str(inventory),
            "state": str(self.state),
            "addresses": ["192.0.2.10", "192.0.2.11"],
        }
        self.config.write_text(json.dumps(settings), encoding="utf-8")

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Cloud]:
        connect = Registry().get("shelf")
        assert connect
        async with connected("shelf", connect, read_config(str(self.config))) as cloud:
            yield cloud

    def read(self, what: str) -> dict[str, Any]:
        return yaml.safe_load(self.state.read_text(encoding="utf-8"))[what]


class ShelfRoutesHarness(Shelf, RoutesHarness):
    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Any]:
        async with super().connect() as cloud:
            assert cloud.leading
            async with cloud.leading(fakes.Access(fakes.View())):
                yield cloud.routes

    def add_foreign(self, destination: str) -> None:
        routes = {destination: {"name": "vpn", "node": "gateway"}}
        self.state.write_text(yaml.safe_dump({"routes": routes}), encoding="utf-8")

    def reject(self, destination: str) -> None:
        pytest.skip("a file refuses nothing")


class TestRoutesOfTheClassicExample(RoutesLaws):
    @pytest.fixture(autouse=True)
    def _furnish(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make(self) -> Any:
        return ShelfRoutesHarness(self.folder)


class World(world.World):
    """The service controller over the example; its methods run in threads, so time is real."""

    def __init__(self, shelf: Shelf) -> None:
        super().__init__()
        self.shelf = shelf

    @asynccontextmanager
    async def looked_at(self, **settings: Any) -> AsyncGenerator[ServiceController]:
        self.metrics = Metrics(MetricRegistry())
        settings.setdefault("classes", self.classes())
        client = Client(self.wire, user_agent="manager", metrics=self.metrics)
        self.informers = Informers(client, Random(2), 0.0)
        async with self.shelf.connect() as cloud:
            assert cloud.leading
            async with (
                stacked(
                    cloud, metrics=self.metrics, fence=self.fence, equipment=Equipment()
                ) as equipped,
                cloud.leading(Access(client, self.informers)),
            ):
                controller = self._controller(client, self.informers, equipped, settings)
                async with running(self.informers.run()):
                    yield controller

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(60):
            while not await holds():
                await asyncio.sleep(0.05)


async def test_a_service_lives_and_dies_on_the_shelf(tmp_path: Path):
    shelf = Shelf(tmp_path)
    at = World(shelf)
    await at.add_node("n1", spec={"providerID": "shelf://1"})

    async def has_members(*names: str) -> bool:
        return [each["nodes"] for each in shelf.read("balancers").values()] == [list(names)]

    async def is_released() -> bool:
        return await at.services() == {}

    async with at.managed():
        await at.add(loadBalancerSourceRanges=["10.0.0.0/8"], externalTrafficPolicy="Local")
        await at.until(at.ingress)
        uid = (await at.service())["metadata"]["uid"]
        ((name, built),) = shelf.read("balancers").items()
        assert name == f"kubernetes-a{uid.replace('-', '')}"[: len("kubernetes-") + 32]
        assert await at.ingress() == [{"ip": "192.0.2.10", "ipMode": "VIP"}]
        assert built["sources"] == ["10.0.0.0/8"]
        assert built["check"]["path"] == "/healthz"
        assert built["nodes"] == ["n1"]

        await at.add_node("n2", spec={"providerID": "shelf://2"})
        await at.until(lambda: has_members("n1", "n2"))
        await at.delete()
        await at.until(is_released)

    assert shelf.read("balancers") == {}
