"""Services of one namespace reach nothing that belongs to others, whatever they ask for.

The author of a Service chooses its name, its ports, its annotations and `spec.loadBalancerIP`, and
knows IDs of load balancers that are not theirs. They cannot set its UID and its status.
"""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from pileus.cloud.balancer import Listener, Owner, Wish
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    Misconfigured,
    QuotaExceeded,
    Unauthorized,
)
from pileus.providers.openstack.annotations import INTERNAL, PORT_ID
from pileus.providers.openstack.balancer_steps import CreateBalancer
from pileus_lab.openstack.state import Record, Settings
from tests.unit.providers.openstack.balancer_site import Site, owner_of
from tests.unit.providers.openstack.test_balancer_errors import failing

KINDS = ("loadbalancers", "listeners", "pools", "members", "healthmonitors", "floatingips")
OURS = "kube_service_kubernetes_shop_web"
FOR = "pileus.dev/for=cluster-1/shop/web"
NO_ADDRESS = {"start": "203.0.113.9", "end": "203.0.113.8"}
"""A pool of a subnet, empty."""


def on(*ports: int) -> frozenset[Listener]:
    return frozenset(Listener(port=one, node_port=30000 + one) for one in ports)


def tenant(site: Site, *ports: int, service: str = "web", **fields: Any) -> Wish:
    """Returns what a Service in the namespace `shop` asks for."""
    spec = site.spec(listeners=on(*(ports or (6443,))))
    owner = Owner("cluster-1", f"uid-of-shop-{service}")
    given: dict[str, Any] = {"owner": owner, "namespace": "shop", **fields}
    return site.wish(given.pop("spec", spec), service=service, **given)


def foreign(site: Site, *, name: str = "api-server", tags: tuple[str, ...] = ()) -> Record:
    """Returns the load balancer of an API server, on port 6443 and with a floating IP."""
    pool = {
        "name": "control-plane",
        "protocol": "TCP",
        "lb_algorithm": "ROUND_ROBIN",
        "members": [{"address": "10.0.9.9", "protocol_port": 6443, "name": "control-plane-1"}],
    }
    listener = {"protocol": "TCP", "protocol_port": 6443, "default_pool": pool}
    made = site.api.add_balancer(
        name=name, vip_subnet_id=site.subnet, listeners=[listener], tags=list(tags)
    )
    record = site.api.record("loadbalancers", made)
    site.api.add_floating_ip(site.public, port=record["vip_port_id"])
    return record


def everything(site: Site) -> dict[str, Record]:
    volatile = {"updated_at", "revision_number"}
    return {
        one["id"]: {key: value for key, value in one.items() if key not in volatile}
        for kind in KINDS
        for one in site.api.records(kind)
    }


async def refused(site: Site, wish: Wish) -> str:
    """Returns the refusal. Neither it nor the deletion of the Service changes anything."""
    before = everything(site)
    with pytest.raises(Misconfigured) as refusal:
        await site.settle(wish, deep=True)
    assert everything(site) == before
    await site.delete(wish)
    assert everything(site) == before
    message = str(refusal.value)
    assert [one for one in before if one in message] == []
    return message


async def test_an_address_in_use_discloses_nothing_about_its_user() -> None:
    site = Site()
    balancer = foreign(site)
    (floating,) = site.api.records("floatingips")
    spec = site.spec(requested_address=floating["floating_ip_address"])

    message = await refused(site, tenant(site, spec=spec))

    assert balancer["vip_port_id"] not in message
    assert "in use, or not reserved" in message


async def test_a_refusal_does_not_tell_whether_a_load_balancer_exists() -> None:
    site = Site()
    known = await refused(site, tenant(site, adopts=foreign(site)["id"]))
    unknown = await refused(site, tenant(site, adopts=str(uuid4())))

    assert known == unknown
    trusted = tenant(site, adopts=str(uuid4()), may_use_foreign=True)
    with pytest.raises(Misconfigured, match="there is no load balancer"):
        await site.settle(trusted)


async def test_a_refusal_names_all_that_an_operator_may_have_to_do() -> None:
    site = Site()
    balancer = foreign(site, name=OURS)
    wish = tenant(site, adopts=balancer["id"])
    message = await refused(site, wish)
    assert "--trusted-namespaces" in message
    assert message.endswith(f": openstack loadbalancer set --tag {FOR} ID")

    balancer["tags"].append(FOR)
    seen = await site.settle(replace(wish, may_use_foreign=True), deep=True)
    assert seen.balancer is not None
    assert seen.balancer.id == balancer["id"]


