"""Which networks the load balancer of a Service gets."""

from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.errors import Misconfigured, NeedsMembers
from pileus.cloud.model import Address, AddressType, NodeName, NodeRef
from pileus.providers.openstack.api import Call, Client
from pileus.providers.openstack.config import LoadBalancer, LoadBalancerClass
from pileus.providers.openstack.networks import (
    Chosen,
    Machine,
    NetworkRequest,
    Topology,
    choose,
    machines_of,
    read_topology,
    tag_filter,
)
from pileus.providers.openstack.neutron import FixedIp, Network, Neutron, Port, Subnet
from pileus_lab.openstack.model_api import ModelApi

PUBLIC = Network(id="public", name="public", external=True, subnets=("pub-a", "pub-b"))
OTHER = Network(id="other", name="other", external=True, subnets=("other-a",))
SUBNETS = (
    Subnet(id="nodes-v4", name="nodes-v4", network_id="nodes", cidr="10.0.0.0/24"),
    Subnet(id="nodes-v6", name="nodes-v6", network_id="nodes", cidr="fd00::/64", ip_version=6),
    Subnet(id="vips", name="vips", network_id="vip-net", cidr="10.9.0.0/24"),
    Subnet(id="pub-a", name="pub-a", network_id="public", cidr="1.0.0.0/24", tags=("fast", "v4")),
    Subnet(id="pub-b", name="pub-b", network_id="public", cidr="1.0.1.0/24", tags=("v4",)),
    Subnet(id="other-a", name="other-a", network_id="other", cidr="1.1.0.0/24"),
)
PORTS = (
    Port(
        id="p1",
        network_id="nodes",
        device_id="server-1",
        fixed_ips=(
            FixedIp(subnet_id="nodes-v4", ip_address="10.0.0.5"),
            FixedIp(subnet_id="nodes-v6", ip_address="fd00::5"),
        ),
    ),
)
TOPOLOGY = Topology(SUBNETS, (PUBLIC,), PORTS)
MACHINES = (Machine("n1", "server-1", "10.0.0.5"),)
REQUEST = NetworkRequest(machines=MACHINES)
CLASSES = {
    "gold": LoadBalancerClass(
        floating_network_id="other", subnet_id="vips", member_subnet_id="nodes-v4"
    )
}


def chosen(
    request: NetworkRequest = REQUEST,
    topology: Topology = TOPOLOGY,
    **config: Any,
) -> Chosen:
    return choose(request, topology, LoadBalancer(**config), CLASSES)


def asking(**asked: str) -> NetworkRequest:
    return replace(REQUEST, asked=LoadBalancerClass(**asked))


def problem(choice: Chosen) -> str:
    assert choice.floating is not None
    return choice.floating.problem


def test_without_configuration_the_subnet_of_the_members_port_is_used() -> None:
    found = chosen()
    assert (found.vip_subnet_id, found.member_subnet_id) == ("nodes-v4", "nodes-v4")
    assert found.member_cidr == "10.0.0.0/24"


def test_the_subnet_is_found_by_port_and_address_of_the_same_server() -> None:
    twin = Port(
        id="p0",
        network_id="elsewhere",
        device_id="server-of-others",
        fixed_ips=(FixedIp(subnet_id="vips", ip_address="10.0.0.5"),),
    )
    found = chosen(topology=replace(TOPOLOGY, ports=(twin, *PORTS)))
    assert found.vip_subnet_id == "nodes-v4"


def test_an_ipv6_member_detects_its_ipv6_subnet() -> None:
    request = NetworkRequest(machines=(Machine("n1", "server-1", "FD00:0::5"),))
    assert chosen(request).vip_subnet_id == "nodes-v6"


def test_members_have_internal_addresses_of_the_family_if_there_are_any() -> None:
    node = NodeRef(
        name=NodeName("n1"),
        addresses=(
            Address(AddressType.EXTERNAL_IP, "1.2.3.4"),
            Address(AddressType.INTERNAL_IP, "fd00::5"),
            Address(AddressType.HOSTNAME, "n1"),
        ),
    )
    assert machines_of(frozenset({node}), "IPv4", lambda _: "s") == (Machine("n1", "s", "1.2.3.4"),)
    assert machines_of(frozenset({node}), "IPv6", lambda _: "s") == (Machine("n1", "s", "fd00::5"),)
    assert machines_of(frozenset({replace(node, addresses=())}), "IPv4", lambda _: "s") == ()


