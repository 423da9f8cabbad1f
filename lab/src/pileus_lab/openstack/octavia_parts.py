"""Octavia: listeners, pools, members and health monitors."""

from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

from pileus_lab.openstack.listing import page_of, selected
from pileus_lab.openstack.octavia_pending import (
    DELETE,
    UPDATE,
    Touched,
    balancer_of,
    begun,
    check_mutable,
    check_quota,
    found,
    invalid,
    linked,
    part,
    refusal,
    unsupported,
)
from pileus_lab.openstack.state import PROJECT, Fault, Handler, Record, Reply, Request, State

SINGULAR = {
    "listeners": "listener",
    "pools": "pool",
    "members": "member",
    "healthmonitors": "healthmonitor",
}
TRANSPORTS = {"UDP": "UDP", "SCTP": "SCTP"}
"""All other protocols are carried by TCP."""
PROXIES = ("PROXY", "PROXYV2")
POOLS: Mapping[str, tuple[str, ...]] = {
    "TCP": ("HTTP", "HTTPS", *PROXIES, "TCP"),
    "HTTP": ("HTTP", *PROXIES),
    "HTTPS": ("HTTPS", *PROXIES, "TCP"),
    "TERMINATED_HTTPS": ("HTTP", "HTTPS", *PROXIES, "TCP"),
    "UDP": ("UDP",),
    "SCTP": ("SCTP",),
}
"""Protocols of pools, by protocol of their listener."""
LISTENER: Record = {
    "description": "",
    "connection_limit": -1,
    "default_tls_container_ref": None,
    "sni_container_refs": [],
    "project_id": PROJECT,
    "tenant_id": PROJECT,
    "default_pool_id": None,
    "l7policies": [],
    "insert_headers": {},
    "timeout_client_data": 50000,
    "timeout_member_connect": 5000,
    "timeout_member_data": 50000,
    "timeout_tcp_inspect": 0,
    "client_ca_tls_container_ref": None,
    "client_authentication": "NONE",
    "client_crl_container_ref": None,
    "allowed_cidrs": None,
    "tls_ciphers": None,
    "tls_versions": None,
    "alpn_protocols": None,
    "hsts_max_age": None,
    "hsts_include_subdomains": False,
    "hsts_preload": False,
}
POOL: Record = {
    "description": "",
    "project_id": PROJECT,
    "tenant_id": PROJECT,
    "session_persistence": None,
    "members": [],
    "listeners": [],
    "tls_container_ref": None,
    "ca_tls_container_ref": None,
    "crl_container_ref": None,
    "tls_enabled": False,
    "tls_ciphers": None,
    "tls_versions": None,
    "alpn_protocols": None,
}
PERSISTENCE: Record = {
    "type": None,
    "cookie_name": None,
    "persistence_timeout": None,
    "persistence_granularity": None,
}
MEMBER: Record = {
    "weight": 1,
    "backup": False,
    "subnet_id": None,
    "project_id": PROJECT,
    "tenant_id": PROJECT,
    "monitor_address": None,
    "monitor_port": None,
    "vnic_type": "normal",
}
MONITOR: Record = {
    "max_retries_down": 3,
    "http_method": None,
    "url_path": None,
    "expected_codes": None,
    "project_id": PROJECT,
    "tenant_id": PROJECT,
    "http_version": None,
    "domain_name": None,
}
DATAGRAM_MONITORS = ("UDP-CONNECT", "SCTP", "TCP", "HTTP")
OVN_MONITORS = ("TCP", "UDP-CONNECT")


def _provider(state: State, balancer: str) -> str:
    return str(found(state, "loadbalancers", balancer)["provider"])


# Listeners


