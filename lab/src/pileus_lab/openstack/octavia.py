"""Octavia: load balancers, lists of their parts, the status tree, versions and providers."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from pileus_lab.openstack import neutron
from pileus_lab.openstack.listing import page_of, selected
from pileus_lab.openstack.octavia_parts import LBAAS, SINGULAR, new_listener, new_pool
from pileus_lab.openstack.octavia_pending import (
    DELETE,
    UPDATE,
    check_quota,
    children,
    finishing,
    found,
    invalid,
    part,
    refusal,
)
from pileus_lab.openstack.state import (
    DEFAULT_GROUP,
    NONE,
    PROJECT,
    Fault,
    Handler,
    Record,
    Reply,
    Request,
    State,
)

BALANCER: Record = {
    "description": "",
    "project_id": PROJECT,
    "tenant_id": PROJECT,
    "vip_sg_ids": [],
    "additional_vips": [],
    "listeners": [],
    "pools": [],
    "flavor_id": None,
    "vip_qos_policy_id": None,
    "availability_zone": None,
    "vip_vnic_type": "normal",
}
VIP = ("vip_port_id", "vip_network_id", "vip_subnet_id")


def create_balancer(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("loadbalancer")
    check_quota(state, "loadbalancers")
    provider = asked.get("provider") or state.settings.lb_providers[0]
    if provider not in state.settings.lb_providers:
        raise refusal(400, f"Provider '{provider}' is not enabled.")
    flavors = state.settings.lb_flavors
    if asked.get("flavor_id") and flavors is not None and asked["flavor_id"] not in flavors:
        raise invalid("Invalid flavor_id.")
    record = part(request, {**BALANCER, "provider": provider})
    state, vip = _with_vip(state, request, record["id"], asked)
    ignored = {"listeners", "pools", "additional_vips", "provider", *VIP, "vip_address"}
    record |= {key: value for key, value in asked.items() if key not in ignored}
    is_whole = bool(asked.get("listeners") or asked.get("pools"))
    try:
        made = state.put("loadbalancers", {**record, **vip})
        made = _with_parts(made, request, record["id"], asked)
    except Fault as fault:  # Octavia forgets the load balancer, and leaves the port in Neutron
        return state, fault.reply
    state = finishing(made, request, record["id"])
    shown = state.table("loadbalancers")[record["id"]]
    return state, Reply(201, {"loadbalancer": _full(state, shown) if is_whole else shown})


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _with_vip(
    state: State, request: Request, id_: str, asked: Record
) -> tuple[State, dict[str, Any]]:
    """Returns the state with the port of the virtual IP, and the fields about it."""
    if not any(asked.get(name) for name in VIP):
        raise refusal(400, f"Validation failure: VIP must contain one of: {', '.join(VIP)}.")
    if asked.get("vip_port_id"):
        return state, _of_port(state, asked)
    subnet = asked.get("vip_subnet_id") or _first_subnet(state, asked["vip_network_id"])
    record = state.get("subnets", subnet)
    if record is None:
        raise refusal(400, f"Subnet {subnet} not found.")
    extra = [one["subnet_id"] for one in asked.get("additional_vips") or ()]
    if len({subnet, *extra}) != len(extra) + 1:
        raise invalid("Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet.")
    address = asked.get("vip_address") or ""
    if address and not _is_address(address):
        raise refusal(
            400,
            f"Invalid input for field/attribute vip_address. Value: '{address}'. Value should be "
            "IPv4 or IPv6 format",
        )
    fixed: list[Record] = [{"subnet_id": subnet, "ip_address": address}]
    fixed += [
        {"subnet_id": one["subnet_id"], "ip_address": one.get("ip_address") or ""}
        for one in asked.get("additional_vips") or ()
    ]
    port = {
        "network_id": record["network_id"],
        "name": f"octavia-lb-{id_}",
        "fixed_ips": fixed,
        "device_id": f"lb-{id_}",
        "device_owner": "Octavia",
        "admin_state_up": False,
        "security_groups": [DEFAULT_GROUP],
    }
    state, made = neutron.new_port(state, request, port)
    return state, _vip_fields(made)


def _vip_fields(port: Record) -> dict[str, Any]:
    first, *others = port["fixed_ips"]
    return {
        "vip_port_id": port["id"],
        "vip_network_id": port["network_id"],
        "vip_subnet_id": first["subnet_id"],
        "vip_address": first["ip_address"],
        "additional_vips": [dict(one) for one in others],
    }


def _of_port(state: State, asked: Record) -> dict[str, Any]:
    port = state.get("ports", asked["vip_port_id"])
    if port is None:
        raise refusal(400, f"Port {asked['vip_port_id']} not found.")
    if port["device_id"]:
        raise invalid(f"VIP port {port['id']} is already used by {port['device_id']}.")
    fields = _vip_fields(port)
    return {**fields, "additional_vips": []}


def _first_subnet(state: State, network: str) -> str:
    record = state.get("networks", network)
    if record is None:
        raise refusal(400, f"Network {network} not found.")
    subnets = [state.table("subnets")[one] for one in record["subnets"]]
    if not subnets:
        raise invalid("Supplied network does not contain a subnet.")
    return str(min(subnets, key=lambda one: one["ip_version"])["id"])


def _with_parts(state: State, request: Request, id_: str, asked: Record) -> State:
    """Returns the state with all listeners and pools of a fully populated request."""
    listeners: list[dict[str, Any]] = [dict(one) for one in asked.get("listeners") or ()]
    pools = [dict(one) for one in asked.get("pools") or ()]
    nested = [one["default_pool"] for one in listeners if one.get("default_pool")]
    pools += [one for one in nested if set(one) - {"name"}]
    by_name: dict[str, str] = {}
    for one in pools:
        state, record = new_pool(state, request, id_, one)
        by_name[record["name"]] = record["id"]
    for one in listeners:
        pool: Record = one.get("default_pool") or NONE
        name = pool.get("name")
        if name is not None and name not in by_name:
            raise invalid(f"Pool '{name}' was referenced but no full definition was found.")
        if name is not None:
            one["default_pool_id"] = by_name[name]
        state, _ = new_listener(state, request, id_, one)
    return state


def _full(state: State, balancer: Record) -> Record:
    """The answer to a fully populated request: with all parts instead of their IDs."""
    pools = [_full_pool(state, one["id"]) for one in balancer["pools"]]
    listeners = [
        _without(state.table("listeners")[one["id"]], "loadbalancers")
        for one in balancer["listeners"]
    ]
    return {**balancer, "listeners": listeners, "pools": pools}


def _full_pool(state: State, id_: str) -> Record:
    pool = state.table("pools")[id_]
    members = [state.table("members")[one["id"]] for one in pool["members"]]
    monitor = state.get("healthmonitors", pool.get("healthmonitor_id") or "")
    plain = _without(pool, "loadbalancers", "healthmonitor_id")
    watched = monitor and _without(monitor, "pools")
    return {**plain, "members": members, "healthmonitor": watched}


def _without(record: Record, *names: str) -> Record:
    return {name: value for name, value in record.items() if name not in names}


def update_balancer(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "loadbalancers", request.ids[0])
    _check_state(record, ("ACTIVE",))
    asked = request.body("loadbalancer")
    status = {"provisioning_status": UPDATE, "updated_at": request.moment.seconds()}
    after = {**record, **asked, **status}
    state = finishing(state.put("loadbalancers", after), request, after["id"])
    return state, Reply(200, {"loadbalancer": after})


def _check_state(record: Record, allowed: tuple[str, ...]) -> None:
    status = record["provisioning_status"]
    if status not in allowed:
        raise refusal(409, f"Invalid state {status} of loadbalancer resource {record['id']}")


def delete_balancer(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "loadbalancers", request.ids[0])
    cascade = request.query.get("cascade", ["false"])[-1].lower() == "true"
    if (record["listeners"] or record["pools"]) and not cascade:
        raise invalid(f"Cannot delete Load Balancer {record['id']} - it has children")
    _check_state(record, ("ACTIVE", "ERROR"))
    state = state.change("loadbalancers", record["id"], {"provisioning_status": DELETE})
    for collection, one in children(state, record):
        state = state.change(collection, one["id"], {"provisioning_status": DELETE})
    return finishing(state, request, record["id"]), Reply(204)


def status_tree(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "loadbalancers", request.ids[0])
    listeners = [_listener_status(state, one["id"]) for one in record["listeners"]]
    tree = {**_status(record), "listeners": listeners}
    return state, Reply(200, {"statuses": {"loadbalancer": tree}})


def _status(record: Record) -> dict[str, Any]:
    names = ("id", "name", "operating_status", "provisioning_status")
    return {name: record[name] for name in names}


def _listener_status(state: State, id_: str) -> Record:
    listener = state.table("listeners")[id_]
    pool = listener["default_pool_id"]
    return {**_status(listener), "pools": [_pool_status(state, pool)] if pool else []}


def _pool_status(state: State, id_: str) -> Record:
    pool = state.table("pools")[id_]
    members = [state.table("members")[one["id"]] for one in pool["members"]]
    monitor = state.get("healthmonitors", pool.get("healthmonitor_id") or "")
    return {
        **_status(pool),
        "members": [_member_status(one) for one in members],
        "health_monitor": monitor and {**_status(monitor), "type": monitor["type"]},
    }


def _member_status(record: Record) -> Record:
    where = {"address": record["address"], "protocol_port": record["protocol_port"]}
    return {**_status(record), **where}


# Lists

PARENTS = {"loadbalancer_id": "loadbalancers", "pool_id": "pools"}
"""Filters for what belongs to another record, which refers to it."""


def listing(collection: str) -> Handler:
    def handler(state: State, request: Request) -> tuple[State, Reply]:
        items = selected(_candidates(state, request, collection), request)
        limit = state.settings.list_limit
        body = page_of(items, request, collection, limit)
        if body is None:
            marker = request.query["marker"][-1]
            raise refusal(400, f"Supplied pagination marker '{marker}' is not valid.")
        body.setdefault(f"{collection}_links", [])
        return state, Reply(200, body)

    return handler


def _candidates(state: State, request: Request, collection: str) -> Iterable[Record]:
    """Returns all records, or those of the load balancer or pool that the query names."""
    for name, parents in PARENTS.items():
        for value in request.query.get(name, ()):
            parent: dict[str, Any] = dict(state.get(parents, value) or {})
            ids: list[str] = [one["id"] for one in parent.get(collection, ())]
            if collection == "healthmonitors":
                ids = [parent.get("healthmonitor_id") or ""]
            return [state.table(collection)[id_] for id_ in ids if id_]
    return state.table(collection).values()


def showing(collection: str, key: str) -> Handler:
    def handler(state: State, request: Request) -> tuple[State, Reply]:
        return state, Reply(200, {key: found(state, collection, request.ids[0])})

    return handler


def versions(state: State, request: Request) -> tuple[State, Reply]:
    del request
    newest = state.settings.octavia_minor
    items = [
        {"id": f"v2.{minor}", "status": "CURRENT" if minor == newest else "SUPPORTED"}
        for minor in range(newest + 1)
    ]
    return state, Reply(200, {"versions": items})


def providers(state: State, request: Request) -> tuple[State, Reply]:
    del request
    items = [{"name": one, "description": one} for one in state.settings.lb_providers]
    return state, Reply(200, {"providers": items})


KEYS = {"loadbalancers": "loadbalancer", **SINGULAR}
LISTED = ("loadbalancers", "listeners", "pools", "healthmonitors")
ROUTES: Mapping[tuple[str, str], Handler] = {
    ("GET", "/"): versions,
    ("GET", f"{LBAAS}/providers"): providers,
    ("POST", f"{LBAAS}/loadbalancers"): create_balancer,
    ("PUT", f"{LBAAS}/loadbalancers/{{id}}"): update_balancer,
    ("DELETE", f"{LBAAS}/loadbalancers/{{id}}"): delete_balancer,
    ("GET", f"{LBAAS}/loadbalancers/{{id}}/status"): status_tree,
    ("GET", f"{LBAAS}/loadbalancers/{{id}}/statuses"): status_tree,
    **{("GET", f"{LBAAS}/{one}"): listing(one) for one in LISTED},
    **{("GET", f"{LBAAS}/{one}/{{id}}"): showing(one, KEYS[one]) for one in LISTED},
}
