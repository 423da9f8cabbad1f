"""What the node controller learns from a ported provider, and by which calls."""

import pytest

from pileus.cloud.errors import CloudError
from pileus.controllers.node.lookup import look_up
from tests.unit.classic.fakes import Access, Provider, View, adapted, kube_node

V1_ORDER = [
    "instance_id",
    "node_addresses_by_provider_id",
    "instance_type_by_provider_id",
    "get_zone_by_provider_id",
]


@pytest.mark.parametrize(
    ("offers", "calls"),
    [({"v2"}, ["instance_metadata"]), ({"v1", "zones"}, V1_ORDER)],
    ids=["v2", "v1"],
)
async def test_a_new_node_gets_its_metadata(offers: set[str], calls: list[str]) -> None:
    provider, node = Provider(offers=frozenset(offers)), kube_node("n1")
    cloud = adapted(provider)
    assert cloud.leading
    assert cloud.instances

    async with cloud.leading(Access(View({"n1": node}))):
        provider.record.calls.clear()
        answer = (await look_up(cloud.instances, [node]))["n1"]

    assert provider.record.names == calls
    assert not isinstance(answer, CloudError)
    assert answer.addresses
    assert answer.provider_id.startswith("fake://")
    assert answer.standard_labels["topology.kubernetes.io/zone"]
