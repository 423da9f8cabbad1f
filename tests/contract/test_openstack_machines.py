"""Machines of OpenStack keep the laws on its model, and a thousand of them cost few requests."""

import pytest

from pileus.cloud.model import Instance, NodeName, NodeRef
from pileus.providers.openstack import server_lookup
from pileus.testing.conformance.instances import InstancesLaws
from pileus.testing.virtual_time import VirtualTimeLoop
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Settings
from tests.contract.openstack_machines import OpenStackInstancesHarness, instances

COUNT, MOST = 1000, 25


class TestInstancesByProviderId(InstancesLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return OpenStackInstancesHarness(has_provider_ids=True)


class TestInstancesByName(InstancesLaws):
    def new_loop(self):
        return VirtualTimeLoop()

    def make(self):
        return OpenStackInstancesHarness(has_provider_ids=False)


class TestInstancesByProviderIdInLists(TestInstancesByProviderId):
    @pytest.fixture(autouse=True)
    def _none_is_few(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(server_lookup, "FEW", 0)


class TestInstancesByNameInLists(TestInstancesByName):
    @pytest.fixture(autouse=True)
    def _none_is_few(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(server_lookup, "FEW", 0)


def a_thousand(settings: Settings) -> tuple[ModelApi, list[NodeRef]]:
    """A cluster whose nodes have just registered."""
    api = ModelApi(settings)
    network, *_ = api.add_network("private", "10.0.0.0/16", "fd00::/64")
    names = [f"node-{number}" for number in range(COUNT)]
    for name in names:
        api.add_server(name, network, zone="az1")
    return api, [NodeRef(name=NodeName(name)) for name in names]


@pytest.mark.parametrize(
    ("page_limit", "batch"),
    [
        pytest.param(1000, COUNT, id="as-nova-is-installed"),
        pytest.param(1000, 500, id="as-nova-is-installed-in-two-batches"),
        pytest.param(100, COUNT, id="small-pages"),
    ],
)
async def test_a_thousand_servers_cost_few_requests(page_limit: int, batch: int):
    api, nodes = a_thousand(Settings(page_limit=page_limit))
    machines = instances(api)
    for start in range(0, COUNT, batch):
        found = await machines.find(nodes[start : start + batch], fresh=False)
        assert len(found) == batch
        for one in found.values():
            assert isinstance(one, Instance)
            assert (one.type, one.zone, one.region) == ("m1.small", "az1", "RegionOne")
            assert len(one.addresses) == 2
    assert sum(api.requests.values()) <= MOST, api.requests
    pages = api.requests["compute", "GET", "/servers/detail"]
    assert pages == (COUNT // page_limit + 1) * (COUNT // batch), "the last page is empty"