@pytest.mark.parametrize("exists", [False, True], ids=["new", "was-internal"])
@pytest.mark.parametrize("may_choose", [False, True])
@pytest.mark.parametrize("case", ["nowhere", "free", "of another project", "no network"])
async def test_a_refusal_does_not_tell_whether_an_address_is_in_use(
    case: str, may_choose: bool, exists: bool
) -> None:
    """The same is said, at once, and nothing is created: no outcome tells one case from another."""
    site = Site(settings=Settings(may_choose_addresses=may_choose))
    foreign(site)
    (floating,) = site.api.records("floatingips")
    used, other = floating["floating_ip_address"], "203.0.113.77"
    if exists:
        internal = tenant(site, spec=site.spec(), options={INTERNAL.name: "true"})
        await site.settle(internal, deep=True)
    in_use = await refused_at_once(site, tenant(site, spec=site.spec(requested_address=used)))
    if case == "free":
        other = site.api.add_floating_ip(site.public)["floating_ip_address"]
    if case == "of another project":
        answer = Conflict(f"409: IP address {other} already allocated in subnet 5")
        failing(site, answer, lambda call: call.method == "POST" and "floatingips" in call.path)
    if case == "no network":
        site.api.change("networks", site.public, {"router:external": False})
    site.restart()

    message = await refused_at_once(site, tenant(site, spec=site.spec(requested_address=other)))

    assert message == in_use.replace(used, other)


async def refused_at_once(site: Site, wish: Wish) -> str:
    """Returns the refusal of the first plan: nothing is created or changed before it."""
    seen = await site.seen(wish)
    with pytest.raises(Misconfigured) as refusal:
        site.balancers.changes(wish, seen)
    return str(refusal.value)


@pytest.mark.parametrize(
    "answer",
    [Unauthorized("403"), Conflict("409: IP address 203.0.113.77 already allocated in subnet 5")],
)
async def test_a_trusted_namespace_gets_the_same_text_if_neutron_refuses_an_address(
    answer: CloudError,
) -> None:
    site = Site()
    foreign(site)
    (floating,) = site.api.records("floatingips")
    used, other = floating["floating_ip_address"], "203.0.113.77"
    in_use = await refused(site, tenant(site, spec=site.spec(requested_address=used)))
    failing(site, answer, lambda call: call.method == "POST" and "floatingips" in call.path)

    with pytest.raises(Misconfigured) as refusal:
        await site.settle(
            tenant(site, spec=site.spec(requested_address=other), may_use_foreign=True)
        )

    assert str(refusal.value) == in_use.replace(used, other)


async def test_a_fault_of_neutron_names_no_object_and_still_says_what_to_do() -> None:
    """Its texts name networks, subnets and ports by ID: `No more IP addresses … on network ID`."""
    site = Site()
    site.api.change("subnets", site.public_subnet, {"allocation_pools": [NO_ADDRESS]})

    with pytest.raises(QuotaExceeded) as full:
        await site.settle(tenant(site))

    message = str(full.value)
    assert "No more IP addresses available on network <ID>" in message
    assert "Fix: delete floating IPs that are not used" in message
    for kind in (*KINDS, "networks", "subnets", "ports", "routers"):
        assert [one["id"] for one in site.api.records(kind) if one["id"] in message] == []


async def test_a_free_address_that_is_not_reserved_is_not_taken() -> None:
    site = Site()
    floating = site.api.add_floating_ip(site.public)
    spec = site.spec(requested_address=floating["floating_ip_address"])
    wish = tenant(site, spec=spec)
    await refused(site, wish)

    site.api.change("floatingips", floating["id"], {"tags": ["pileus.dev/for=cluster-1/shop"]})
    seen = await site.settle(wish)

    assert seen.balancer is not None
    assert seen.balancer.ingress[0].ip == floating["floating_ip_address"]
    await site.delete(wish)
    assert [one["id"] for one in site.api.records("floatingips")] == [floating["id"]]


@pytest.mark.parametrize("only_members", [False, True])
@pytest.mark.parametrize("port", [6443, 80])
@pytest.mark.parametrize("name", ["api-server", OURS, "kube_service_other_prod_web"])
async def test_a_load_balancer_of_others_is_not_used(
    name: str, port: int, only_members: bool
) -> None:
    """Also if another cluster created it for a Service of the same name."""
    site = Site()
    balancer = foreign(site, name=name, tags=() if name == "api-server" else (name,))
    wish = tenant(site, port, adopts=balancer["id"], only_members=only_members)

    assert "--trusted-namespaces" in await refused(site, wish)


