"""What all controllers read of a Node."""

from pileus.cloud.model import Address
from pileus.kube.model.core_v1 import Node, NodeAddress, NodeStatus
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.nodes import MOST_ADDRESSES, reference


def test_providers_get_the_first_addresses_of_a_node_that_reports_very_many() -> None:
    addresses = tuple(NodeAddress("InternalIP", f"fd00::{n:x}") for n in range(20_000))
    node = Node(metadata=ObjectMeta(name="a"), status=NodeStatus(addresses=addresses))

    found = reference(node).addresses

    assert len(found) == MOST_ADDRESSES == 1000
    assert found[-1] == Address("InternalIP", "fd00::3e7")
