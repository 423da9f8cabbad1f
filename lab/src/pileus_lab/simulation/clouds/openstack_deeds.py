"""What users do in the modelled OpenStack directly, without a manager: several requests at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pileus.cloud.balancer import Owner
from pileus.providers.openstack.api import Call, Service
from pileus.providers.openstack.desired import PREFIX
from pileus.providers.openstack.floating_ip import description_of
from pileus.providers.openstack.marks import CLUSTER, CREATED, KEPT, SERVICE, for_tag, tags_of
from pileus_lab.openstack.handle import handle, settled
from pileus_lab.openstack.state import Moment, Record, State
from pileus_lab.simulation.clouds import deeds
from pileus_lab.simulation.clouds.truth import Route

ELSEWHERE = "192.0.2.77"
"""Address of a machine of another cluster."""
OURS = "pileus.dev/"
"""How all our tags begin."""
STRANGER = "kube_service_stranger_default_shop"
"""The tag of a Service of another cluster, whose Go manager shares a load balancer of ours."""
OWNED = (CLUSTER, SERVICE, CREATED, PREFIX)
"""How the tags of a load balancer begin that say whose it is."""
FREE, PLACED, MOVED = "of-others", "of-others-in-place-of-ours", "of-others-moved"
"""Tags of floating IPs that are not ours: free, on a VIP port of ours, and on a machine."""
THEIRS = Owner("stranger", "00000000-0000-0000-0000-000000000000")
"""The mark of another cluster."""


@dataclass(frozen=True, slots=True)
class Site:
    """IDs of what exists before the first machine."""

    network: str
    subnet: str
    router: str
    public: str
    """The external network; empty: none."""
    cluster_name: str = "kubernetes"
    """As the provider knows it."""


@dataclass(slots=True)
class _Hands:
    state: State
    moment: Moment
    site: Site

    def send(self, service: Service, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 -- JSON
        query = (("cascade", "true"),) if method == "DELETE" and "/lbaas/" in path else ()
        call = Call(service=service, method=method, path=path, body=body, query=query)
        self.state, reply = handle(self.state, call, self.moment)
        return reply.body

    def server(self, name: str) -> Record | None:
        found = [one for one in self.state.table("servers").values() if one["name"] == name]
        return found[-1] if found else None

    def on_port(self, port: str) -> list[Record]:
        """Returns the floating IPs of a port."""
        found = self.state.table("floatingips").values()
        return [one for one in found if one["port_id"] == port]

    def change_address(self, one: Record, port: str | None) -> None:
        body = {"floatingip": {"port_id": port}}
        self.send(Service.NETWORK, "PUT", f"/v2.0/floatingips/{one['id']}", body)

    def tag_address(self, id_: str, tags: tuple[str, ...]) -> None:
        body = {"tags": list(tags)}
        self.send(Service.NETWORK, "PUT", f"/v2.0/floatingips/{id_}/tags", body)

    def address(self, name: str, version: int) -> str:
        """Returns the address of a server of that name; empty if there is none."""
        server = self.server(name)
        for port in self.state.table("ports").values():
            if server is not None and port["device_id"] == server["id"]:
                addresses = [one["ip_address"] for one in port["fixed_ips"]]
                return next((one for one in addresses if (":" in one) == (version == 6)), "")  # noqa: PLR2004 -- IPv6
        return ""


def performed(state: State, deed: deeds.CloudDeed, moment: Moment, site: Site) -> State:
    """Returns the state after the deed. What OpenStack refuses has no effect."""
    hands = _Hands(settled(state, moment.now), moment, site)
    match deed:
        case deeds.AddMachine():
            _add_machine(hands, deed)
        case deeds.DeleteMachine(machine):
            hands.send(Service.COMPUTE, "DELETE", f"/servers/{machine}")
        case deeds.StopMachine(machine):
            hands.send(Service.COMPUTE, "POST", f"/servers/{machine}/action", {"os-stop": None})
        case deeds.StartMachine(machine):
            hands.send(Service.COMPUTE, "POST", f"/servers/{machine}/action", {"os-start": None})
        case deeds.AddRoute(destination, target):
            _add_route(hands, destination, target)
        case deeds.DeleteRoute(route):
            _delete_route(hands, route)
        case deeds.DeleteVolume(volume):
            hands.send(Service.BLOCK_STORAGE, "DELETE", f"/volumes/{volume}")
        case deeds.StrangeDeed():
            _act_as_others(hands, deed)
        case deeds.AddKey():
            pass
        case _:
            _change_balancer(hands, deed)
    return hands.state


def _add_machine(hands: _Hands, deed: deeds.AddMachine) -> None:
    hands.moment = Moment(hands.moment.now, hands.moment.chance)
    networks = [{"uuid": hands.site.network}]  # both families, since it has subnets of both
    server: dict[str, Any] = {"name": deed.name, "networks": networks, "id": deed.uuid}
    server["availability_zone"] = "az1"
    made = hands.send(Service.COMPUTE, "POST", "/servers", {"server": server})
    hands.state = settled(hands.state, hands.moment.now)
    if deed.external and hands.site.public:
        ports = hands.state.table("ports").values()
        port = next(one["id"] for one in ports if one["device_id"] == made["server"]["id"])
        fields = {"floating_network_id": hands.site.public, "port_id": port}
        hands.send(Service.NETWORK, "POST", "/v2.0/floatingips", {"floatingip": fields})


def _add_route(hands: _Hands, destination: str, target: str) -> None:
    hop = hands.address(target, 6 if ":" in destination else 4)
    if hop:
        routes = [{"destination": destination, "nexthop": hop}]
        path = f"/v2.0/routers/{hands.site.router}/add_extraroutes"
        hands.send(Service.NETWORK, "PUT", path, {"router": {"routes": routes}})


def _delete_route(hands: _Hands, route: Route) -> None:
    routes = [{"destination": route.destination, "nexthop": route.id.partition(" via ")[2]}]
    path = f"/v2.0/routers/{hands.site.router}/remove_extraroutes"
    hands.send(Service.NETWORK, "PUT", path, {"router": {"routes": routes}})


def _change_balancer(hands: _Hands, deed: deeds.BalancerDeed) -> None:
    match deed:
        case deeds.AddBalancer():
            _add_balancer(hands, deed)
        case deeds.DeleteBalancer(balancer):
            hands.send(Service.LOAD_BALANCER, "DELETE", f"/v2.0/lbaas/loadbalancers/{balancer}")
        case deeds.AddPort(balancer, port, node_port):
            _add_port(hands, balancer, port, node_port)
        case deeds.RemoveMember(balancer, member):
            _remove_member(hands, balancer, member)
        case deeds.DisownBalancer(balancer):
            _disown(hands, balancer)


def _add_balancer(hands: _Hands, deed: deeds.AddBalancer) -> None:
    tags = _tags(deed.owner)
    for one in hands.state.table("loadbalancers").values():
        if tags and set(tags) <= set(one["tags"]):
            return
    member = {"name": deed.member, "address": ELSEWHERE, "protocol_port": deed.node_port}
    listener = {
        "name": f"listener_0_{deed.name}",
        "protocol": "TCP",
        "protocol_port": deed.port,
        "tags": tags,
        "default_pool": {**_pool(f"pool_0_{deed.name}", [member]), "tags": tags},
    }
    fields = {
        "name": deed.name,
        "vip_subnet_id": hands.site.subnet,
        "tags": tags,
        "listeners": [listener],
    }
    body = {"loadbalancer": fields}
    hands.send(Service.LOAD_BALANCER, "POST", "/v2.0/lbaas/loadbalancers", body)


def _tags(owner: Owner | None) -> list[str]:
    if owner is None:
        return []
    return [f"pileus.dev/cluster={owner.cluster}", f"pileus.dev/service={owner.uid}"]


def _pool(name: str, members: list[Mapping[str, Any]]) -> dict[str, Any]:
    pool = {"name": name, "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
    return {**pool, "members": members}


def _add_port(hands: _Hands, balancer: str, port: int, node_port: int) -> None:
    """A listener and its pool, in two requests that nothing comes between."""
    record = hands.state.get("loadbalancers", balancer)
    if record is None:
        return
    used = [hands.state.table("pools")[one["id"]] for one in record["pools"]][:1]
    members = [
        {"name": one["name"], "address": one["address"], "protocol_port": node_port}
        for pool in used
        for one in (hands.state.table("members")[ref["id"]] for ref in pool["members"])
    ]
    listener = {"protocol": "TCP", "protocol_port": port, "loadbalancer_id": balancer}
    listener["name"] = f"by-hand-{port}"
    made = hands.send(
        Service.LOAD_BALANCER, "POST", "/v2.0/lbaas/listeners", {"listener": listener}
    )
    if "listener" not in made:
        return
    _at_once(hands, balancer)
    pool = {**_pool(f"by-hand-{port}", []), "listener_id": made["listener"]["id"]}
    made = hands.send(Service.LOAD_BALANCER, "POST", "/v2.0/lbaas/pools", {"pool": pool})
    _at_once(hands, balancer)
    path = f"/v2.0/lbaas/pools/{made['pool']['id']}/members"
    hands.send(Service.LOAD_BALANCER, "PUT", path, {"members": members})


def _act_as_others(hands: _Hands, deed: deeds.StrangeDeed) -> None:
    match deed:
        case deeds.ShareBalancer(balancer, port):
            _share(hands, balancer, port)
        case deeds.AddAddress():
            _add_address(hands, deed)
        case deeds.AddNetworkPort():
            port = {"network_id": hands.site.network, "name": FREE}
            hands.send(Service.NETWORK, "POST", "/v2.0/ports", {"port": port})
        case deeds.MoveAddress(balancer):
            _move_address(hands, balancer)
        case deeds.AddTwin(balancer, is_shared):
            _add_twin(hands, balancer, is_shared=is_shared)
        case _:
            raise ValueError(f"{deed}: not possible in the modelled OpenStack")


def _share(hands: _Hands, balancer: str, port: int) -> None:
    """A listener with its pool, and a pool that no listener uses yet."""
    record = hands.state.get("loadbalancers", balancer)
    if record is None or record["provisioning_status"] != "ACTIVE" or STRANGER in record["tags"]:
        return

    def send(method: str, path: str, kind: str, body: Mapping[str, Any]) -> Record:
        sent = hands.send(Service.LOAD_BALANCER, method, f"/v2.0/lbaas/{path}", {kind: body})
        _at_once(hands, balancer)
        return sent[kind]

    tags = [*record["tags"], STRANGER]
    send("PUT", f"loadbalancers/{balancer}", "loadbalancer", {"tags": tags})
    listener = {"name": "stranger", "protocol": "TCP", "protocol_port": port, "tags": [STRANGER]}
    made = send("POST", "listeners", "listener", {**listener, "loadbalancer_id": balancer})
    pool = {"name": "stranger", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}
    used = send("POST", "pools", "pool", {**pool, "listener_id": made["id"]})
    send("POST", "pools", "pool", {**pool, "loadbalancer_id": balancer})
    member = {"name": "m-1", "address": ELSEWHERE, "protocol_port": 30000}
    send("POST", f"pools/{used['id']}/members", "member", member)


def _disown(hands: _Hands, balancer: str) -> None:
    """What is left is what the Go manager gives them: names, descriptions and its own tags."""
    record = hands.state.get("loadbalancers", balancer)
    if record is None:
        return
    owners = {tag for tag in record["tags"] if tag.startswith(SERVICE)}
    for kind in ("loadbalancers", "listeners", "pools", "floatingips", "security-groups"):
        for one in hands.state.table(kind).values():
            if one["id"] == balancer or owners & {*one["tags"]}:
                kept = [tag for tag in one["tags"] if not tag.startswith(OURS)]
                hands.state = hands.state.change(kind, one["id"], {"tags": kept})


def _add_address(hands: _Hands, deed: deeds.AddAddress) -> None:
    record = hands.state.get("loadbalancers", deed.balancer)
    if not hands.site.public or (deed.balancer and record is None):
        return
    if record is not None:
        for one in hands.on_port(record["vip_port_id"]):
            hands.change_address(one, None)
    shown = description_of(deed.namespace, deed.service, hands.site.cluster_name)
    fields = {
        "floating_network_id": hands.site.public,
        "port_id": record["vip_port_id"] if record is not None else None,
        "description": "of others" if deed.looks is deeds.Looks.UNKNOWN else shown,
    }
    made = hands.send(Service.NETWORK, "POST", "/v2.0/floatingips", {"floatingip": fields})
    tags = {
        deeds.Looks.UNKNOWN: (),
        deeds.Looks.MARKED: tags_of(THEIRS),
        deeds.Looks.RESERVED: (for_tag(THEIRS.cluster, deed.namespace, deed.service),),
        deeds.Looks.KEPT: (KEPT,),
    }
    kind = FREE if record is None else PLACED
    hands.tag_address(made["floatingip"]["id"], (*tags[deed.looks], kind))


def _move_address(hands: _Hands, balancer: str) -> None:
    """To the first server that has none."""
    record = hands.state.get("loadbalancers", balancer)
    found = hands.on_port(record["vip_port_id"]) if record is not None else []
    servers = hands.state.table("servers")
    ports = (
        one["id"]
        for one in hands.state.table("ports").values()
        if one["device_id"] in servers and not hands.on_port(one["id"])
    )
    port = next(ports, "")
    if port and found:
        hands.tag_address(found[0]["id"], (*found[0]["tags"], MOVED))
        hands.change_address(found[0], port)


def _add_twin(hands: _Hands, balancer: str, *, is_shared: bool) -> None:
    """With a tag of the Service's own Go name, beside that of the other cluster."""
    record = hands.state.get("loadbalancers", balancer)
    if record is None:
        return
    marks = [tag for tag in record["tags"] if tag.startswith(OWNED)]
    fields = {
        "name": FREE,
        "vip_subnet_id": hands.site.subnet,
        "tags": [*marks, FREE, *([STRANGER] if is_shared else [])],
    }
    if not is_shared:
        fields["tags"] = [tag for tag in fields["tags"] if not tag.startswith(CREATED)]
    body = {"loadbalancer": fields}
    hands.send(Service.LOAD_BALANCER, "POST", "/v2.0/lbaas/loadbalancers", body)


def _at_once(hands: _Hands, balancer: str) -> None:
    """End what the load balancer is pending for."""
    due = [one for one in hands.state.due if one.id == balancer]
    if due:
        hands.state = settled(hands.state, max(one.at for one in due))


def _remove_member(hands: _Hands, balancer: str, name: str) -> None:
    record = hands.state.get("loadbalancers", balancer)
    if record is None or record["provisioning_status"] != "ACTIVE":
        return
    for ref in record["pools"]:
        pool = hands.state.table("pools")[ref["id"]]
        found = (hands.state.table("members")[one["id"]] for one in pool["members"])
        member = next((one["id"] for one in found if one["name"] == name), "")
        if member:
            path = f"/v2.0/lbaas/pools/{pool['id']}/members/{member}"
            hands.send(Service.LOAD_BALANCER, "DELETE", path)
            _at_once(hands, balancer)