async def test_a_host_name_in_the_status_is_no_proof_without_a_trusted_namespace() -> None:
    """The author of a Service chooses the host name that is published."""
    site = Site()
    balancer = foreign(site, name=OURS, tags=(OURS,))
    wish = tenant(site, adopts=balancer["id"], published=frozenset({"web.example.com"}))

    assert "--trusted-namespaces" in await refused(site, wish)


async def test_one_of_another_cluster_is_not_used_also_from_a_trusted_namespace() -> None:
    site = Site()
    theirs = Owner("cluster-2", "uid-1")
    await site.settle(replace(site.wish(), owner=theirs))
    (balancer,) = site.api.records("loadbalancers")

    message = await refused(site, tenant(site, adopts=balancer["id"]))
    assert "cluster-2" not in message
    with pytest.raises(Misconfigured, match="belongs to another cluster"):
        await site.settle(tenant(site, adopts=balancer["id"], may_use_foreign=True))


async def test_a_trusted_namespace_gets_free_ports_and_nothing_else() -> None:
    site = Site()
    balancer = foreign(site, name="kube_service_other_prod_web")
    before = everything(site)
    taken = tenant(site, 6443, adopts=balancer["id"], may_use_foreign=True)
    with pytest.raises(Misconfigured, match="port 6443/TCP is already used"):
        await site.settle(taken, deep=True)
    assert everything(site) == before, "it was marked before its port was refused"

    wish = tenant(site, 80, adopts=balancer["id"], may_use_foreign=True)
    await site.settle(wish, deep=True)
    assert set(site.listeners()) == {(6443, "TCP"), (80, "TCP")}
    assert list(site.members(6443)) == ["control-plane-1"]

    await site.delete(wish)
    assert everything(site) == before


@pytest.mark.parametrize("permission", ["trusted namespace", "tag"])
async def test_members_of_a_load_balancer_of_others_need_permission(permission: str) -> None:
    site = Site()
    is_trusted = permission == "trusted namespace"
    balancer = foreign(site, tags=() if is_trusted else (FOR,))
    wish = tenant(site, adopts=balancer["id"], only_members=True, may_use_foreign=is_trusted)

    await site.settle(wish, deep=True)

    assert set(site.members(6443)) == {"node-1", "node-2"}
    after = site.api.record("loadbalancers", balancer["id"])
    assert after["tags"] == balancer["tags"], "it was marked"


@pytest.mark.parametrize("permission", ["trusted namespace", "tag"])
async def test_a_permission_for_one_service_is_none_for_others_of_its_namespace(
    permission: str,
) -> None:
    """Also when the Service with the permission uses the load balancer, and it has its tags."""
    site = Site(max_shared_lb=3)
    is_trusted = permission == "trusted namespace"
    balancer = foreign(site, tags=() if is_trusted else (FOR,))
    wish = tenant(site, 80, adopts=balancer["id"], may_use_foreign=is_trusted)
    await site.settle(wish)
    assert set(site.listeners()) == {(6443, "TCP"), (80, "TCP")}

    spy = tenant(site, 8080, service="spy", adopts=balancer["id"])
    assert "--trusted-namespaces" in await refused(site, spy)

    await site.settle(wish, deep=True)
    assert set(site.listeners()) == {(6443, "TCP"), (80, "TCP")}


@pytest.mark.parametrize("is_cut", [False, True])
async def test_a_tag_of_the_go_manager_that_is_cut_proves_no_listener(is_cut: bool) -> None:
    """With a long cluster name the tags of two Services that share a load balancer are equal."""
    cluster_name = "c" * (250 if is_cut else 50)
    site = Site(cluster_name=cluster_name)
    tag = f"kube_service_{cluster_name}_shop_web"[:255]
    balancer = foreign(site, name=tag, tags=(tag,))
    (listener,) = site.api.records("listeners")
    site.api.change("listeners", listener["id"], {"tags": [tag]})
    wish = tenant(site, 6443, published=frozenset({balancer["vip_address"]}))

    if is_cut:
        before = everything(site)
        with pytest.raises(Misconfigured, match="port 6443/TCP is already used"):
            await site.settle(wish, deep=True)
        assert everything(site) == before
    else:
        await site.settle(wish, deep=True)
        assert set(site.members(6443)) == {"node-1", "node-2"}


