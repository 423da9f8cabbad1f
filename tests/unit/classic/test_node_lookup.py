"""What the node controller learns from a ported provider, and by which calls."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.classic.interface import InstanceMetadata
from pileus.cloud.errors import CloudError
from pileus.cloud.model import AddressType
from pileus.controllers.node.observation import Facts, look_up
from pileus.controllers.node.reconciler import NodeReconciler
from pileus.kube.model.core_v1 import NodeAddress
from pileus.objects.nodes import addresses_of, is_uninitialized
from tests.unit.classic.fakes import (
    ADDRESSES,
    Access,
    Provider,
    Recorder,
    View,
    adapted,
    kube_node,
)
from tests.unit.controllers.lifecycle.world import World as LifecycleWorld
from tests.unit.controllers.node.harness import World
from tests.unit.controllers.node.objects import document

FLOATING = NodeAddress(type="FloatingIP", address="203.0.113.9")
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


@pytest.mark.parametrize("offers", [{"v2"}, {"v1"}], ids=["v2", "v1"])
async def test_an_address_of_a_type_that_kubernetes_does_not_know_is_left_out_with_a_warning(
    offers: set[str],
) -> None:
    addresses = [*ADDRESSES, FLOATING]
    metadata = InstanceMetadata(provider_id="fake://i-1", node_addresses=addresses)
    answers = {"instance_metadata": metadata, "node_addresses_by_provider_id": addresses}
    cloud = adapted(Provider(Recorder(answers), offers=frozenset(offers)))
    assert cloud.leading
    assert cloud.instances
    world = World([document("n1")], {})

    async with cloud.leading(Access(View({"n1": kube_node("n1")}))):
        world.tools = replace(world.tools, instances=cloud.instances)
        await NodeReconciler(world.tools).reconcile("n1")

    assert {each.type for each in addresses_of(world.node())} == {"InternalIP", "Hostname"}
    assert not is_uninitialized(world.node())
    assert world.events.reasons("n1") == ["Synced", "CloudAddressSkipped"]
    (message,) = world.events.messages("CloudAddressSkipped")
    assert "203.0.113.9 is of type FloatingIP" in message


ANY = st.builds(
    NodeAddress,
    type=st.sampled_from(["InternalIP", "ExternalIP", "Hostname", "FloatingIP", ""]) | st.text(),
    address=st.sampled_from(["10.0.0.1", "fd00::1", "n1", ""]) | st.text(),
)


@given(st.lists(ANY, max_size=4))
def test_law_no_address_keeps_a_node_from_its_metadata(reported: list[NodeAddress]) -> None:
    metadata = InstanceMetadata(provider_id="fake://i-1", node_addresses=reported)
    answer = asyncio.run(_answer(Provider(Recorder({"instance_metadata": metadata}))))

    assert not isinstance(answer, CloudError)
    assert set(answer.addresses) <= set(reported)
    assert {each.type for each in answer.addresses} <= set(AddressType)
    unknown = [each for each in reported if each.type not in set(AddressType)]
    assert len(answer.unknown_addresses) == len(unknown), "each is reported"


async def _answer(provider: Provider) -> Facts | CloudError:
    cloud, node = adapted(provider), kube_node("n1")
    assert cloud.leading
    assert cloud.instances
    async with cloud.leading(Access(View({"n1": node}))):
        return (await look_up(cloud.instances, [node]))["n1"]


class TwoKinds(Provider):
    def provider_id_schemes(self) -> tuple[str, ...]:
        return ("fake", "bare")


async def test_nodes_of_a_second_scheme_are_managed_and_those_of_other_clouds_are_not() -> None:
    world = LifecycleWorld(owns=adapted(TwoKinds()).owns)
    await world.add("n1", "n2", "n3", "n4", "n5", "n6")
    for name, provider_id in (("rented", "bare://1"), ("foreign", "other://1")):
        await world.register(name, provider_id=provider_id)

    async with world.running():
        await world.lose("rented", "foreign")
        await asyncio.sleep(60)

    assert "rented" not in await world.names()
    assert "foreign" in await world.names()
