"""Services of one namespace reach nothing that belongs to others, on a real Octavia and Neutron."""

from dataclasses import replace
from typing import Any

import pytest

from pileus.cloud.balancer import Listener, Owner, Wish
from pileus.cloud.errors import Misconfigured
from tests.openstack.cloud import NETWORK_AND_BALANCER, Project, differences, eventually
from tests.openstack.test_balancers import Site, site_of

pytestmark = [pytest.mark.real_time, pytest.mark.extended]

TENANT = Owner("cluster-1", "5f1e6f52-8a2e-4a2b-9a53-0c8b5e0d6f05")
ANOTHER = Owner("cluster-1", "6f1e6f52-8a2e-4a2b-9a53-0c8b5e0d6f06")


def tenant(site: Site, *ports: int, **fields: Any) -> Wish:
    """Returns what a Service in the namespace `shop` asks for."""
    listeners = frozenset(Listener(port=one, node_port=30000 + one) for one in ports)
    spec = fields.pop("spec", site.spec("node-1", listeners=listeners))
    return site.wish(spec, **{"owner": TENANT, "namespace": "shop", **fields})


def foreign(project: Project, name: str, tags: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns a load balancer that a user created, on port 643 with one member."""
    member = {"address": project.address("node-2"), "protocol_port": 643, "name": "control-plane"}
    pool = {"name": "p", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN", "members": [member]}
    body = {
        "name": name,
        "vip_subnet_id": project.subnet,
        "tags": list(tags),
        "listeners": [{"name": "l", "protocol": "TCP", "protocol_port": 643, "default_pool": pool}],
    }
    path = "/v2/lbaas/loadbalancers"
    project.cloud.send("POST", "balancer", path, {"loadbalancer": body})
    eventually(
        "the load balancer is active",
        lambda: all(one["provisioning_status"] == "ACTIVE" for one in project.balancers()),
    )
    (made,) = (one for one in project.balancers() if one["name"] == name)
    return made


async def refused(site: Site, wish: Wish) -> str:
    """Returns the refusal. Neither it nor the deletion of the Service changes anything."""
    cloud = site.project.cloud
    before = cloud.objects(NETWORK_AND_BALANCER)
    with pytest.raises(Misconfigured) as refusal:
        await site.settle(wish, deep=True)
    await site.settle(replace(wish, spec=None, adopts=""))
    assert list(differences(before, cloud.objects(NETWORK_AND_BALANCER))) == []
    message = str(refusal.value)
    known = [identity for kind in before.values() for identity in kind]
    assert [one for one in known if one in message] == []
    return message


async def test_a_load_balancer_of_others_is_not_used_changed_or_deleted(
    furnished: Project,
) -> None:
    async with site_of(furnished) as site:
        for name in ("api-server", "kube_service_bed_shop_web"):
            made = foreign(furnished, name, () if name == "api-server" else (name,))
            for only_members in (False, True):
                wish = tenant(site, 643, adopts=made["id"], only_members=only_members)
                assert "--trusted-namespaces" in await refused(site, wish)


async def test_a_trusted_namespace_gets_free_ports_and_nothing_else(furnished: Project) -> None:
    async with site_of(furnished, internal_lb=True) as site:
        made = foreign(furnished, "api-server")
        before = furnished.cloud.objects(NETWORK_AND_BALANCER)
        trusted = {"adopts": made["id"], "may_use_foreign": True}
        with pytest.raises(Misconfigured, match="port 643/TCP is already used"):
            await site.settle(tenant(site, 643, **trusted), deep=True)
        assert list(differences(before, furnished.cloud.objects(NETWORK_AND_BALANCER))) == []

        await site.settle(tenant(site, 80, **trusted), deep=True)
        assert set(site.listeners()) == {(643, "TCP"), (80, "TCP")}
        assert list(site.members(643)) == ["control-plane"]
        await site.settle(tenant(site, 80, spec=None))
        assert set(site.listeners()) == {(643, "TCP")}
    (left,) = furnished.balancers()
    assert (left["id"], left["tags"]) == (made["id"], [])


async def test_addresses_need_a_reservation_and_their_users_are_not_disclosed(
    furnished: Project,
) -> None:
    async with site_of(furnished) as site:
        first = site.wish(site.spec("node-1"))
        await site.settle(first)
        (used,) = furnished.cloud.listed("floatingips")
        spec = site.spec("node-1", requested_address=used["floating_ip_address"])
        message = await refused(site, tenant(site, spec=spec))
        assert used["port_id"] not in message

        await site.settle(replace(first, spec=None))
        body = {"floatingip": {"floating_network_id": used["floating_network_id"]}}
        furnished.cloud.send("POST", "network", "/v2.0/floatingips", body)
        (free,) = furnished.cloud.listed("floatingips")
        spec = site.spec("node-1", requested_address=free["floating_ip_address"])
        await refused(site, tenant(site, spec=spec))

        tags = {"tags": ["pileus.dev/for=cluster-1/shop"]}
        furnished.cloud.send("PUT", "network", f"/v2.0/floatingips/{free['id']}/tags", tags)
        seen = await site.settle(tenant(site, spec=spec))
        assert seen.balancer is not None
        assert [one.ip for one in seen.balancer.ingress] == [free["floating_ip_address"]]
        await site.settle(tenant(site, spec=None))
    assert [one["id"] for one in furnished.cloud.listed("floatingips")] == [free["id"]]


async def test_sharing_ends_at_the_namespace_and_leaves_no_floating_ip(
    furnished: Project,
) -> None:
    async with site_of(furnished, max_shared_lb=3) as site:
        first = tenant(site, 80)
        seen = await site.settle(first)
        assert seen.found is not None
        second = tenant(site, 8080, owner=ANOTHER, service="api", adopts=seen.found.id)
        await site.settle(second)
        assert set(site.listeners()) == {(80, "TCP"), (8080, "TCP")}
        spy = tenant(site, 9090, owner=Owner("cluster-1", "spy"), namespace="other", service="spy")
        with pytest.raises(Misconfigured, match="namespace other may not use others"):
            await site.settle(replace(spy, adopts=seen.found.id))

        before = furnished.cloud.objects(NETWORK_AND_BALANCER)
        spec = site.spec(listeners=frozenset({Listener(port=80, node_port=30099)}))
        neighbour = tenant(site, spec=spec, owner=Owner("cluster-1", "spy"), service="spy")
        await site.settle(replace(neighbour, adopts=seen.found.id, only_members=True), deep=True)
        assert list(differences(before, furnished.cloud.objects(NETWORK_AND_BALANCER))) == []

        await site.settle(replace(first, spec=None))
        assert len(furnished.cloud.listed("floatingips")) == 1
        await site.settle(replace(second, spec=None, adopts=""))
    assert furnished.balancers() == []
    assert furnished.cloud.listed("floatingips") == []
