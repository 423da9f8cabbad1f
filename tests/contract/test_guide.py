"""What the guide for providers shows does work."""

from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pileus.cloud.abilities import Abilities, Requests
from pileus.cloud.balancer import BalancerSpec, Owner, Wish
from pileus.cloud.connection import connected
from pileus.cloud.http import HttpSettings
from pileus.cloud.interface import ProviderConfig
from pileus.cloud.model import Absent, NodeName, NodeRef, Route
from pileus.cloud.recording import Exchange, Recording, replayed
from pileus.testing.conformance import abilities
from pileus.testing.conformance.balancers import BalancersLaws
from pileus.testing.conformance.harness import CRASH, BalancersHarness, Built, run
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.guides import module

GUIDE = "write-a-provider.md"
CLOUD, BALANCERS = module(GUIDE, "acme_cloud"), module(GUIDE, "acme_balancers")


async def test_the_smallest_provider_of_the_guide_works():
    nodes = [NodeRef(name=NodeName("node-1")), NodeRef(name=NodeName("node-2"))]

    async with connected("acme", CLOUD.connect, ProviderConfig()) as cloud:
        assert cloud.instances
        found = await cloud.instances.find(nodes, fresh=True)

    assert found[nodes[0].name].provider_id == "acme://i-17"  # type: ignore[union-attr]
    assert isinstance(found[nodes[1].name], Absent)


ANSWER = Exchange(
    "GET",
    "/v1/machines?limit=1000",
    "",
    200,
    {},
    '{"machines": [{"name": "node-1", "id": "i-17"}]}',
)


async def test_the_http_provider_of_the_guide_works():
    nodes = [NodeRef(name=NodeName("node-1")), NodeRef(name=NodeName("node-2"))]
    guide = module(GUIDE, "acme_http")
    http = replayed(HttpSettings(base_url="https://api.acme.example/v1"), Recording(ANSWER))

    found = await guide.AcmeMachines(http).find(nodes, fresh=True)

    assert found[nodes[0].name].provider_id == "acme://i-17"
    assert isinstance(found[nodes[1].name], Absent)
    async with connected("acme", guide.connect, ProviderConfig()) as cloud:
        assert cloud.instances


class Sdk:
    """Acme's blocking SDK."""

    def __init__(self) -> None:
        self.routes: list[Route] = []

    def list_routes(self, cluster: str) -> list[Route]:
        return list(self.routes)

    def create_route(self, cluster: str, route: Route) -> None:
        self.routes.append(route)

    def delete_route(self, cluster: str, route: Route) -> None:
        self.routes.remove(route)


async def test_the_blocking_provider_of_the_guide_works():
    connect = module(GUIDE, "acme_blocking").connect_to(Sdk())
    route = Route(destination="10.0.0.0/24", target=NodeName("node-1"))

    async with connected("acme", connect, ProviderConfig()) as cloud:
        assert cloud.routes
        assert cloud.health
        assert await cloud.routes.create("blue", [route]) == {}
        assert await cloud.routes.list_routes("blue") == [route]
        assert await cloud.routes.delete("blue", [route]) == {}
        assert await cloud.routes.list_routes("blue") == []
        assert cloud.health() is None


@dataclass
class Api:
    """Acme's cloud."""

    records: dict[str, Any] = field(default_factory=dict)
    made: int = 0
    chance: Callable[[], bool] = lambda: False
    error: BaseException = CRASH

    async def list(self) -> list[Any]:
        self.step()
        return list(self.records.values())

    async def put(self, record: Any) -> Any:
        self.step()
        twin = next((r for r in self.records.values() if r.owner == record.owner), None)
        record = replace(record, id=record.id or (twin.id if twin else self.new()))
        self.records[record.id] = record
        self.step()
        return record

    async def delete(self, record: str) -> None:
        self.step()
        self.records.pop(record, None)
        self.step()

    def new(self) -> str:
        self.made += 1
        return f"lb-{self.made}"

    def step(self) -> None:
        if self.chance():
            raise self.error


@dataclass
class AcmeHarness(BalancersHarness):
    api: Api = field(default_factory=Api)
    abilities: Abilities = field(default_factory=Abilities)
    finds_leftovers: bool = True
    keeps_fingerprints: bool = True

    @asynccontextmanager
    async def connect(self):
        yield BALANCERS.AcmeBalancers(self.api)

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        return Wish(owner=owner, spec=spec)

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        self.api.chance, self.api.error = chance, error

    def vandalise(self, owner: Owner) -> None:
        self.api.records = {i: r for i, r in self.api.records.items() if r.owner != owner}

    def tamper(self, owner: Owner) -> bool:
        records = self.api.records.items()
        self.api.records = {i: replace(r, members=frozenset("z")) for i, r in records}
        return True

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        id_ = self.api.new()
        self.api.records[id_] = BALANCERS.Record(id_, mark, frozenset(), frozenset())
        return id_

    def built(self) -> Mapping[Owner, Built]:
        return {
            r.owner or Owner("", r.id): Built(
                frozenset(port for port, _ in r.ports),
                r.members,
                r.sticky_seconds,
                r.source_ranges,
                r.families,
            )
            for r in self.api.records.values()
        }

    def strays(self) -> int:
        return len(self.api.records) - len({r.owner for r in self.api.records.values() if r.owner})


class WritesEachNewMember(Api):
    """One more request for each member that joins or leaves."""

    async def put(self, record: Any) -> Any:
        twin = next((r for r in self.records.values() if r.owner == record.owner), None)
        for _ in self.written(twin.members if twin else frozenset[str](), record.members):
            self.step()
            self.step()
        return await super().put(record)

    def written(self, before: frozenset[str], after: frozenset[str]) -> frozenset[str]:
        return before ^ after


class WritesAllMembers(WritesEachNewMember):
    def written(self, before: frozenset[str], after: frozenset[str]) -> frozenset[str]:
        return before | after


def test_a_change_that_writes_members_again_that_stay_breaks_a_law():
    able = Abilities(requests=Requests(per_change=1, per_member_change=1))
    law = abilities.changes_cost_no_more_than_declared
    run(law(AcmeHarness(WritesEachNewMember(), able)), VirtualTimeLoop)

    with pytest.raises(AssertionError, match=r"requests, but abilities\.requests .* allows"):
        run(law(AcmeHarness(WritesAllMembers(), able)), VirtualTimeLoop)


class TestTheBalancersOfTheGuide(BalancersLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return AcmeHarness()
