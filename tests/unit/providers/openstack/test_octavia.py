"""Typed requests to Octavia: what is sent, and what is made of the answers."""

from collections.abc import Callable
from typing import Any

import pytest

from pileus.cloud.errors import NotFound, Unavailable
from pileus.providers.openstack.api import Call, Client
from pileus.providers.openstack.octavia import Octavia

BALANCER: dict[str, Any] = {
    "id": "lb-1",
    "name": "kube_service_kubernetes_default_web",
    "provisioning_status": "ACTIVE",
    "operating_status": "ONLINE",
    "vip_address": "10.9.0.181",
    "vip_port_id": "port-1",
    "flavor_id": None,
    "tags": ["kube_service_kubernetes_default_web"],
    "pools": [{"id": "pool-1"}],
    "vip_qos_policy_id": None,
}


class Recorded:
    """Answers calls by a function, and remembers them."""

    def __init__(self, answer: Callable[[Call], Any]) -> None:
        self.answer = answer
        self.calls: list[Call] = []

    async def call(self, call: Call) -> Any:
        self.calls.append(call)
        return self.answer(call)


def answering(answer: Callable[[Call], Any]) -> tuple[Octavia, Recorded]:
    api = Recorded(answer)
    return Octavia(Client(api)), api


async def test_load_balancers_are_filtered_by_all_given_tags_in_one_request() -> None:
    octavia, api = answering(lambda _: {"loadbalancers": [BALANCER]})

    (found,) = await octavia.balancers(tags=("one", "two"))

    assert (found.id, found.vip_address) == ("lb-1", "10.9.0.181")
    assert [call.query for call in api.calls] == [(("tags", "one,two"),)]


async def test_a_balancer_is_deleted_with_its_parts_and_a_missing_one_is_deleted() -> None:
    def missing(_: Call) -> None:
        raise NotFound("gone")

    octavia, api = answering(missing)
    await octavia.delete_balancer("lb-1")
    assert api.calls[0].query == (("cascade", "true"),)


async def test_all_members_of_a_pool_are_written_by_one_request() -> None:
    octavia, api = answering(lambda _: None)
    members = [{"address": f"10.0.0.{n}", "protocol_port": 30080} for n in range(50)]

    await octavia.set_members("pool-1", members)

    assert [(call.method, call.path) for call in api.calls] == [
        ("PUT", "/v2.0/lbaas/pools/pool-1/members")
    ]
    assert api.calls[0].body == {"members": members}


async def test_the_status_tree_is_one_answer() -> None:
    pools = [{"id": "pool-1", "members": [{"id": "m", "address": "10.0.0.1", "protocol_port": 1}]}]
    tree = {
        "id": "lb-1",
        "provisioning_status": "ERROR",
        "listeners": [{"id": "l", "pools": pools}],
    }
    octavia, _ = answering(lambda _: {"statuses": {"loadbalancer": tree}})

    found = await octavia.status_tree("lb-1")

    assert found.provisioning_status == "ERROR"
    assert found.listeners[0].pools[0].members[0].address == "10.0.0.1"


async def test_an_answer_without_the_created_object_is_an_error() -> None:
    octavia, _ = answering(lambda _: {})
    with pytest.raises(Unavailable, match="unexpected answer"):
        await octavia.create_balancer({"name": "x"})