async def test_a_tag_for_another_service_permits_nothing() -> None:
    site = Site()
    tags = ("pileus.dev/for=cluster-1/shop/other", "pileus.dev/for=cluster-2/shop/web")
    balancer = foreign(site, tags=tags)
    await refused(site, tenant(site, adopts=balancer["id"], only_members=True))


async def test_services_of_one_namespace_share_and_those_of_others_need_permission() -> None:
    site = Site(max_shared_lb=3)
    first = tenant(site, 80)
    await site.settle(first)
    balancer = site.balancer(OURS)
    second = tenant(site, 8080, service="api", adopts=balancer["id"])
    await site.settle(second)
    assert set(site.listeners()) == {(80, "TCP"), (8080, "TCP")}

    other = site.wish(site.spec(listeners=on(9090)), service="spy", adopts=balancer["id"])
    with pytest.raises(Misconfigured, match="namespace default may not use others"):
        await site.settle(other)
    assert set(site.listeners()) == {(80, "TCP"), (8080, "TCP")}

    trusted = replace(other, may_use_foreign=True)
    await site.settle(trusted)
    assert (9090, "TCP") in site.listeners()
    site.restart()
    assert await site.plan(other, deep=False) == [], "what is shared already stays"


def add_port(site: Site, balancer: str, *, members: int = 1) -> None:
    """An operator adds a port with a pool to a load balancer of a Service, without any tag."""
    listener = {"protocol": "TCP", "protocol_port": 6443, "loadbalancer_id": balancer}
    made = site.octavia("POST", "listeners", {"listener": listener})["listener"]
    pool = {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "listener_id": made["id"]}
    filled = site.octavia("POST", "pools", {"pool": pool})["pool"]
    bodies = [
        {"address": f"10.0.9.{n}", "protocol_port": 6443, "name": f"control-plane-{n}"}
        for n in range(1, members + 1)
    ]
    site.octavia("PUT", f"pools/{filled['id']}/members", {"members": bodies})
    site.api.now += 1


@pytest.mark.parametrize("port", [80, 6443], ids=["of-a-service", "of-an-operator"])
async def test_members_of_a_neighbours_port_need_permission_too(port: int) -> None:
    """The load balancer serves Services of the same namespace only."""
    site = Site()
    await site.settle(tenant(site, 80))
    balancer = site.balancer(OURS)["id"]
    add_port(site, balancer)
    before = everything(site)
    spec = site.spec(site.nodes[:1], listeners=on(port))
    wish = tenant(site, service="api", adopts=balancer, only_members=True, spec=spec)

    seen = await site.settle(wish, deep=True)
    assert everything(site) == before
    (notice,) = seen.face.notices
    assert notice.reason == "LoadBalancerMembersOfOthers"
    assert f"port {port}/TCP" in notice.message
    await site.settle(replace(wish, spec=replace(spec, members=frozenset())), deep=True)
    assert everything(site) == before, "the pool was emptied with the Service"

    seen = await site.settle(replace(wish, may_use_foreign=True), deep=True)
    assert set(site.members(port)) == {"node-1"}
    assert seen.face.notices == ()


async def test_members_of_others_on_a_shared_load_balancer_are_neither_named_nor_counted() -> None:
    site = Site()
    await site.settle(tenant(site, 80))
    balancer = site.balancer(OURS)["id"]
    add_port(site, balancer, members=9)
    wish = tenant(site, 8080, service="api", adopts=balancer)
    await site.settle(wish)
    for one in site.api.records("members"):
        site.api.change("members", one["id"], {"operating_status": "ERROR"})

    seen = await site.seen(wish, deep=True)

    assert seen.balancer is not None
    assert seen.balancer.members == 2
    (notice,) = seen.balancer.notices
    assert "node-1, node-2" in notice.message
    assert "control-plane" not in notice.message


async def test_members_are_in_the_subnet_of_the_vip_not_in_that_of_members_of_others() -> None:
    site = Site()
    _, elsewhere = site.api.add_network("elsewhere", "10.9.0.0/16")
    await site.settle(tenant(site, 80))
    balancer = site.balancer(OURS)["id"]
    add_port(site, balancer)
    for one in site.api.records("members"):
        site.api.change("members", one["id"], {"subnet_id": elsewhere})

    await site.settle(tenant(site, 8080, service="api", adopts=balancer))

    assert {one["subnet_id"] for one in site.members(8080).values()} == {site.subnet}


