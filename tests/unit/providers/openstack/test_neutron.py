"""Lists of Neutron: which requests they make, and what they make of the answers."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest

from pileus.cloud.errors import NotFound, Unavailable
from pileus.providers.openstack.api import Call, Client
from pileus.providers.openstack.neutron import VALUES_PER_REQUEST, Neutron, Router


class Recorded:
    """Answers calls by a function, and remembers them."""

    def __init__(self, answer: Callable[[Call], Any]) -> None:
        self.answer = answer
        self.calls: list[Call] = []

    async def call(self, call: Call) -> Any:
        self.calls.append(call)
        return self.answer(call)


def answering(answer: Callable[[Call], Any]) -> tuple[Neutron, Recorded]:
    api = Recorded(answer)
    return Neutron(Client(api)), api


async def test_a_list_asks_for_the_fields_of_its_struct_alone() -> None:
    neutron, api = answering(
        lambda _: {"networks": [{"id": "n", "name": "public", "router:external": True, "mtu": 9}]}
    )
    (network,) = await neutron.networks([("router:external", "true")])
    assert network.external
    assert ("fields", "router:external") in api.calls[0].query
    assert ("router:external", "true") in api.calls[0].query
    assert ("fields", "mtu") not in api.calls[0].query


async def test_ports_of_many_servers_are_few_requests() -> None:
    neutron, api = answering(lambda _: {"ports": []})
    await neutron.ports_of(f"server-{n}" for n in range(2 * VALUES_PER_REQUEST))
    assert len(api.calls) == 2


LONGEST_QUERY = 8000
"""Bytes. Apache and the servers of OpenStack refuse a request line of more than 8 KiB."""


@pytest.mark.parametrize("count", [1, 150, 151, 1000])
async def test_each_of_many_values_is_asked_for_once_and_no_answer_is_lost(count: int) -> None:
    """With the fields that are asked for, and IDs as long as those of OpenStack."""

    def answer(call: Call) -> object:
        asked = [value for key, value in call.query if key == "device_id"]
        return {"ports": [{"id": f"p-{one}", "network_id": "n", "device_id": one} for one in asked]}

    ids = [f"00000000-0000-4000-8000-{n:012}" for n in range(count)]
    neutron, api = answering(answer)

    ports = await neutron.ports_of([*ids, *ids])

    assert sorted(one.device_id for one in ports) == ids
    assert all(len(urlencode(call.query)) < LONGEST_QUERY for call in api.calls)


async def test_ports_of_no_server_are_no_request_and_never_all_ports() -> None:
    neutron, api = answering(lambda _: {"ports": [{"id": "p", "network_id": "n"}]})
    assert await neutron.ports_of([]) == ()
    assert await neutron.ports_of([""]) == ()
    assert api.calls == []


async def test_an_answer_of_another_form_is_no_empty_list() -> None:
    neutron, _ = answering(lambda _: {"ports": [{"id": "p", "fixed_ips": "none"}]})
    with pytest.raises(Unavailable, match="unexpected answer"):
        await neutron.ports()


async def test_descriptions_that_neutron_does_not_have_do_not_break_a_list() -> None:
    """As of the rules of the group `default`, which every project has."""
    rule = {"id": "r", "security_group_id": "g", "direction": "ingress", "description": None}
    group = {"id": "g", "description": None, "security_group_rules": [rule]}
    neutron, _ = answering(lambda _: {"security_groups": [group]})
    (found,) = await neutron.security_groups()
    assert [one.id for one in found.rules] == ["r"]


async def test_a_field_that_is_null_counts_as_missing() -> None:
    rule = {"id": "r", "security_group_id": "g", "direction": "egress", "description": None}
    group = {"id": "g", "name": None, "security_group_rules": [rule], "tags": None}
    neutron, _ = answering(lambda _: {"security_groups": [group]})
    (found,) = await neutron.security_groups()
    assert (found.name, found.tags, len(found.rules)) == ("", (), 1)
    neutron, _ = answering(lambda _: {"security_groups": [{"id": None}]})
    with pytest.raises(Unavailable, match="`id`"):
        await neutron.security_groups()


async def test_an_update_is_refused_if_the_object_was_changed_since() -> None:
    neutron, api = answering(lambda _: {"router": {"id": "r", "revision_number": 8}})
    changed = await neutron.update(
        "routers", "router", Router(id="r", revision_number=7), {}, Router
    )
    assert (api.calls[0].if_revision, changed.revision_number) == (7, 8)


async def test_deleting_a_missing_object_succeeds() -> None:
    def missing(_: Call) -> None:
        raise NotFound("gone")

    neutron, api = answering(missing)
    await neutron.delete("routers", Router(id="r", revision_number=0))
    assert (api.calls[0].path, api.calls[0].if_revision) == ("/v2.0/routers/r", 0)


async def test_tags_keep_their_order_and_are_sent_once() -> None:
    neutron, api = answering(lambda _: {"tags": []})
    tagged = await neutron.tag("routers", Router(id="r", revision_number=3), ["b", "a", "b"])
    assert (tagged.tags, tagged.revision_number) == (("b", "a"), None)
    assert api.calls[0].body == {"tags": ["b", "a"]}
