"""The modelled OpenStack: what tests and simulations of the provider rely on."""

import pytest

from pileus.cloud.errors import Conflict, NotFound
from pileus.providers.openstack.api import Call, Client, Service
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Settings

LBAAS = "/v2.0/lbaas"


def lb(method: str, path: str, body: object = None, *query: tuple[str, str]) -> Call:
    path = f"{LBAAS}{path}"
    return Call(service=Service.LOAD_BALANCER, method=method, path=path, body=body, query=query)


def made(api: ModelApi, members: int = 2) -> tuple[str, str]:
    """A load balancer with one listener, pool and monitor. Returns its ID and that of its pool."""
    _, subnet = api.add_network("private", "10.0.0.0/24")
    pool = {
        "name": "pool",
        "protocol": "TCP",
        "lb_algorithm": "ROUND_ROBIN",
        "members": [{"address": f"10.0.0.{one}", "protocol_port": 30000} for one in range(members)],
        "healthmonitor": {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1},
    }
    listener = {"name": "web", "protocol": "TCP", "protocol_port": 80, "default_pool": pool}
    balancer = api.add_balancer(name="lb", vip_subnet_id=subnet, listeners=[listener])
    return balancer, api.record("loadbalancers", balancer)["pools"][0]["id"]


async def test_requests_are_counted_by_pattern() -> None:
    api = ModelApi()
    network, _ = api.add_network("private", "10.0.0.0/24")
    server = api.add_server("node-1", network)
    client = Client(api)
    await client.send("GET", Service.COMPUTE, "/servers/detail")
    await client.send("GET", Service.COMPUTE, f"/servers/{server}")
    assert api.requests == {
        ("compute", "GET", "/servers/detail"): 1,
        ("compute", "GET", "/servers/{id}"): 1,
    }


async def test_a_pending_load_balancer_refuses_every_write() -> None:
    api = ModelApi(Settings(pending_seconds=5))
    balancer, pool = made(api)
    change = lb("PUT", f"/pools/{pool}/members", {"members": []})
    await api.call(change)
    for again in (change, lb("PUT", f"/pools/{pool}", {"pool": {"name": "x"}})):
        with pytest.raises(Conflict):
            await api.call(again)
    api.now += 5
    assert api.record("pools", pool)["members"] == []
    assert api.record("loadbalancers", balancer)["provisioning_status"] == "ACTIVE"
    await api.call(lb("PUT", f"/pools/{pool}", {"pool": {"name": "x"}}))


async def test_a_failed_change_ends_in_error_and_only_deletion_is_left() -> None:
    api = ModelApi()
    balancer, pool = made(api)
    api.doom = "no hosts"
    await api.call(lb("PUT", f"/pools/{pool}", {"pool": {"name": "x"}}))
    api.doom = ""
    assert api.record("loadbalancers", balancer)["provisioning_status"] == "ERROR"
    with pytest.raises(Conflict):
        await api.call(lb("PUT", f"/pools/{pool}", {"pool": {"name": "y"}}))
    await api.call(lb("DELETE", f"/loadbalancers/{balancer}", None, ("cascade", "true")))
    assert api.records("loadbalancers") == []


async def test_an_administrator_may_fail_over_what_a_failed_change_left() -> None:
    api = ModelApi(Settings(failover_seconds=60.0))
    balancer, pool = made(api)
    api.doom = "no hosts"
    await api.call(lb("PUT", f"/pools/{pool}", {"pool": {"name": "x"}}))
    api.doom = ""
    api.now += 59
    assert api.record("loadbalancers", balancer)["provisioning_status"] == "ERROR"
    api.now += 1
    assert api.record("loadbalancers", balancer)["provisioning_status"] == "ACTIVE"
    await api.call(lb("PUT", f"/pools/{pool}", {"pool": {"name": "y"}}))
    assert api.record("pools", pool)["name"] == "y"


async def test_deletion_takes_parts_and_port_but_not_the_floating_ip() -> None:
    api = ModelApi()
    balancer, _ = made(api)
    public, _ = api.add_network("public", "203.0.113.0/24", external=True)
    vip = api.record("loadbalancers", balancer)
    api.add_router([vip["vip_subnet_id"]], external=public)
    address = api.add_floating_ip(public, port=vip["vip_port_id"])
    assert address["fixed_ip_address"] == vip["vip_address"]
    await api.call(lb("DELETE", f"/loadbalancers/{balancer}", None, ("cascade", "true")))
    for collection in ("loadbalancers", "listeners", "pools", "members", "healthmonitors"):
        assert api.records(collection) == []
    assert api.record("floatingips", address["id"])["port_id"] is None
    with pytest.raises(NotFound):
        await api.call(lb("GET", f"/loadbalancers/{balancer}"))


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5])
async def test_lists_are_paged_without_loss(limit: int) -> None:
    api = ModelApi(Settings(list_limit=limit, page_limit=limit or 1000))
    network, _ = api.add_network("private", "10.0.0.0/24")
    servers = {api.add_server(f"node-{one}", network) for one in range(3)}
    client = Client(api)
    listed = await client.all_pages(Service.COMPUTE, "/servers/detail", "servers", dict)
    assert {one["id"] for one in listed} == servers
    ports = await client.all_pages(Service.NETWORK, "/v2.0/ports", "ports", dict)
    assert {one["device_id"] for one in ports} == servers


async def test_a_write_with_an_old_revision_is_refused() -> None:
    api = ModelApi()
    network, _ = api.add_network("private", "10.0.0.0/24")
    port = api.port_of(api.add_server("node-1", network))
    call = Call(
        service=Service.NETWORK,
        method="PUT",
        path=f"/v2.0/ports/{port['id']}",
        body={"port": {"name": "x"}},
        if_revision=port["revision_number"],
    )
    await api.call(call)
    assert api.reply(call).status == 412


async def test_old_states_stay_as_they_were() -> None:
    api = ModelApi()
    balancer, pool = made(api)
    before = api.state
    await api.call(lb("PUT", f"/pools/{pool}/members", {"members": []}))
    await api.call(lb("GET", f"/loadbalancers/{balancer}"))
    assert len(before.table("members")) == 2
    assert api.records("members") == []
