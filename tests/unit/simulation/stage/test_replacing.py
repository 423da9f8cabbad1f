"""Who lies in wait for a request replaces its object, and only that one."""

from datetime import UTC, datetime
from random import Random

import pytest

from pileus_lab.apiserver.tree import text
from pileus_lab.simulation.clouds.deeds import AddMachine
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import Cluster, Manners
from pileus_lab.simulation.environment.kubelets import Kubelets
from pileus_lab.simulation.environment.races import MOST, REQUESTS, Replacing
from pileus_lab.simulation.environment.steps import Call, Channel
from pileus_lab.simulation.environment.users import People
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import Deed, Weather

SERVICES = "/api/v1/namespaces/default/services"


class Noon:
    def now(self) -> datetime:
        return datetime(2030, 1, 1, 12, tzinfo=UTC)


class Site:
    """A cluster with a node and a Service, and somebody who lies in wait."""

    def __init__(self) -> None:
        clock = Noon()
        self.cluster = Cluster(clock, Random(1), lambda _: None, Manners())
        account = Account(SimulatedLocal(Random(2)), clock, Random(3), lambda _: None)
        account.do("setup", AddMachine("m-1"))
        kubelets = Kubelets(self.cluster, account, clock, cidrs=())
        kubelets.look()
        body = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
        self.cluster.act("setup", "POST", SERVICES, body)
        people = People(self.cluster, account, Weather(1, (), lambda: 0.0))
        self.replacing = Replacing(self.cluster, account, people, kubelets)

    def lie_in_wait(self, request: str, *, number: int = 1) -> None:
        choice = REQUESTS.index(request) + len(REQUESTS) * (number - 1)
        kind = DeedKind.OBJECT_AGAIN
        deed = Deed(number=1, at=0.0, kind=kind, choice=choice, seconds=0.0)
        self.replacing.deeds[kind](deed)

    def asks(self, what: str) -> None:
        self.replacing.see(Call("manager-1", "manager-1-1", 0.0, Channel.WRITE, "it", what))

    def uids(self) -> tuple[str, str]:
        (node,) = self.cluster.objects("nodes")
        found = self.cluster.objects("services")
        service = next(one for one in found if text(one, "metadata", "name") == "web")
        return text(node, "metadata", "uid"), text(service, "metadata", "uid")


@pytest.mark.parametrize("below", ["", "/status"])
def test_a_node_is_another_one_when_the_request_arrives(below: str):
    site = Site()
    node, service = site.uids()
    site.lie_in_wait("PATCH /api/v1/nodes/")

    site.asks(f"PATCH /api/v1/nodes/m-1{below}")

    assert site.uids()[0] != node
    assert site.uids()[1] == service


def test_a_service_is_another_one_when_the_request_arrives():
    site = Site()
    node, service = site.uids()
    site.lie_in_wait("PATCH /api/v1/namespaces/")

    site.asks(f"PATCH {SERVICES}/web/status")

    assert site.uids()[0] == node
    assert site.uids()[1] != service


def test_it_strikes_once_and_only_at_the_request_that_was_chosen():
    site = Site()
    site.lie_in_wait("GET /api/v1/nodes/", number=MOST)
    before = site.uids()

    for _ in range(MOST - 1):
        site.asks("GET /api/v1/nodes/m-1")
    site.asks("PATCH /api/v1/nodes/m-1")
    site.asks("GET /api/v1/nodes")
    unharmed = site.uids()
    site.asks("GET /api/v1/nodes/m-1")
    struck = site.uids()
    site.asks("GET /api/v1/nodes/m-1")

    assert unharmed == before
    assert struck != before
    assert site.uids() == struck


@pytest.mark.parametrize("what", ["GET /api/v1/namespaces/kube-system", f"GET {SERVICES}"])
def test_what_is_no_service_is_not_waited_for(what: str):
    site = Site()
    before = site.uids()
    site.lie_in_wait("GET /api/v1/namespaces/")

    site.asks(what)

    assert site.uids() == before


def test_nothing_is_waited_for_in_the_end():
    site = Site()
    before = site.uids()
    site.lie_in_wait("PATCH /api/v1/nodes/")

    site.replacing.end()
    site.asks("PATCH /api/v1/nodes/m-1")

    assert site.uids() == before
