"""Neutron: networks, subnets, ports, routers with extra routes, tags, extensions.

Floating IPs and security groups: see `neutron_security` and `neutron_floating`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

from pileus_lab.openstack.listing import page_of, selected, with_fields
from pileus_lab.openstack.state import (
    DEFAULT_GROUP,
    PROJECT,
    Fault,
    Handler,
    Record,
    Reply,
    Request,
    State,
)

SINGULAR = {
    "networks": "network",
    "subnets": "subnet",
    "ports": "port",
    "routers": "router",
    "floatingips": "floatingip",
    "security-groups": "security_group",
    "security-group-rules": "security_group_rule",
}
NAMES = {
    "networks": "Network",
    "subnets": "Subnet",
    "ports": "Port",
    "routers": "Router",
    "floatingips": "Floating IP",
    "security-groups": "Security group",
    "security-group-rules": "Security group rule",
}
"""As Neutron's messages name them."""
UNASSOCIATED: Record = dict.fromkeys((
    "port_id",
    "fixed_ip_address",
    "router_id",
    "port_details",
))
"""Fields of a floating IP that leads nowhere."""
MISSING = {
    "routers": "could not be found",
    "floatingips": "could not be found",
    "security-groups": "does not exist",
    "security-group-rules": "does not exist",
}
TYPES = {"floatingips": "FloatingIPNotFound", "security-group-rules": "SecurityGroupRuleNotFound"}


def refusal(status: int, kind: str, message: str) -> Fault:
    return Fault(status, {"NeutronError": {"type": kind, "message": message, "detail": ""}})


def found(state: State, collection: str, id_: str) -> Record:
    """Raises `Fault` if there is no such record."""
    record = state.get(collection, id_)
    if record is not None:
        return record
    name = NAMES[collection]
    kind = TYPES.get(collection) or f"{name.title().replace(' ', '')}NotFound"
    raise refusal(404, kind, f"{name} {id_} {MISSING.get(collection, 'could not be found.')}")


def made(request: Request, fields: Record) -> dict[str, Any]:
    """Returns a record with what all resources of Neutron have."""
    now = f"{request.moment.seconds()}Z"
    return {
        "id": request.moment.new_id(),
        "name": "",
        "description": "",
        "project_id": PROJECT,
        "tenant_id": PROJECT,
        "tags": [],
        "created_at": now,
        "updated_at": now,
        "revision_number": 0,
        **fields,
    }


def touched(record: Record, request: Request, changes: Record) -> Record:
    """Returns the record with changed fields and the next revision number."""
    now = f"{request.moment.seconds()}Z"
    revision = record["revision_number"] + 1
    return {**record, **changes, "updated_at": now, "revision_number": revision}


def check_quota(state: State, collection: str, adding: int = 1) -> None:
    limit = state.settings.quotas.get(collection, -1)
    if limit >= 0 and len(state.table(collection)) + adding > limit:
        kind = SINGULAR[collection]
        raise refusal(409, "OverQuota", f"Quota exceeded for resources: ['{kind}'].")


def check_revision(request: Request, record: Record) -> None:
    """Refuses a write whose `If-Match` names another revision."""
    asked = request.call.if_revision
    if asked is not None and asked != record["revision_number"]:
        raise refusal(
            412,
            "RevisionNumberConstraintFailed",
            f"Constrained to {asked}, but current revision is {record['revision_number']}",
        )


def listing(collection: str) -> Handler:
    def handler(state: State, request: Request) -> tuple[State, Reply]:
        table = state.table(collection)
        items = selected((table[key] for key in sorted(table)), request)
        key = collection.replace("-", "_")
        body = page_of(items, request, key, state.settings.list_limit, neutron=True)
        if body is None:
            found(state, collection, request.query["marker"][-1])
            raise refusal(404, "HTTPNotFound", "the marker is not in the list")
        return state, Reply(200, body)

    return handler


def showing(collection: str) -> Handler:
    def handler(state: State, request: Request) -> tuple[State, Reply]:
        record = found(state, collection, request.ids[0])
        shown = with_fields([record], request.query)[0]
        return state, Reply(200, {SINGULAR[collection]: shown})

    return handler


def answer(state: State, collection: str, record: Record, status: int) -> tuple[State, Reply]:
    return state.put(collection, record), Reply(status, {SINGULAR[collection]: record})


# Networks and subnets