async def test_what_the_go_program_shares_between_namespaces_stays() -> None:
    site = Site()
    first = tenant(site, 80)
    await site.settle(first)
    balancer = site.balancer(OURS)
    second = site.wish(
        site.spec(listeners=on(8080)), service="api", adopts=balancer["id"], may_use_foreign=True
    )
    seen = await site.settle(second)
    assert seen.balancer is not None
    published = frozenset(one.ip for one in seen.balancer.ingress)
    strip(site)

    for wish in (replace(second, may_use_foreign=False), first):
        await site.settle(replace(wish, published=published), deep=True)

    assert len(site.api.records("loadbalancers")) == 1
    assert set(site.listeners()) == {(80, "TCP"), (8080, "TCP")}
    for wish in (first, second):
        await site.delete(wish)
    assert everything(site) == {}


def strip(site: Site) -> None:
    """Leave the tags that the Go program sets."""
    for kind in ("loadbalancers", "listeners", "pools", "floatingips"):
        for one in site.api.records(kind):
            tags = [tag for tag in one["tags"] if tag.startswith("kube_service_")]
            site.api.change(kind, one["id"], {"tags": tags})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_the_floating_ip_is_deleted_with_the_last_service(order: tuple[int, int]) -> None:
    site = Site()
    wishes = [tenant(site, 80)]
    await site.settle(wishes[0])
    balancer = site.balancer(OURS)["id"]
    wishes.append(tenant(site, 8080, service="api", adopts=balancer))
    await site.settle(wishes[1])
    first, last = (wishes[one] for one in order)

    await site.delete(first)
    assert len(site.api.records("floatingips")) == 1
    assert await site.balancers.owners("cluster-1") == {last.owner}
    site.api.state = site.api.state.without("loadbalancers", [balancer])
    (floating,) = site.api.records("floatingips")
    site.api.change("floatingips", floating["id"], {"port_id": None})
    assert await site.balancers.owners("cluster-1") == {last.owner}, "orphans do not list it"
    await site.settle(Wish(owner=last.owner, spec=None))

    assert site.api.records("floatingips") == []


async def test_two_services_that_are_deleted_at_once_leave_nothing() -> None:
    site = Site()
    first = tenant(site, 80)
    await site.settle(first)
    second = tenant(site, 8080, service="api", adopts=site.balancer(OURS)["id"])
    await site.settle(second)
    gone = [replace(one, spec=None, adopts="") for one in (first, second)]

    for _ in range(60):
        seen = await site.balancers.observe(gone, deep=True)
        for wish in gone:
            found: Any = seen[wish.owner]
            await site.apply(site.balancers.changes(wish, found), found)
        site.api.now += 1

    assert everything(site) == {}


async def test_a_kept_floating_ip_outlives_both() -> None:
    site = Site()
    keep = {"loadbalancer.openstack.org/keep-floatingip": "true"}
    first = tenant(site, 80, options=keep)
    await site.settle(first)
    second = tenant(site, 8080, service="api", adopts=site.balancer(OURS)["id"])
    await site.settle(second)

    await site.delete(first)
    await site.delete(second)

    assert site.api.records("loadbalancers") == []
    assert len(site.api.records("floatingips")) == 1


async def test_a_renamed_cluster_makes_an_internal_service_public() -> None:
    site = Site(cluster_name="before")
    await site.settle(replace(tenant(site, 80), options={INTERNAL.name: "true"}))
    assert site.api.records("floatingips") == []
    site.cluster_name = "after"
    site.restart()

    seen = await site.settle(tenant(site, 80), deep=True)

    assert seen.balancer is not None
    assert len(site.api.records("floatingips")) == 1
    await site.delete(tenant(site, 80))
    assert everything(site) == {}


async def test_a_renamed_cluster_makes_a_service_of_the_go_manager_public() -> None:
    """By a quick check, for a load balancer that was taken over before the cluster was renamed."""
    site = Site(cluster_name="before")
    internal = {INTERNAL.name: "true"}
    seen = await site.settle(replace(tenant(site, 80), options=internal))
    assert seen.balancer is not None
    published = frozenset(one.ip for one in seen.balancer.ingress)
    strip(site)
    await site.settle(replace(tenant(site, 80), options=internal, published=published), deep=True)
    site.cluster_name = "after"
    site.restart()

    await site.settle(tenant(site, 80))

    assert len(site.api.records("loadbalancers")) == 1
    assert len(site.api.records("floatingips")) == 1
    await site.delete(tenant(site, 80))
    assert everything(site) == {}


