"""Written conversations that cover every kind of request of the provider."""

from collections.abc import Callable, Mapping
from typing import Any

from pileus.providers.openstack.api import Service
from tests.openstack.balancer_talks import parts_of_a_balancer, refused_balancers, whole_balancer
from tests.openstack.places import NOWHERE, place
from tests.openstack.talk import Talk

MICROVERSION = "2.69"


def extra_routes(talk: Talk) -> None:
    with place(talk, "talk-routes") as here:
        path = f"/routers/{here.router}"
        one = {"destination": "10.244.1.0/24", "nexthop": "10.99.0.11"}
        two = {"destination": "10.244.2.0/24", "nexthop": "10.99.0.12"}
        far = {"destination": "10.244.3.0/24", "nexthop": "192.0.2.1"}
        talk.net("PUT", f"{path}/add_extraroutes", {"router": {"routes": [one, two]}})
        talk.net("PUT", f"{path}/add_extraroutes", {"router": {"routes": [one]}})
        talk.net("PUT", f"{path}/add_extraroutes", {"router": {"routes": [far]}})
        talk.net("GET", path)
        moved = {**one, "nexthop": "10.99.0.13"}
        talk.net("PUT", f"{path}/add_extraroutes", {"router": {"routes": [moved]}})
        talk.net("PUT", f"{path}/remove_extraroutes", {"router": {"routes": [one, far]}})
        talk.net("PUT", path, {"router": {"routes": [two]}})
        talk.net("PUT", path, {"router": {"routes": [far]}})
        talk.net("GET", f"/routers/{NOWHERE}")
        talk.net("PUT", f"/routers/{NOWHERE}/add_extraroutes", {"router": {"routes": [one]}})
        revision = talk.net("GET", path)["router"]["revision_number"]
        for number in (revision - 1, revision):
            talk.ask(
                Service.NETWORK,
                "PUT",
                f"/v2.0{path}",
                {"router": {"routes": []}},
                revision=number,
            )


def ports(talk: Talk) -> None:
    with place(talk, "talk-ports") as here:
        fixed = [{"subnet_id": here.subnet, "ip_address": "10.99.0.50"}]
        fields = {"network_id": here.network, "name": "talk-port", "fixed_ips": fixed}
        port = talk.net("POST", "/ports", {"port": fields})["port"]
        talk.net("POST", "/ports", {"port": fields})
        path = f"/ports/{port['id']}"
        pairs = [{"ip_address": "10.244.1.0/24"}]
        talk.net("PUT", path, {"port": {"allowed_address_pairs": pairs}})
        talk.net("PUT", path, {"port": {"allowed_address_pairs": []}})
        talk.net("PUT", path, {"port": {"security_groups": [NOWHERE]}})
        talk.net("PUT", path, {"port": {"security_groups": []}})
        by_address = ("fixed_ips", "ip_address=10.99.0.50")
        network = ("network_id", here.network)
        talk.net("GET", "/ports", None, network, by_address, ("fields", "id"), ("fields", "name"))
        talk.net("GET", "/ports", None, network, ("name", "talk-port"), ("name", "other"))
        talk.net("GET", "/ports", None, network, ("limit", "1"), ("fields", "network_id"))
        talk.net("GET", "/ports", None, ("device_id", NOWHERE), ("limit", "10"))
        talk.net("GET", "/ports", None, network, ("limit", "1"), ("marker", NOWHERE))
        revision = talk.net("GET", path)["port"]["revision_number"]
        for number in (revision - 1, revision):
            body = {"port": {"name": "talk-port-2"}}
            talk.ask(Service.NETWORK, "PUT", f"/v2.0{path}", body, revision=number)
        talk.net("PUT", f"{path}/tags", {"tags": ["b", "a"]})
        talk.net("PUT", f"{path}/tags/c")
        talk.net("GET", "/ports", None, network, ("tags", "a,b"), ("fields", "tags"))
        talk.net("GET", "/ports", None, network, ("not-tags", "a"), ("fields", "tags"))
        talk.net("GET", "/ports", None, network, ("tags-any", "c,x"), ("fields", "tags"))
        talk.net("DELETE", f"{path}/tags/c")
        talk.net("DELETE", f"{path}/tags/c")
        talk.net("DELETE", path)
        talk.net("DELETE", path)
        talk.net("GET", path)
        talk.net("PUT", path, {"port": {"name": "x"}})