def new_listener(
    state: State, request: Request, balancer: str, asked: Record
) -> tuple[State, Record]:
    """Returns the state with a listener that is being created. Raises `Fault`."""
    check_quota(state, "listeners")
    fields = {k: v for k, v in asked.items() if k not in {"loadbalancer_id", "default_pool"}}
    record = part(request, {**LISTENER, **fields, "loadbalancers": [{"id": balancer}]})
    _check_port(state, balancer, record)
    _check_ranges(state, balancer, record)
    pool = record["default_pool_id"]
    if pool:
        _check_protocol(record["protocol"], found(state, "pools", pool)["protocol"])
        state = linked(state, "pools", pool, "listeners", record["id"])
    state = state.put("listeners", record)
    return linked(state, "loadbalancers", balancer, "listeners", record["id"]), record


def _check_port(state: State, balancer: str, record: Record) -> None:
    transport = TRANSPORTS.get(record["protocol"], "TCP")
    for ref in state.table("loadbalancers")[balancer]["listeners"]:
        one = state.table("listeners")[ref["id"]]
        same = TRANSPORTS.get(one["protocol"], "TCP") == transport
        if same and one["protocol_port"] == record["protocol_port"]:
            raise refusal(
                409,
                "Another Listener on this Load Balancer is already using protocol "
                f"{one['protocol']} and protocol_port {record['protocol_port']}",
            )


def _check_ranges(state: State, balancer: str, record: Record) -> None:
    ranges = record["allowed_cidrs"]
    if not ranges:
        return
    if _provider(state, balancer) == "ovn":
        raise unsupported("ovn", "OVN provider does not support allowed_cidrs option")
    owner = state.table("loadbalancers")[balancer]
    extra = [one["ip_address"] for one in owner["additional_vips"]]
    addresses = [owner["vip_address"], *extra]
    families = {6 if ":" in one else 4 for one in addresses}
    for cidr in ranges:
        if ip_network(cidr).version not in families:
            raise invalid(
                f"CIDR {cidr} IP version incompatible with all VIPs {addresses} IP version."
            )


def _check_protocol(listener: str, pool: str) -> None:
    if pool not in POOLS.get(listener, ()):
        raise invalid(
            f"The pool protocol '{pool}' is invalid while the listener protocol is '{listener}'."
        )