def create_network(state: State, request: Request) -> tuple[State, Reply]:
    defaults: Record = {
        "admin_state_up": True,
        "status": "ACTIVE",
        "subnets": [],
        "shared": False,
        "mtu": 1450,
        "port_security_enabled": True,
        "router:external": False,
        "availability_zones": [],
        "availability_zone_hints": [],
        "ipv4_address_scope": None,
        "ipv6_address_scope": None,
        "dns_domain": "",
        "is_default": False,
        "qinq": False,
        "qos_policy_id": None,
        "vlan_transparent": False,
        "revision_number": 1,
    }
    record = made(request, {**defaults, **request.body("network")})
    return answer(state, "networks", record, 201)


def create_subnet(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("subnet")
    network = found(state, "networks", asked["network_id"])
    cidr = ip_network(asked["cidr"])
    pool = {"start": str(cidr[2]), "end": str(cidr[-2])}
    defaults: Record = {
        "ip_version": cidr.version,
        "gateway_ip": str(cidr[1]),
        "enable_dhcp": True,
        "allocation_pools": [pool],
        "dns_nameservers": [],
        "host_routes": [],
        "ipv6_address_mode": None,
        "ipv6_ra_mode": None,
        "subnetpool_id": None,
        "router:external": network["router:external"],
        "service_types": [],
    }
    record = made(request, {**defaults, **asked})
    network = {**network, "subnets": [*network["subnets"], record["id"]]}
    return answer(state.put("networks", network), "subnets", record, 201)


# Ports


def assigned(state: State, subnet: str, address: str = "") -> tuple[State, str]:
    """Returns an address of the subnet that no port has. Raises `Fault` if there is none."""
    record = found(state, "subnets", subnet)
    if address:
        _check_free(state, record, address)
        return state, address
    cidr = ip_network(record["cidr"])
    first, last = (int(ip_address(record["allocation_pools"][0][end])) for end in ("start", "end"))
    number = state.hosts.get(subnet, first + 7 - 1) + 1
    if number > last:
        number = _first_free(state, record, first, last)
    state = replace(state, hosts={**state.hosts, subnet: number})
    return state, str(type(cidr.network_address)(number))


def _first_free(state: State, subnet: Record, first: int, last: int) -> int:
    used = {int(ip_address(one)) for one in _used(state, subnet["id"])}
    number = next((one for one in range(first, last + 1) if one not in used), None)
    if number is None:
        message = f"No more IP addresses available on network {subnet['network_id']}."
        raise refusal(409, "IpAddressGenerationFailure", message)
    return number


def _used(state: State, subnet: str) -> Iterator[str]:
    for port in state.table("ports").values():
        yield from (one["ip_address"] for one in port["fixed_ips"] if one["subnet_id"] == subnet)


def _check_free(state: State, subnet: Record, address: str) -> None:
    if ip_address(address) not in ip_network(subnet["cidr"]):
        raise refusal(
            400,
            "InvalidIpForSubnet",
            f"IP address {address} is not a valid IP for the specified subnet.",
        )
    if address in set(_used(state, subnet["id"])):
        raise refusal(
            409,
            "IpAddressAlreadyAllocated",
            f"IP address {address} already allocated in subnet {subnet['id']}",
        )


def create_port(state: State, request: Request) -> tuple[State, Reply]:
    check_quota(state, "ports")
    state, port = new_port(state, request, request.body("port"))
    return state, Reply(201, {"port": port})


def new_port(state: State, request: Request, asked: Record) -> tuple[State, Record]:
    network = found(state, "networks", asked["network_id"])
    fixed = asked.get("fixed_ips")
    if fixed is None:
        fixed = [{"subnet_id": one} for one in _one_per_family(state, network)]
    addresses: list[Record] = []
    for one in fixed:
        subnet = one.get("subnet_id") or _subnet_of(state, network, one["ip_address"])
        state, address = assigned(state, subnet, one.get("ip_address", ""))
        addresses.append({"subnet_id": subnet, "ip_address": address})
    bits = request.moment.chance.getrandbits(24)
    mac = f"fa:16:3e:{bits >> 16 & 255:02x}:{bits >> 8 & 255:02x}:{bits & 255:02x}"
    defaults: Record = {
        "admin_state_up": True,
        "status": "ACTIVE" if asked.get("device_owner", "").startswith("compute:") else "DOWN",
        "mac_address": mac,
        "device_id": "",
        "device_owner": "",
        "allowed_address_pairs": [],
        "security_groups": [DEFAULT_GROUP],
        "port_security_enabled": True,
        "binding:vnic_type": "normal",
        "dns_name": "",
        "extra_dhcp_opts": [],
        "qos_network_policy_id": None,
        "qos_policy_id": None,
        "revision_number": 1,
    }
    record = made(request, {**defaults, **asked, "fixed_ips": addresses})
    return state.put("ports", record), record


def _one_per_family(state: State, network: Record) -> list[str]:
    chosen: dict[int, str] = {}
    for subnet in network["subnets"]:
        chosen.setdefault(state.table("subnets")[subnet]["ip_version"], subnet)
    return [chosen[version] for version in sorted(chosen)]


def _subnet_of(state: State, network: Record, address: str) -> str:
    for subnet in network["subnets"]:
        if ip_address(address) in ip_network(state.table("subnets")[subnet]["cidr"]):
            return subnet
    raise refusal(
        400,
        "InvalidIpForNetwork",
        f"IP address {address} is not a valid IP for any of the subnets on the specified network.",
    )


def update_port(state: State, request: Request) -> tuple[State, Reply]:
    port = found(state, "ports", request.ids[0])
    check_revision(request, port)
    asked = request.body("port")
    for group in asked.get("security_groups", ()):
        found(state, "security-groups", group)
    if "allowed_address_pairs" in asked:
        pairs = [
            {"mac_address": port["mac_address"], **one} for one in asked["allowed_address_pairs"]
        ]
        asked["allowed_address_pairs"] = pairs
    return answer(state, "ports", touched(port, request, asked), 200)


def delete_port(state: State, request: Request) -> tuple[State, Reply]:
    port = found(state, "ports", request.ids[0])
    if port["device_owner"] in {"network:router_interface", "network:router_gateway"}:
        raise refusal(
            409,
            "ServicePortInUse",
            f"Port {port['id']} cannot be deleted directly via the port API: has device owner "
            f"{port['device_owner']}.",
        )
    return without_port(state, port["id"]), Reply(204)


def without_port(state: State, id_: str) -> State:
    """Returns the state without a port; floating IPs lose it."""
    lost = [
        {**one, **UNASSOCIATED, "status": "DOWN"}
        for one in state.table("floatingips").values()
        if one["port_id"] == id_
    ]
    state = state.put("floatingips", *lost) if lost else state
    return state.without("ports", [id_])


# Routers


def create_router(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("router")
    gateway = asked.get("external_gateway_info")
    defaults: Record = {
        "admin_state_up": True,
        "status": "ACTIVE",
        "external_gateway_info": None,
        "routes": [],
        "availability_zones": [],
        "availability_zone_hints": [],
        "flavor_id": None,
        "revision_number": 1,
    }
    record = made(request, {**defaults, **asked})
    if gateway:
        record["external_gateway_info"] = {"enable_snat": True, "external_fixed_ips": [], **gateway}
    return answer(state, "routers", record, 201)


def update_router(state: State, request: Request) -> tuple[State, Reply]:
    router = found(state, "routers", request.ids[0])
    check_revision(request, router)
    asked = request.body("router")
    if "routes" in asked:
        _check_routes(state, router, asked["routes"])
    return answer(state, "routers", touched(router, request, asked), 200)


def add_interface(state: State, request: Request) -> tuple[State, Reply]:
    router = found(state, "routers", request.ids[0])
    subnet = found(state, "subnets", dict(request.call.body)["subnet_id"])
    fixed = {"subnet_id": subnet["id"], "ip_address": subnet["gateway_ip"]}
    port = {
        "network_id": subnet["network_id"],
        "fixed_ips": [fixed],
        "device_id": router["id"],
        "device_owner": "network:router_interface",
        "status": "ACTIVE",
        "security_groups": [],
    }
    state, port = new_port(state, request, port)
    state = state.put("routers", touched(router, request, {}))
    body = {
        "id": router["id"],
        "project_id": PROJECT,
        "port_id": port["id"],
        "network_id": subnet["network_id"],
        "subnet_id": subnet["id"],
        "subnet_ids": [subnet["id"]],
    }
    return state, Reply(200, body)


def connected(state: State, router: str) -> list[Record]:
    """Returns the subnets to which a router has an interface."""
    ports = [one for one in state.table("ports").values() if one["device_id"] == router]
    ids = {fixed["subnet_id"] for port in ports for fixed in port["fixed_ips"]}
    return [state.table("subnets")[one] for one in sorted(ids)]


def _check_routes(state: State, router: Record, routes: Sequence[Mapping[str, str]]) -> None:
    if len(routes) > state.settings.max_routes:
        raise refusal(
            400,
            "RoutesExhausted",
            f"Unable to complete operation for {router['id']}. The number of routes exceeds the "
            f"maximum {state.settings.max_routes}.",
        )
    near = [ip_network(one["cidr"]) for one in connected(state, router["id"])]
    for route in routes:
        hop = ip_address(route["nexthop"])
        if not any(hop in one for one in near):
            shown = [dict(one) for one in routes]
            raise refusal(
                400,
                "InvalidRoutes",
                f"Invalid format for routes: {shown}, the nexthop is not connected with router",
            )


def remove_interface(state: State, request: Request) -> tuple[State, Reply]:
    router = found(state, "routers", request.ids[0])
    subnet = dict(request.call.body)["subnet_id"]
    ports = [one for one in state.table("ports").values() if one["device_id"] == router["id"]]
    for port in ports:
        if any(one["subnet_id"] == subnet for one in port["fixed_ips"]):
            state = without_port(state, port["id"])
    return state, Reply(200, {"id": router["id"], "subnet_id": subnet})


def add_routes(state: State, request: Request) -> tuple[State, Reply]:
    router = found(state, "routers", request.ids[0])
    asked = [dict(one) for one in request.body("router")["routes"]]
    after = [*router["routes"], *(one for one in asked if one not in router["routes"])]
    _check_routes(state, router, after)
    return answer(state, "routers", touched(router, request, {"routes": after}), 200)


def remove_routes(state: State, request: Request) -> tuple[State, Reply]:
    router = found(state, "routers", request.ids[0])
    gone = [dict(one) for one in request.body("router")["routes"]]
    after = [one for one in router["routes"] if dict(one) not in gone]
    return answer(state, "routers", touched(router, request, {"routes": after}), 200)


# Tags, extensions


def replace_tags(state: State, request: Request) -> tuple[State, Reply]:
    collection, id_ = request.ids
    record = found(state, collection, id_)
    tags = list(dict(request.call.body)["tags"])
    state = state.put(collection, touched(record, request, {"tags": tags}))
    return state, Reply(200, {"tags": tags})


def add_tag(state: State, request: Request) -> tuple[State, Reply]:
    collection, id_, tag = request.ids
    record = found(state, collection, id_)
    tags = sorted({*record["tags"], tag})
    return state.put(collection, touched(record, request, {"tags": tags})), Reply(201)


def remove_tag(state: State, request: Request) -> tuple[State, Reply]:
    collection, id_, tag = request.ids
    record = found(state, collection, id_)
    if tag not in record["tags"]:
        raise refusal(404, "TagNotFound", f"Tag {tag} could not be found.")
    tags = [one for one in record["tags"] if one != tag]
    return state.put(collection, touched(record, request, {"tags": tags})), Reply(204)


def extensions(state: State, request: Request) -> tuple[State, Reply]:
    del request
    items = [{"alias": one, "name": one} for one in sorted(state.settings.extensions)]
    return state, Reply(200, {"extensions": items})


def extension(state: State, request: Request) -> tuple[State, Reply]:
    alias = request.ids[0]
    if alias not in state.settings.extensions:
        message = f"Extension with alias {alias} does not exist"
        raise refusal(404, "HTTPNotFound", message)
    return state, Reply(200, {"extension": {"alias": alias, "name": alias}})


ROUTES: Mapping[tuple[str, str], Handler] = {
    ("POST", "/v2.0/networks"): create_network,
    ("POST", "/v2.0/subnets"): create_subnet,
    ("POST", "/v2.0/ports"): create_port,
    ("PUT", "/v2.0/ports/{id}"): update_port,
    ("DELETE", "/v2.0/ports/{id}"): delete_port,
    ("POST", "/v2.0/routers"): create_router,
    ("PUT", "/v2.0/routers/{id}"): update_router,
    ("PUT", "/v2.0/routers/{id}/add_router_interface"): add_interface,
    ("PUT", "/v2.0/routers/{id}/remove_router_interface"): remove_interface,
    ("PUT", "/v2.0/routers/{id}/add_extraroutes"): add_routes,
    ("PUT", "/v2.0/routers/{id}/remove_extraroutes"): remove_routes,
    ("PUT", "/v2.0/{collection}/{id}/tags"): replace_tags,
    ("PUT", "/v2.0/{collection}/{id}/tags/{tag}"): add_tag,
    ("DELETE", "/v2.0/{collection}/{id}/tags/{tag}"): remove_tag,
    ("GET", "/v2.0/extensions"): extensions,
    ("GET", "/v2.0/extensions/{alias}"): extension,
    **{("GET", f"/v2.0/{one}"): listing(one) for one in SINGULAR},
    **{("GET", f"/v2.0/{one}/{{id}}"): showing(one) for one in SINGULAR},
}
