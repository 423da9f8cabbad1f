"""Conversations about load balancers: written ones, and random ones."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from pileus.providers.openstack.api import Service
from tests.openstack.places import NOWHERE, Place, place
from tests.openstack.talk import Talk

MEMBERS = [
    {"name": f"node-{n}", "address": f"10.98.0.1{n}", "protocol_port": 30080} for n in range(3)
]
MONITOR = {"type": "TCP", "delay": 5, "timeout": 3, "max_retries": 1, "name": "monitor_0"}
POOL = {"name": "pool_0", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}


def whole_balancer(talk: Talk) -> None:
    """A fully populated request, what is read from it, and a cascading deletion."""
    with place(talk, "talk-whole") as here:
        members = [{**one, "subnet_id": here.subnet} for one in MEMBERS]
        pool = {**POOL, "members": members, "healthmonitor": MONITOR, "tags": ["t"]}
        pool["session_persistence"] = {"type": "SOURCE_IP"}
        listener = {
            "name": "listener_0",
            "protocol": "TCP",
            "protocol_port": 80,
            "allowed_cidrs": ["10.0.0.0/8"],
            "tags": ["t"],
            "default_pool": pool,
        }
        dns: dict[str, Any] = {"name": "listener_1", "protocol": "UDP", "protocol_port": 53}
        dns["default_pool"] = {**POOL, "name": "pool_1", "protocol": "UDP"}
        fields = {
            "name": "talk-lb",
            "description": "for a test",
            "vip_subnet_id": here.subnet,
            "tags": ["t", "u"],
            "listeners": [listener, dns],
        }
        made = talk.lb("POST", "/loadbalancers", {"loadbalancer": fields})["loadbalancer"]
        id_ = made["id"]
        _read(talk, made)
        talk.lb("DELETE", f"/loadbalancers/{id_}")
        talk.lb("DELETE", f"/loadbalancers/{id_}", None, ("cascade", "true"))
        talk.lb("DELETE", f"/loadbalancers/{id_}", None, ("cascade", "true"))
        talk.settle(id_)
        talk.lb("GET", f"/loadbalancers/{id_}")
        talk.lb("DELETE", f"/loadbalancers/{id_}", None, ("cascade", "true"))
        talk.net("GET", f"/ports/{made['vip_port_id']}")


def _read(talk: Talk, made: Mapping[str, Any]) -> None:
    id_ = made["id"]
    talk.lb("PUT", f"/loadbalancers/{id_}", {"loadbalancer": {"name": "x"}})
    talk.lb("DELETE", f"/loadbalancers/{id_}", None, ("cascade", "true"))
    talk.settle(id_)
    talk.lb("GET", f"/loadbalancers/{id_}")
    talk.lb("GET", f"/loadbalancers/{id_}/status")
    for kind in ("listeners", "pools"):
        talk.lb("GET", f"/{kind}", None, ("loadbalancer_id", id_))
    pools = talk.quietly(Service.LOAD_BALANCER, "GET", "/v2.0/lbaas/pools")["pools"]
    first = next(one["id"] for one in pools if one["name"] == "pool_0" and one["tags"])
    talk.lb("GET", f"/pools/{first}/members")
    talk.lb("GET", "/healthmonitors", None, ("pool_id", first))
    for query in (
        ("tags", "t,u"),
        ("tags", "t,x"),
        ("tags-any", "u,x"),
        ("not-tags", "t,u"),
        ("name", "talk-lb"),
        ("vip_port_id", made["vip_port_id"]),
    ):
        talk.lb("GET", "/loadbalancers", None, query, ("fields", "name"))
    talk.net("GET", f"/ports/{made['vip_port_id']}", None, ("fields", "device_owner"))


def parts_of_a_balancer(talk: Talk) -> None:
    """Listeners, pools, members and monitors one by one."""
    with place(talk, "talk-parts") as here:
        fields = {"name": "talk-parts", "vip_network_id": here.network}
        made = talk.lb("POST", "/loadbalancers", {"loadbalancer": fields})["loadbalancer"]
        id_ = made["id"]
        listener = {"name": "l", "protocol": "TCP", "protocol_port": 80, "loadbalancer_id": id_}
        talk.lb("POST", "/listeners", {"listener": listener})
        talk.settle(id_)
        listener_id = talk.lb("POST", "/listeners", {"listener": listener})["listener"]["id"]
        pool = {**POOL, "listener_id": listener_id}
        talk.lb("POST", "/pools", {"pool": pool})
        talk.settle(id_)
        talk.lb("POST", "/listeners", {"listener": {**listener, "protocol": "HTTP"}})
        talk.lb("POST", "/pools", {"pool": {**pool, "protocol": "UDP"}})
        pool_id = talk.lb("POST", "/pools", {"pool": pool})["pool"]["id"]
        talk.settle(id_)
        talk.lb("POST", "/pools", {"pool": pool})
        talk.lb("GET", f"/listeners/{listener_id}")
        _members(talk, id_, pool_id, here)
        _monitor(talk, id_, pool_id)
        _updates(talk, id_, listener_id, pool_id)
        talk.lb("DELETE", f"/pools/{pool_id}")
        talk.lb("DELETE", f"/listeners/{listener_id}")
        talk.settle(id_)
        talk.lb("GET", f"/listeners/{listener_id}")
        talk.lb("GET", f"/pools/{pool_id}")
        talk.lb("DELETE", f"/listeners/{listener_id}")
        talk.settle(id_)
        talk.lb("GET", f"/loadbalancers/{id_}")
        talk.lb("DELETE", f"/loadbalancers/{id_}")
        talk.settle(id_)


def _members(talk: Talk, balancer: str, pool: str, here: Place) -> None:
    path = f"/pools/{pool}/members"
    members = [{**one, "subnet_id": here.subnet} for one in MEMBERS]
    talk.lb("PUT", path, {"members": []})
    talk.lb("PUT", path, {"members": members[:2]})
    talk.lb("PUT", path, {"members": members})
    talk.settle(balancer)
    talk.lb("PUT", path, {"members": [{**members[0], "weight": 5, "monitor_port": 1}, members[2]]})
    talk.settle(balancer)
    found = talk.lb("GET", path)["members"]
    talk.lb("POST", path, {"member": members[0]})
    talk.lb("POST", path, {"member": {**members[1], "subnet_id": NOWHERE}})
    talk.settle(balancer)
    talk.lb("PUT", path, {"members": [members[1]]}, ("additive_only", "true"))
    talk.settle(balancer)
    talk.lb("GET", path)
    talk.lb("PUT", path, {"members": [members[0], members[0]]})
    talk.settle(balancer)
    kept = next(one["id"] for one in found if one["name"] == "node-0")
    talk.lb("PUT", f"{path}/{kept}", {"member": {"name": "other"}})
    talk.settle(balancer)
    talk.lb("DELETE", f"{path}/{kept}")
    talk.settle(balancer)
    talk.lb("DELETE", f"{path}/{kept}")
    talk.lb("GET", f"{path}/{kept}")
    talk.settle(balancer)
    talk.lb("GET", path)
    talk.lb("PUT", f"/pools/{NOWHERE}/members", {"members": []})


def _monitor(talk: Talk, balancer: str, pool: str) -> None:
    body = {"healthmonitor": {**MONITOR, "pool_id": pool}}
    made = talk.lb("POST", "/healthmonitors", body)["healthmonitor"]["id"]
    talk.settle(balancer)
    talk.lb("POST", "/healthmonitors", body)
    talk.settle(balancer)
    talk.lb("PUT", f"/healthmonitors/{made}", {"healthmonitor": {"delay": 9, "max_retries": 4}})
    talk.settle(balancer)
    talk.lb("GET", f"/healthmonitors/{made}")
    talk.lb("DELETE", f"/healthmonitors/{made}")
    talk.settle(balancer)
    talk.lb("GET", f"/healthmonitors/{made}")
    http = {"type": "HTTP", "url_path": "/healthz", "expected_codes": "200", "http_method": "GET"}
    talk.lb("POST", "/healthmonitors", {"healthmonitor": {**MONITOR, **http, "pool_id": pool}})
    talk.settle(balancer)


def _updates(talk: Talk, balancer: str, listener: str, pool: str) -> None:
    for path, body in (
        (f"/listeners/{listener}", {"listener": {"connection_limit": 9, "tags": ["a"]}}),
        (f"/listeners/{listener}", {"listener": {"allowed_cidrs": ["10.0.0.0/8"]}}),
        (f"/listeners/{listener}", {"listener": {"allowed_cidrs": ["fd00::/8"]}}),
        (f"/listeners/{listener}", {"listener": {"allowed_cidrs": None, "name": "l2"}}),
        (f"/listeners/{listener}", {"listener": {"timeout_client_data": 1000}}),
        (f"/listeners/{listener}", {"listener": {"default_pool_id": NOWHERE}}),
        (f"/listeners/{listener}", {"listener": {"default_pool_id": None}}),
        (f"/listeners/{listener}", {"listener": {"default_pool_id": pool}}),
        (f"/pools/{pool}", {"pool": {"lb_algorithm": "LEAST_CONNECTIONS", "tags": ["b"]}}),
        (f"/pools/{pool}", {"pool": {"session_persistence": {"type": "SOURCE_IP"}}}),
        (f"/pools/{pool}", {"pool": {"session_persistence": None, "name": "p2"}}),
        (f"/loadbalancers/{balancer}", {"loadbalancer": {"tags": ["c"], "description": "d"}}),
    ):
        talk.lb("PUT", path, body)
        talk.settle(balancer)
    talk.lb("GET", f"/listeners/{listener}")
    talk.lb("GET", f"/pools/{pool}")


def refused_balancers(talk: Talk) -> None:
    with place(talk, "talk-refused") as here:
        for fields in (
            {"name": "talk-none"},
            {"name": "talk-none", "vip_subnet_id": NOWHERE},
            {"name": "talk-none", "vip_network_id": NOWHERE},
            {"name": "talk-none", "vip_port_id": NOWHERE},
            {"name": "talk-none", "vip_subnet_id": here.subnet, "provider": "nosuch"},
            {"name": "talk-none", "vip_subnet_id": here.subnet, "flavor_id": NOWHERE},
            {
                "name": "talk-none",
                "vip_subnet_id": here.subnet,
                "listeners": [
                    {"protocol": "TCP", "protocol_port": 80, "default_pool": {"name": "missing"}}
                ],
            },
        ):
            talk.lb("POST", "/loadbalancers", {"loadbalancer": fields})
        for path in ("loadbalancers", "listeners", "pools", "healthmonitors"):
            talk.lb("GET", f"/{path}/{NOWHERE}")
            talk.lb("DELETE", f"/{path}/{NOWHERE}")
        talk.lb("GET", "/loadbalancers", None, ("marker", NOWHERE), ("limit", "1"))
        talk.lb("GET", f"/loadbalancers/{NOWHERE}/status")
        listener = {"protocol": "TCP", "protocol_port": 80, "loadbalancer_id": NOWHERE}
        talk.lb("POST", "/listeners", {"listener": listener})
        talk.lb("POST", "/pools", {"pool": {**POOL, "loadbalancer_id": NOWHERE}})
        talk.lb("POST", "/pools", {"pool": POOL})
        talk.lb("POST", "/healthmonitors", {"healthmonitor": {**MONITOR, "pool_id": NOWHERE}})
        port = {"network_id": here.network, "name": "talk-vip"}
        port_id = talk.net("POST", "/ports", {"port": port})["port"]["id"]
        fields = {"name": "talk-port", "vip_port_id": port_id}
        made = talk.lb("POST", "/loadbalancers", {"loadbalancer": fields})["loadbalancer"]
        talk.settle(made["id"])
        talk.lb("DELETE", f"/loadbalancers/{made['id']}")
        talk.settle(made["id"])
        talk.net("GET", f"/ports/{port_id}", None, ("fields", "device_owner"), ("fields", "name"))
        talk.net("DELETE", f"/ports/{port_id}")


def random_talk(seed: int, length: int = 25) -> Callable[[Talk], None]:
    """Returns a conversation of random requests about one load balancer and its parts."""

    def talk_about(talk: Talk) -> None:
        with place(talk, f"talk-random-{seed}") as here:
            fields = {"name": f"talk-random-{seed}", "vip_subnet_id": here.subnet}
            made = talk.lb("POST", "/loadbalancers", {"loadbalancer": fields})
            id_ = made["loadbalancer"]["id"]
            talk.settle(id_)
            chance = Random(seed)
            for _ in range(length):
                _random_request(talk, id_, chance)
                talk.settle(id_)
            talk.lb("GET", f"/loadbalancers/{id_}")
            talk.lb("DELETE", f"/loadbalancers/{id_}", None, ("cascade", "true"))
            talk.settle(id_)

    return talk_about


def _random_request(talk: Talk, balancer: str, chance: Random) -> None:
    """One request that depends only on the seed and on what the answers have in common."""
    listeners = _known(talk, "listeners", balancer)
    pools = _known(talk, "pools", balancer)
    port, protocol = chance.choice([80, 81, 82]), chance.choice(["TCP", "UDP", "HTTP"])
    some = chance.choice
    match chance.randrange(8):
        case 0 | 1:
            pool = some([None, *pools])
            fields = {"protocol": protocol, "protocol_port": port, "default_pool_id": pool}
            fields |= {"loadbalancer_id": balancer, "name": f"listener-{protocol}-{port}"}
            talk.lb("POST", "/listeners", {"listener": fields})
        case 2:
            parent = some([{"loadbalancer_id": balancer}, *({"listener_id": o} for o in listeners)])
            name = f"pool-{protocol}-{len(talk.lines)}"
            talk.lb(
                "POST", "/pools", {"pool": {**POOL, "protocol": protocol, **parent, "name": name}}
            )
        case 3 | 4 if pools:
            members = chance.sample(MEMBERS, chance.randrange(len(MEMBERS) + 1))
            talk.lb("PUT", f"/pools/{some(pools)}/members", {"members": members})
        case 5 if pools:
            kind = "TCP" if chance.random() < 0.8 else "UDP-CONNECT"
            fields = {**MONITOR, "type": kind, "pool_id": some(pools)}
            talk.lb("POST", "/healthmonitors", {"healthmonitor": fields})
        case 6 if listeners:
            fields = {"default_pool_id": some([None, *pools]), "connection_limit": port}
            talk.lb("PUT", f"/listeners/{some(listeners)}", {"listener": fields})
        case _:
            kind, ids = some([("listeners", listeners), ("pools", pools)])
            talk.lb("DELETE", f"/{kind}/{some([NOWHERE, *ids])}")


def _known(talk: Talk, kind: str, balancer: str) -> list[str]:
    """Returns the IDs of parts in the order of their names, which both targets share."""
    found = talk.quietly(Service.LOAD_BALANCER, "GET", f"/v2.0/lbaas/{kind}")[kind]
    mine = [one for one in found if any(o["id"] == balancer for o in one["loadbalancers"])]
    return [one["id"] for one in sorted(mine, key=lambda one: one["name"])]