async def test_a_go_service_with_a_node_selector_is_taken_over() -> None:
    """None of its members is selected now: whose it is does not depend on members."""
    site = Site()
    wish = tenant(site, 80)
    seen = await site.settle(wish)
    assert seen.balancer is not None
    published = frozenset(one.ip for one in seen.balancer.ingress)
    strip(site)
    later = site.add_node("selected-later")
    selected = tenant(site, spec=site.spec([later], listeners=on(80)), published=published)

    await site.settle(selected, deep=True)

    assert len(site.api.records("loadbalancers")) == 1
    assert set(site.members(80)) == {"selected-later"}


async def test_the_plan_of_a_take_over_shows_every_change() -> None:
    site = Site()
    seen = await site.settle(tenant(site, 80, 443))
    assert seen.balancer is not None
    published = frozenset(one.ip for one in seen.balancer.ingress)
    strip(site)
    spec = site.spec(listeners=on(80, 8080), sticky_seconds=10800)
    wish = tenant(site, spec=spec, published=published)

    lines = await site.plan(wish)

    assert [one for one in lines if "tags of" not in one] == [
        "~ pool of port 80/TCP: session_persistence",
        "+ port 8080/TCP",
        "+ pool of port 8080/TCP",
        "~ members of port 8080/TCP: 2 added",
        "- pool of port 443/TCP",
        "- port 443/TCP",
    ]


async def test_a_restored_service_takes_its_own_load_balancer_without_permission() -> None:
    """The tag names cluster, namespace and Service: no other Service can have it."""
    site = Site()
    await site.settle(tenant(site, 80))
    balancer = site.balancer(OURS)["id"]
    again = replace(
        tenant(site, 80, adopts=balancer), owner=Owner("cluster-1", "uid-after-the-restore")
    )

    seen = await site.settle(again, deep=True)

    assert seen.balancer is not None
    assert seen.balancer.id == balancer
    assert await site.balancers.owners("cluster-1") == {again.owner}
    await site.delete(again)
    assert everything(site) == {}


async def test_a_port_of_others_becomes_no_address_of_a_tenant() -> None:
    site = Site()
    port = site.api.port_of(site.nodes[0].provider_id.rpartition("/")[2])["id"]
    wish = tenant(site, 80, options={PORT_ID.name: port})

    assert "--trusted-namespaces" in await refused(site, wish)

    (create,) = await site.changes(replace(wish, may_use_foreign=True))
    assert isinstance(create.step, CreateBalancer)
    assert create.step.body["vip_port_id"] == port


async def test_a_load_balancer_without_the_mark_of_its_creation_is_never_deleted() -> None:
    """Its name and all other tags are those of the Service."""
    site = Site()
    wish = tenant(site, 80)
    await site.settle(wish)
    balancer = site.balancer(OURS)
    tags = [tag for tag in balancer["tags"] if "created-for" not in tag]
    site.api.change("loadbalancers", balancer["id"], {"tags": tags})

    await site.delete(wish)

    assert [one["id"] for one in site.api.records("loadbalancers")] == [balancer["id"]]
    assert site.api.records("listeners") == []
    assert await site.balancers.owners("cluster-1") == frozenset()


async def test_a_listener_of_a_former_service_is_not_anothers() -> None:
    """Its mark is stale, but its tag names a Service of another namespace."""
    site = Site()
    await site.settle(tenant(site, 80))
    balancer = site.balancer(OURS)["id"]
    second = tenant(site, 8080, service="api", adopts=balancer)
    await site.settle(second)
    tags = site.api.record("loadbalancers", balancer)["tags"]
    left = [tag for tag in tags if tag != f"pileus.dev/service={second.owner.uid}"]
    site.api.change("loadbalancers", balancer, {"tags": left})

    await site.settle(tenant(site, 80), deep=True)

    assert (8080, "TCP") in site.listeners()
    assert owner_of("web") not in await site.balancers.owners("cluster-1")


async def test_a_port_that_is_removed_after_a_restore_leaves_no_pool() -> None:
    """Listener and pool have the mark of the former Service until they are deleted."""
    site = Site()
    await site.settle(tenant(site, 80, 443))
    balancer = site.balancer(OURS)["id"]
    again = replace(
        tenant(site, 80, adopts=balancer), owner=Owner("cluster-1", "uid-after-the-restore")
    )

    await site.settle(again, deep=True)

    assert [one["protocol_port"] for one in site.api.records("listeners")] == [80]
    assert len(site.api.records("pools")) == 1