def test_without_any_member_port_the_error_names_the_key_to_set() -> None:
    with pytest.raises(
        Misconfigured, match=r"members: n1.*set subnet-id in \[LoadBalancer\]"
    ) as it:
        chosen(replace(REQUEST, machines=(Machine("n1", "server-9", "10.0.0.5"),)))
    assert not isinstance(it.value, NeedsMembers)


@pytest.mark.parametrize("machines", [(), (Machine("n1", "", "10.0.0.5"),)])
def test_before_a_node_is_known_the_load_balancer_waits(machines: tuple[Machine, ...]) -> None:
    with pytest.raises(NeedsMembers, match=r"as soon as a node has.*set subnet-id"):
        chosen(replace(REQUEST, machines=machines))


def interface(subnet: str, owner: str = "network:router_interface") -> Port:
    fixed = FixedIp(subnet_id=subnet, ip_address="10.0.0.1")
    return Port(
        id=f"r-{subnet}", network_id="n", device_id="r1", device_owner=owner, fixed_ips=(fixed,)
    )


ON_ROUTER = NetworkRequest(router_id="r1")


@pytest.mark.parametrize(
    ("version", "address", "subnet"),
    [(4, "", "nodes-v4"), (6, "", "nodes-v6"), (4, "10.0.0.9", "nodes-v4")],
)
def test_without_members_the_only_subnet_of_the_router_is_used(
    version: int, address: str, subnet: str
) -> None:
    behind = (interface("nodes-v4"), interface("nodes-v6"))
    gateway = interface("pub-a", "network:router_gateway")
    machines = (Machine("n0", "gone", "192.0.2.1"), Machine("n1", "gone", address))
    request = replace(ON_ROUTER, version=version, machines=machines if address else ())
    found = chosen(request, replace(TOPOLOGY, interfaces=(*behind, gateway)))
    assert (found.vip_subnet_id, found.member_subnet_id) == (subnet, subnet)


@pytest.mark.parametrize(
    ("interfaces", "machines", "said"),
    [
        (("nodes-v4", "vips"), (), "the router has 2 subnets"),
        (("nodes-v6",), (), "no node has"),
        (("nodes-v4",), (Machine("n1", "gone", "10.1.0.5"),), "members: n1"),
    ],
)
def test_a_router_that_leaves_a_choice_or_is_elsewhere_tells_no_subnet(
    interfaces: tuple[str, ...], machines: tuple[Machine, ...], said: str
) -> None:
    topology = replace(TOPOLOGY, interfaces=tuple(map(interface, interfaces)))
    with pytest.raises(Misconfigured, match=said):
        chosen(replace(ON_ROUTER, machines=machines), topology)


async def test_the_router_is_read_only_if_no_member_tells_the_subnet() -> None:
    api = ModelApi()
    _, subnet, _ = api.add_network("nodes", "10.0.0.0/24", "fd00::/64")
    router = api.add_router([subnet])
    neutron = Neutron(Client(api))
    request = NetworkRequest(router_id=router)

    topology = await read_topology(neutron, [request], LoadBalancer(), {})
    configured = await read_topology(neutron, [request], LoadBalancer(subnet_id=subnet), {})

    assert choose(request, topology, LoadBalancer(), {}).vip_subnet_id == subnet
    assert configured.interfaces == ()


def test_an_existing_load_balancer_keeps_its_subnet_whatever_the_members_are() -> None:
    request = NetworkRequest(existing_subnet_id="vips", existing_network_id="vip-net")
    found = chosen(request)
    assert (found.vip_network_id, found.vip_subnet_id) == ("vip-net", "vips")
    assert found.member_subnet_id == "vips"


def test_the_class_wins_over_annotations_of_external_services() -> None:
    request = replace(asking(subnet_id="nodes-v4"), class_name="gold")
    found = chosen(request, replace(TOPOLOGY, external=(PUBLIC, OTHER)))
    assert found.vip_subnet_id == "vips"
    assert found.floating is not None
    assert found.floating.network_id == "other"


def test_annotations_win_over_the_class_of_internal_services() -> None:
    request = replace(asking(subnet_id="nodes-v4"), class_name="gold", is_internal=True)
    found = chosen(request)
    assert found.vip_subnet_id == "nodes-v4"
    assert found.floating is None