def security_groups(talk: Talk) -> None:
    with place(talk, "talk-groups") as here:
        fields = {"name": "talk-group", "description": "for a test"}
        group = talk.net("POST", "/security-groups", {"security_group": fields})
        id_ = group["security_group"]["id"]
        rule: Mapping[str, Any] = {
            "security_group_id": id_,
            "direction": "ingress",
            "ethertype": "IPv4",
            "protocol": "tcp",
            "port_range_min": 30000,
            "port_range_max": 30000,
            "remote_ip_prefix": "10.99.0.0/24",
        }
        made = talk.net("POST", "/security-group-rules", {"security_group_rule": rule})
        talk.net("POST", "/security-group-rules", {"security_group_rule": rule})
        other = {**rule, "protocol": "udp", "description": "x"}
        talk.net("POST", "/security-group-rules", {"security_group_rule": other})
        lost = {**rule, "security_group_id": NOWHERE}
        talk.net("POST", "/security-group-rules", {"security_group_rule": lost})
        talk.net("GET", "/security-groups", None, ("name", "talk-group"))
        talk.net("PUT", f"/security-groups/{id_}/tags", {"tags": ["pileus.dev/cluster=c"]})
        talk.net("GET", "/security-groups", None, ("tags", "pileus.dev/cluster=c"))
        talk.net("GET", "/security-group-rules", None, ("security_group_id", id_))
        port = {"network_id": here.network, "name": "talk-port", "security_groups": [id_]}
        port_id = talk.net("POST", "/ports", {"port": port})["port"]["id"]
        talk.net("DELETE", f"/security-groups/{id_}")
        talk.net("PUT", f"/ports/{port_id}", {"port": {"security_groups": []}})
        talk.net("DELETE", f"/ports/{port_id}")
        talk.net("DELETE", f"/security-group-rules/{made['security_group_rule']['id']}")
        talk.net("DELETE", f"/security-group-rules/{made['security_group_rule']['id']}")
        talk.net("PUT", f"/security-groups/{id_}", {"security_group": {"name": "talk-renamed"}})
        talk.net("DELETE", f"/security-groups/{id_}")
        talk.net("DELETE", f"/security-groups/{id_}")
        talk.net("GET", f"/security-groups/{id_}")


def floating_ips(talk: Talk) -> None:
    with place(talk, "talk-floating") as here:
        port = {"network_id": here.network, "name": "talk-port"}
        port_id = talk.net("POST", "/ports", {"port": port})["port"]["id"]
        fields = {"floating_network_id": here.public, "description": "Floating IP for a test"}
        made = talk.net("POST", "/floatingips", {"floatingip": {**fields, "port_id": port_id}})
        id_ = made["floatingip"]["id"]
        talk.net("POST", "/floatingips", {"floatingip": {**fields, "port_id": port_id}})
        bad = {**fields, "floating_network_id": here.network}
        talk.net("POST", "/floatingips", {"floatingip": bad})
        talk.net("POST", "/floatingips", {"floatingip": {**fields, "port_id": NOWHERE}})
        address = made["floatingip"]["floating_ip_address"]
        again = {**fields, "floating_ip_address": address}
        talk.net("POST", "/floatingips", {"floatingip": again})
        talk.net("GET", "/floatingips", None, ("port_id", port_id))
        talk.net("GET", "/floatingips", None, ("floating_ip_address", address), ("limit", "5"))
        talk.net("PUT", f"/floatingips/{id_}", {"floatingip": {"port_id": None}})
        talk.net("PUT", f"/floatingips/{id_}", {"floatingip": {"description": "other"}})
        talk.net("PUT", f"/floatingips/{id_}/tags", {"tags": ["a"]})
        talk.net("PUT", f"/floatingips/{id_}", {"floatingip": {"port_id": port_id}})
        talk.net("DELETE", f"/ports/{port_id}")
        talk.net("GET", f"/floatingips/{id_}")
        talk.net("DELETE", f"/floatingips/{id_}")
        talk.net("DELETE", f"/floatingips/{id_}")
        lonely = {"network_id": here.network, "name": "talk-port"}
        lonely_id = talk.net("POST", "/ports", {"port": lonely})["port"]["id"]
        interface = {"subnet_id": here.subnet}
        path = f"/v2.0/routers/{here.router}/remove_router_interface"
        talk.quietly(Service.NETWORK, "PUT", path, interface)
        talk.net("POST", "/floatingips", {"floatingip": {**fields, "port_id": lonely_id}})
        talk.net("DELETE", f"/ports/{lonely_id}")


def servers(talk: Talk) -> None:
    def ask(path: str, *query: tuple[str, str], version: str = MICROVERSION) -> Any:
        return talk.ask(Service.COMPUTE, "GET", path, None, *query, version=version)

    found = ask("/servers/detail", ("name", "^NODE-1$"))
    ask("/servers/detail", ("name", "^(node-1|node-2)$"))
    ask("/servers/detail", ("limit", "2"))
    ask("/servers", ("name", "^node-3$"))
    ask("/servers/detail", ("name", "^node$"))
    ask("/servers/detail", ("marker", NOWHERE))
    server = next(one["id"] for one in found["servers"] if one["name"] == "node-1")
    ask(f"/servers/{server}")
    ask(f"/servers/{server}", version="2.1")
    ask(f"/servers/{server}/os-volume_attachments")
    ask(f"/servers/{NOWHERE}")
    ask("/servers/not-an-id")
    talk.net("GET", "/ports", None, ("device_id", server), ("fields", "fixed_ips"))