def create_listener(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("listener")
    balancer = asked["loadbalancer_id"]
    found(state, "loadbalancers", balancer)
    check_quota(state, "listeners")
    if asked.get("default_pool_id"):
        pool = found(state, "pools", asked["default_pool_id"])
        _check_protocol(asked["protocol"], pool["protocol"])
    check_mutable(state, balancer)
    state, record = new_listener(state, request, balancer, asked)
    return begun(state, request, balancer, ()), Reply(201, {"listener": record})


def update_listener(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "listeners", request.ids[0])
    balancer = balancer_of(record)
    asked = request.body("listener")
    after = {**record, **asked}
    _check_ranges(state, balancer, after)
    if asked.get("default_pool_id"):
        pool = found(state, "pools", asked["default_pool_id"])
        _check_protocol(record["protocol"], pool["protocol"])
    check_mutable(state, balancer)
    if "default_pool_id" in asked:
        state = _with_pool(state, record, asked["default_pool_id"])
    return _updated(state, request, "listeners", balancer, after)


def _with_pool(state: State, listener: Record, pool: str | None) -> State:
    before = listener["default_pool_id"]
    if before == pool:
        return state
    if before:
        left = [o for o in state.table("pools")[before]["listeners"] if o["id"] != listener["id"]]
        state = state.change("pools", before, {"listeners": left})
    return linked(state, "pools", pool, "listeners", listener["id"]) if pool else state


def _updated(
    state: State, request: Request, collection: str, balancer: str, after: Record
) -> tuple[State, Reply]:
    after = {**after, "updated_at": request.moment.seconds(), "provisioning_status": UPDATE}
    state = begun(state.put(collection, after), request, balancer, ())
    return state, Reply(200, {SINGULAR[collection]: after})


def deleting(collection: str) -> Handler:
    def handler(state: State, request: Request) -> tuple[State, Reply]:
        id_ = request.ids[-1]
        record = found(state, collection, id_)
        balancer = _balancer(state, request, collection, record)
        check_mutable(state, balancer, _parent(state, request, collection, record))
        return begun(state, request, balancer, [(collection, id_, DELETE)]), Reply(204)

    return handler


def _parent(state: State, request: Request, collection: str, record: Record) -> Record | None:
    """Returns the pool of a member or monitor."""
    match collection:
        case "members":
            return _pool(state, request)
        case "healthmonitors":
            return state.table("pools")[record["pools"][0]["id"]]
        case _:
            return None


def _balancer(state: State, request: Request, collection: str, record: Record) -> str:
    return balancer_of(_parent(state, request, collection, record) or record)


# Pools


def new_pool(state: State, request: Request, balancer: str, asked: Record) -> tuple[State, Record]:
    """Returns the state with a pool, its members and monitor. Raises `Fault`."""
    check_quota(state, "pools")
    _check_algorithm(state, balancer, asked)
    ignored = {"members", "healthmonitor", "loadbalancer_id", "listener_id"}
    fields = {key: value for key, value in asked.items() if key not in ignored}
    if fields.get("session_persistence"):
        fields["session_persistence"] = {**PERSISTENCE, **fields["session_persistence"]}
    record = part(request, {**POOL, **fields, "loadbalancers": [{"id": balancer}]})
    state = state.put("pools", record)
    state = linked(state, "loadbalancers", balancer, "pools", record["id"])
    monitored = bool(asked.get("healthmonitor"))
    for one in asked.get("members") or ():
        state, _ = new_member(state, request, record["id"], one, monitored=monitored)
    if asked.get("healthmonitor"):
        state, _ = new_monitor(state, request, record["id"], asked["healthmonitor"])
    return state, state.table("pools")[record["id"]]


def _check_algorithm(state: State, balancer: str, asked: Record) -> None:
    if _provider(state, balancer) != "ovn":
        return
    method, protocol = asked["lb_algorithm"], asked["protocol"]
    if method != "SOURCE_IP_PORT":
        raise unsupported(
            "ovn",
            f"OVN provider does not support {method} algorithm. It only supports SOURCE_IP_PORT",
        )
    if protocol not in {"TCP", "UDP", "SCTP"}:
        raise unsupported("ovn", f"OVN provider does not support {protocol} protocol")


def create_pool(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("pool")
    listener = asked.get("listener_id")
    balancer = asked.get("loadbalancer_id")
    if not balancer:
        if not listener:
            raise invalid("Must provide at least one of: loadbalancer_id, listener_id")
        balancer = balancer_of(found(state, "listeners", listener))
    found(state, "loadbalancers", balancer)
    if listener:
        record = found(state, "listeners", listener)
        _check_protocol(record["protocol"], asked["protocol"])
        if record["default_pool_id"]:
            raise refusal(409, "This listener already has a default pool")
    check_mutable(state, balancer)
    state, pool = new_pool(state, request, balancer, asked)
    touched: list[Touched] = []
    if listener:
        state = linked(state, "pools", pool["id"], "listeners", listener)
        state = state.change("listeners", listener, {"default_pool_id": pool["id"]})
        touched = [("listeners", listener, UPDATE)]
    state = begun(state, request, balancer, touched)
    return state, Reply(201, {"pool": state.table("pools")[pool["id"]]})


def update_pool(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "pools", request.ids[0])
    balancer = balancer_of(record)
    asked = request.body("pool")
    if "lb_algorithm" in asked:
        _check_algorithm(state, balancer, {**record, **asked})
    if asked.get("session_persistence"):
        asked["session_persistence"] = {**PERSISTENCE, **asked["session_persistence"]}
    check_mutable(state, balancer)
    return _updated(state, request, "pools", balancer, {**record, **asked})


# Members


def new_member(
    state: State, request: Request, pool: str, asked: Record, *, monitored: bool
) -> tuple[State, Record]:
    subnet = asked.get("subnet_id")
    if subnet and state.get("subnets", subnet) is None:
        status = 404 if request.call.method == "PUT" else 400
        raise refusal(status, f"Subnet {subnet} not found.")
    if any(_key(one) == _key(asked) for one in _members(state, state.table("pools")[pool])):
        raise refusal(409, "Already an entity with that specified id.")
    status = {"operating_status": "OFFLINE" if monitored else "NO_MONITOR"}
    record = part(request, {**MEMBER, **status, **asked})
    state = state.put("members", record)
    return linked(state, "pools", pool, "members", record["id"]), record


def _members(state: State, pool: Record) -> list[Record]:
    return [state.table("members")[one["id"]] for one in pool["members"]]


def list_members(state: State, request: Request) -> tuple[State, Reply]:
    items = selected(_members(state, _pool(state, request)), request)
    body = page_of(items, request, "members", state.settings.list_limit)
    if body is None:
        marker = request.query["marker"][-1]
        raise refusal(400, f"Supplied pagination marker '{marker}' is not valid.")
    body.setdefault("members_links", [])
    return state, Reply(200, body)


def _pool(state: State, request: Request) -> Record:
    """Returns the pool in the path. Octavia answers in another form if there is none."""
    pool = state.get("pools", request.ids[0])
    if pool is None:
        text = f"Pool {request.ids[0]} not found."
        raise Fault(404, {"code": 404, "title": "Bad Request", "description": text})
    return pool


def create_member(state: State, request: Request) -> tuple[State, Reply]:
    pool = _pool(state, request)
    asked = request.body("member")
    check_quota(state, "members")
    check_mutable(state, balancer_of(pool), pool)
    for one in _members(state, pool):
        if _key(one) == _key(asked):
            raise refusal(
                409,
                f"Another member on this pool is already using ip {asked['address']} on "
                f"protocol_port {asked['protocol_port']}",
            )
    monitored = bool(pool.get("healthmonitor_id"))
    state, record = new_member(state, request, pool["id"], asked, monitored=monitored)
    state = begun(state, request, balancer_of(pool), _around(pool))
    return state, Reply(201, {"member": record})


def _around(pool: Record) -> list[Touched]:
    """What is pending while members of a pool change: the pool and its listeners."""
    listeners = [("listeners", one["id"], UPDATE) for one in pool["listeners"]]
    return [("pools", pool["id"], UPDATE), *listeners]


def _key(member: Record) -> tuple[str, int]:
    return member["address"], member["protocol_port"]


def update_member(state: State, request: Request) -> tuple[State, Reply]:
    pool = _pool(state, request)
    record = found(state, "members", request.ids[1])
    check_mutable(state, balancer_of(pool), pool)
    after = {**record, **request.body("member")}
    return _updated(state, request, "members", balancer_of(pool), after)


def replace_members(state: State, request: Request) -> tuple[State, Reply]:
    """The batch: after it, the pool has exactly these members, unless it only adds some."""
    pool = _pool(state, request)
    balancer = balancer_of(pool)
    asked: list[dict[str, Any]] = [dict(one) for one in dict(request.call.body)["members"]]
    adds_only = request.query.get("additive_only", ["false"])[-1].lower() == "true"
    check_mutable(state, balancer, pool)
    before = {_key(one): one for one in _members(state, pool)}
    kept = [_key(one) for one in asked if _key(one) in before]
    if len(kept) != len(set(kept)):
        raise invalid("Member must be updated only once in the same request.")
    gone = [] if adds_only else [before[key] for key in before if key not in set(kept)]
    if not asked and not gone:
        return state, Reply(202)
    check_quota(state, "members", len(asked) - len(kept) - len(gone))
    for one in asked:
        if _key(one) in before:
            defaults = {"weight": 1, "backup": False, "admin_state_up": True}
            status = {"provisioning_status": UPDATE, "updated_at": request.moment.seconds()}
            old = before[_key(one)]
            after = {**old, **defaults, **one, **status, "subnet_id": old["subnet_id"]}
            state = state.put("members", after)
        else:
            monitored = bool(pool.get("healthmonitor_id"))
            state, _ = new_member(state, request, pool["id"], one, monitored=monitored)
    touched = [*_around(pool), *(("members", one["id"], DELETE) for one in gone)]
    return begun(state, request, balancer, touched), Reply(202)


# Health monitors


def new_monitor(state: State, request: Request, pool: str, asked: Record) -> tuple[State, Record]:
    record = found(state, "pools", pool)
    kind = asked["type"]
    if _provider(state, balancer_of(record)) == "ovn" and kind not in OVN_MONITORS:
        raise unsupported(
            "ovn",
            f"OVN provider does not support {kind} health monitor type. Supported types: "
            f"{', '.join(OVN_MONITORS)}",
        )
    if record.get("healthmonitor_id"):
        raise refusal(409, "This pool already has a health monitor")
    http: Record = {}
    if kind in {"HTTP", "HTTPS"}:
        http = {"http_method": "GET", "url_path": "/", "expected_codes": "200"}
    fields = {key: value for key, value in asked.items() if key != "pool_id"}
    monitor = part(request, {**MONITOR, **http, **fields, "pools": [{"id": pool}]})
    state = state.put("healthmonitors", monitor)
    return state.change("pools", pool, {"healthmonitor_id": monitor["id"]}), monitor


def _check_monitor(kind: str, protocol: str) -> None:
    if protocol not in TRANSPORTS and kind in {"UDP-CONNECT", "SCTP"}:
        raise invalid(f"The {kind} type is only supported for pools of type UDP/SCTP.")
    if protocol in TRANSPORTS and kind not in DATAGRAM_MONITORS:
        raise invalid(
            f"The associated pool protocol is {protocol}, so only a "
            f"{'/'.join(DATAGRAM_MONITORS)} health monitor is supported."
        )


def create_monitor(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("healthmonitor")
    pool = found(state, "pools", asked["pool_id"])
    _check_monitor(asked["type"], pool["protocol"])
    check_quota(state, "healthmonitors")
    check_mutable(state, balancer_of(pool), pool)
    state, record = new_monitor(state, request, pool["id"], asked)
    state = begun(state, request, balancer_of(pool), _around(pool))
    return state, Reply(201, {"healthmonitor": record})


def update_monitor(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "healthmonitors", request.ids[0])
    balancer = _balancer(state, request, "healthmonitors", record)
    check_mutable(state, balancer, _parent(state, request, "healthmonitors", record))
    after = {**record, **request.body("healthmonitor")}
    return _updated(state, request, "healthmonitors", balancer, after)


def show_member(state: State, request: Request) -> tuple[State, Reply]:
    _pool(state, request)
    return state, Reply(200, {"member": found(state, "members", request.ids[1])})


LBAAS = "/v2.0/lbaas"
ROUTES: Mapping[tuple[str, str], Handler] = {
    ("POST", f"{LBAAS}/listeners"): create_listener,
    ("PUT", f"{LBAAS}/listeners/{{id}}"): update_listener,
    ("DELETE", f"{LBAAS}/listeners/{{id}}"): deleting("listeners"),
    ("POST", f"{LBAAS}/pools"): create_pool,
    ("PUT", f"{LBAAS}/pools/{{id}}"): update_pool,
    ("DELETE", f"{LBAAS}/pools/{{id}}"): deleting("pools"),
    ("GET", f"{LBAAS}/pools/{{id}}/members"): list_members,
    ("POST", f"{LBAAS}/pools/{{id}}/members"): create_member,
    ("PUT", f"{LBAAS}/pools/{{id}}/members"): replace_members,
    ("GET", f"{LBAAS}/pools/{{id}}/members/{{id}}"): show_member,
    ("PUT", f"{LBAAS}/pools/{{id}}/members/{{id}}"): update_member,
    ("DELETE", f"{LBAAS}/pools/{{id}}/members/{{id}}"): deleting("members"),
    ("POST", f"{LBAAS}/healthmonitors"): create_monitor,
    ("PUT", f"{LBAAS}/healthmonitors/{{id}}"): update_monitor,
    ("DELETE", f"{LBAAS}/healthmonitors/{{id}}"): deleting("healthmonitors"),
}