def test_the_member_subnet_of_an_annotation_wins_over_the_class() -> None:
    request = replace(asking(member_subnet_id="vips"), class_name="gold")
    assert chosen(request).member_subnet_id == "vips"
    assert chosen(replace(REQUEST, class_name="gold")).member_subnet_id == "nodes-v4"


def test_members_follow_the_configured_subnet() -> None:
    assert chosen(asking(subnet_id="nodes-v4"), subnet_id="vips").member_subnet_id == "vips"
    assert chosen(subnet_id="vips").vip_subnet_id == "vips"
    assert chosen(subnet_id="vips", member_subnet_id="nodes-v4").member_subnet_id == "nodes-v4"


def test_with_a_network_alone_octavia_selects_the_subnet() -> None:
    found = chosen(network_id="vip-net")
    assert (found.vip_network_id, found.vip_subnet_id, found.member_subnet_id) == (
        "vip-net",
        "",
        "",
    )


def test_with_a_port_of_the_user_members_still_have_a_subnet() -> None:
    found = chosen(replace(REQUEST, port_id="mine"))
    assert (found.vip_port_id, found.vip_subnet_id) == ("mine", "")
    assert found.member_subnet_id == "nodes-v4"
    later = replace(REQUEST, port_id="mine", existing_subnet_id="vips")
    assert chosen(later).member_subnet_id == "nodes-v4"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"subnet_id": "nodes-v5"}, r"subnet-id of \[LoadBalancer\]: no subnet nodes-v5 is"),
        ({"member_subnet_id": "no"}, "member-subnet-id of .*: no subnet no is visible"),
        ({"network_id": "no"}, "no network no"),
        (
            {"network_id": "nodes", "subnet_id": "vips"},
            r"subnet vips is not in the network of network-id of \[LoadBalancer\]",
        ),
    ],
)
def test_unknown_networks_are_refused_with_the_key_and_without_a_list_of_others(
    config: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said) as refusal:
        chosen(**config)
    check_no_others(str(refusal.value))


def check_no_others(said: str) -> None:
    """The author of a Service learns nothing of networks that they did not name."""
    assert "openstack " in said or "make them match" in said
    for one in ("nodes-v4", "nodes-v6", "vip-net", "public", "pub-a", "pub-b", "other"):
        assert one not in said.removesuffix("--network=public")


def test_an_unknown_class_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Misconfigured, match=r'"glod" \(did you mean "gold"\?\)'):
        chosen(replace(REQUEST, class_name="glod"))


def test_the_only_external_network_is_used() -> None:
    found = chosen().floating
    assert found is not None
    assert (found.network_id, found.subnet_ids, found.problem) == ("public", (), "")


@pytest.mark.parametrize("external", [(PUBLIC, OTHER), (OTHER, PUBLIC)])
def test_of_several_external_networks_the_first_by_id_is_used_with_a_notice(
    external: tuple[Network, ...],
) -> None:
    found = chosen(topology=replace(TOPOLOGY, external=external)).floating
    named = chosen(
        topology=replace(TOPOLOGY, external=external), floating_network_id="public"
    ).floating

    assert found is not None
    assert (found.network_id, found.problem) == ("other", "")
    assert "floating IPs are created in that with the first ID" in found.notice
    assert "openstack network list --external" in found.notice
    assert not {"public", "other"} & set(found.notice.split())
    assert named is not None
    assert (named.network_id, named.notice) == ("public", "")


def test_an_external_network_without_ipv4_is_not_chosen_as_in_go() -> None:
    """A network without subnets is no candidate; one with subnets that are not visible is."""
    six = Network(id="a-six", name="six", external=True, subnets=("nodes-v6",))
    empty = Network(id="b-empty", name="empty", external=True)
    hidden = Network(id="c-hidden", name="hidden", external=True, subnets=("not-visible",))

    beside = chosen(topology=replace(TOPOLOGY, external=(six, empty, PUBLIC))).floating
    alone = chosen(topology=replace(TOPOLOGY, external=(six,))).floating
    unseen = chosen(topology=replace(TOPOLOGY, external=(six, hidden))).floating

    assert (beside and beside.network_id, beside and beside.notice) == ("public", "")
    assert (alone and alone.network_id, alone and alone.problem) == ("", "")
    assert unseen
    assert unseen.network_id == "c-hidden"