def key_pairs(talk: Talk) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB8b1T5lUHJKMzL1e1Uu2MQWmQOJ9QeXl2BqQ1hCw0Zb talk"
    body = {"keypair": {"name": "talk-key", "public_key": key}}
    for version in ("", MICROVERSION):
        for method, path, sent in (
            ("POST", "/os-keypairs", body),
            ("POST", "/os-keypairs", body),
            ("GET", "/os-keypairs", None),
            ("DELETE", "/os-keypairs/talk-key", None),
            ("DELETE", "/os-keypairs/talk-key", None),
            ("GET", "/os-keypairs/talk-key", None),
        ):
            talk.ask(Service.COMPUTE, method, path, sent, version=version)


def volumes(talk: Talk) -> None:
    def ask(method: str, path: str, body: Any = None, *query: tuple[str, str]) -> Any:
        return talk.ask(Service.BLOCK_STORAGE, method, path, body, *query, version="3.59")

    def ready(kind: str, id_: str) -> None:
        path = f"/{kind}s/{id_}"
        done = ("available", "in-use", "error", "error_deleting")
        talk.await_status(Service.BLOCK_STORAGE, path, kind, *done)

    mark = {"cinder.csi.openstack.org/cluster": "talk"}
    body = {"volume": {"name": "talk-volume", "size": 1, "metadata": mark}}
    id_ = ask("POST", "/volumes", body)["volume"]["id"]
    ready("volume", id_)
    ask("GET", f"/volumes/{id_}")
    ask("GET", "/volumes/detail")  # filters depend on resource_filters.json of a Cinder
    ask("GET", "/volumes/detail", None, ("marker", NOWHERE))
    ask("POST", f"/volumes/{id_}/action", {"os-extend": {"new_size": 1}})
    ask("POST", f"/volumes/{id_}/action", {"os-extend": {"new_size": 2}})
    ready("volume", id_)
    ask("GET", f"/volumes/{id_}")
    snapshot = {"snapshot": {"name": "talk-snapshot", "volume_id": id_, "metadata": {"a": "b"}}}
    taken = ask("POST", "/snapshots", snapshot)["snapshot"]["id"]
    ready("snapshot", taken)
    ask("GET", f"/snapshots/{taken}")
    ask("GET", "/snapshots/detail")
    ask("DELETE", f"/volumes/{id_}")
    ask("DELETE", f"/snapshots/{taken}")
    ready("snapshot", taken)
    ask("DELETE", f"/snapshots/{taken}")
    _attach(talk, id_, ready)
    ask("DELETE", f"/volumes/{id_}")
    ready("volume", id_)
    ask("GET", f"/volumes/{id_}")
    ask("DELETE", f"/volumes/{id_}")
    ask("GET", f"/snapshots/{taken}")


def _attach(talk: Talk, volume: str, ready: Callable[[str, str], None]) -> None:
    def ask(method: str, path: str, body: Any = None) -> Any:
        return talk.ask(Service.COMPUTE, method, path, body, version=MICROVERSION)

    found = talk.quietly(Service.COMPUTE, "GET", "/servers/detail")["servers"]
    server = next(one["id"] for one in found if one["name"] == "node-1")
    path = f"/servers/{server}/os-volume_attachments"
    body = {"volumeAttachment": {"volumeId": volume}}
    ask("POST", path, body)
    ready("volume", volume)
    talk.ask(Service.BLOCK_STORAGE, "GET", f"/volumes/{volume}", version="3.59")
    ask("POST", path, body)
    ask("GET", path)
    ask("POST", path, {"volumeAttachment": {"volumeId": NOWHERE}})
    talk.ask(Service.BLOCK_STORAGE, "DELETE", f"/volumes/{volume}", version="3.59")
    ask("DELETE", f"{path}/{volume}")
    ready("volume", volume)
    ask("DELETE", f"{path}/{volume}")
    ask("DELETE", f"/servers/{NOWHERE}/os-volume_attachments/{volume}")


WITH_SERVERS = ("servers", "volumes")
"""Conversations that need the servers node-1 to node-3."""
WRITTEN: Mapping[str, Callable[[Talk], None]] = {
    one.__name__: one
    for one in (
        extra_routes,
        ports,
        security_groups,
        floating_ips,
        servers,
        key_pairs,
        volumes,
        whole_balancer,
        parts_of_a_balancer,
        refused_balancers,
    )
}