def test_without_external_network_there_is_no_floating_ip_and_no_error() -> None:
    found = chosen(topology=replace(TOPOLOGY, external=())).floating
    assert found is not None
    assert (found.network_id, found.problem) == ("", "")


def test_an_unknown_external_network_is_refused_without_a_list_of_others() -> None:
    said = problem(chosen(floating_network_id="nodes"))
    assert "floating-network-id of [LoadBalancer]: nodes is not an external network" in said
    check_no_others(said)


def test_the_id_of_a_floating_subnet_wins_over_pattern_and_tags() -> None:
    found = chosen(floating_subnet_id="pub-b", floating_subnet="pub-a").floating
    assert found is not None
    assert found.subnet_ids == ("pub-b",)


def test_a_floating_subnet_of_another_network_is_refused() -> None:
    assert "not in the network of floating IPs" in problem(chosen(floating_subnet_id="other-a"))


def test_an_annotation_for_the_floating_subnet_replaces_all_three_keys_of_the_config() -> None:
    found = chosen(asking(floating_subnet="pub-b"), floating_subnet_id="pub-a").floating
    assert found is not None
    assert found.subnet_ids == ("pub-b",)


@pytest.mark.parametrize(
    ("pattern", "tags", "expected"),
    [
        ("pub-*", "", ("pub-a", "pub-b")),
        ("~pub-.*", "", ("pub-a", "pub-b")),
        ("!pub-a", "", ("pub-b",)),
        ("!~.*-a", "", ("pub-b",)),
        ("pub-{a,c}", "", ("pub-a",)),
        ("", "fast", ("pub-a",)),
        ("", "fast,slow", ("pub-a",)),
        ("", "&fast,v4", ("pub-a",)),
        ("", "!fast", ("pub-b",)),
        ("", "!&fast,v4", ("pub-b",)),
        ("*-b", "v4", ("pub-b",)),
    ],
)
def test_floating_subnets_are_selected_by_name_and_tags(
    pattern: str, tags: str, expected: tuple[str, ...]
) -> None:
    found = chosen(floating_subnet=pattern, floating_subnet_tags=tags).floating
    assert found is not None
    assert found.subnet_ids == expected


def test_a_pattern_without_match_is_refused_without_a_list_of_subnets() -> None:
    said = problem(chosen(floating_subnet="fast-*"))
    assert 'no subnet of the network of floating IPs matches "fast-*"' in said
    check_no_others(said)


def test_a_pattern_that_is_not_understood_is_refused_with_its_place() -> None:
    said = problem(chosen(floating_subnet="~pub-[0-9]{2}"))
    assert "floating-subnet of [LoadBalancer]: invalid pattern: repetitions in braces" in said


def test_more_tags_than_can_be_meant_are_refused_with_their_place() -> None:
    said = problem(chosen(asking(floating_subnet_tags="a," * 501)))
    assert "floating-subnet-tags: invalid pattern: 1002 characters, more than 1000" in said


def test_no_tags_match_nothing() -> None:
    assert not tag_filter(",")(SUBNETS[0])


class Lists:
    """Answers every list of Neutron, and counts them."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def call(self, call: Call) -> Any:
        self.paths.append(call.path)
        return {call.path.rpartition("/")[2]: []}


async def test_a_hundred_services_cost_one_read_of_each_list() -> None:
    lists = Lists()
    requests = [
        NetworkRequest(machines=(Machine(f"n{n}", f"s{n}", "10.0.0.5"),)) for n in range(100)
    ]
    await read_topology(Neutron(Client(lists)), requests, LoadBalancer(), {})
    assert sorted(lists.paths) == ["/v2.0/networks", "/v2.0/ports", "/v2.0/subnets"]


async def test_lists_that_no_service_needs_are_not_read() -> None:
    lists = Lists()
    neutron = Neutron(Client(lists))
    await read_topology(neutron, [], LoadBalancer(), {})
    assert lists.paths == []
    internal = NetworkRequest(is_internal=True, machines=MACHINES)
    await read_topology(neutron, [internal], LoadBalancer(subnet_id="x"), {})
    assert lists.paths == ["/v2.0/subnets"]
