"""Neutron: security groups with their rules, and floating IPs."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Any, cast

from pileus_lab.openstack.neutron import (
    UNASSOCIATED,
    answer,
    assigned,
    check_quota,
    check_revision,
    connected,
    found,
    made,
    refusal,
    touched,
)
from pileus_lab.openstack.nova import refreshed
from pileus_lab.openstack.state import NONE, Handler, Record, Reply, Request, State

PORT_DETAILS = (
    "name",
    "network_id",
    "mac_address",
    "admin_state_up",
    "status",
    "device_id",
    "device_owner",
)
COMPARED = (
    "direction",
    "ethertype",
    "protocol",
    "port_range_min",
    "port_range_max",
    "remote_ip_prefix",
    "remote_group_id",
)
"""Fields in which no two rules of a group may agree."""


def create_group(state: State, request: Request) -> tuple[State, Reply]:
    check_quota(state, "security-groups")
    defaults: Record = {"stateful": True, "shared": False, "security_group_rules": []}
    group = made(request, {**defaults, **request.body("security_group"), "revision_number": 1})
    state = state.put("security-groups", group)
    for family in ("IPv4", "IPv6"):
        rule: dict[str, Any] = {"direction": "egress", "ethertype": family, "description": None}
        rule["security_group_id"] = group["id"]
        state, _ = _with_rule(state, request, rule)
    group = state.table("security-groups")[group["id"]]
    return answer(state, "security-groups", group, 201)


def update_group(state: State, request: Request) -> tuple[State, Reply]:
    group = found(state, "security-groups", request.ids[0])
    record = touched(group, request, request.body("security_group"))
    return answer(state, "security-groups", record, 200)


def delete_group(state: State, request: Request) -> tuple[State, Reply]:
    group = found(state, "security-groups", request.ids[0])
    used = any(group["id"] in one["security_groups"] for one in state.table("ports").values())
    if used:
        raise refusal(409, "SecurityGroupInUse", f"Security Group {group['id']} in use.")
    rules = [one["id"] for one in group["security_group_rules"]]
    state = state.without("security-group-rules", rules)
    return state.without("security-groups", [group["id"]]), Reply(204)


def create_rule(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.call.body
    if isinstance(asked, Mapping) and "security_group_rules" in asked:
        return _create_rules(state, request, cast("Mapping[str, list[Record]]", asked))
    check_quota(state, "security-group-rules")
    state, rule = _with_rule(state, request, request.body("security_group_rule"))
    return state, Reply(201, {"security_group_rule": rule})


def _create_rules(
    state: State, request: Request, asked: Mapping[str, list[Record]]
) -> tuple[State, Reply]:
    """All of them, or none: a `Fault` leaves the state as it was."""
    check_quota(state, "security-group-rules", len(asked["security_group_rules"]))
    rules: list[Record] = []
    for one in asked["security_group_rules"]:
        state, rule = _with_rule(state, request, one)
        rules.append(rule)
    return state, Reply(201, {"security_group_rules": rules})


def _with_rule(state: State, request: Request, asked: Record) -> tuple[State, Record]:
    group = found(state, "security-groups", asked["security_group_id"])
    defaults: dict[str, Any] = dict.fromkeys(COMPARED)
    defaults |= {"ethertype": "IPv4", "remote_address_group_id": None}
    defaults |= {"normalized_cidr": asked.get("remote_ip_prefix")}
    rule = made(request, {**defaults, **asked})
    rule.pop("name")
    rule.pop("tags")
    for one in group["security_group_rules"]:
        if all(one[name] == rule[name] for name in COMPARED):
            message = f"Security group rule already exists. Rule id is {one['id']}."
            raise refusal(409, "SecurityGroupRuleExists", message)
    shown: Record = {**rule, "tags": []}
    rules: list[Record] = [*group["security_group_rules"], shown]
    group = touched(group, request, {"security_group_rules": rules})
    return state.put("security-group-rules", rule).put("security-groups", group), rule


def delete_rule(state: State, request: Request) -> tuple[State, Reply]:
    rule = found(state, "security-group-rules", request.ids[0])
    group = state.table("security-groups")[rule["security_group_id"]]
    rules = [one for one in group["security_group_rules"] if one["id"] != rule["id"]]
    group = touched(group, request, {"security_group_rules": rules})
    state = state.without("security-group-rules", [rule["id"]])
    return state.put("security-groups", group), Reply(204)


# Floating IPs


def create_floating_ip(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("floatingip")
    if asked.get("floating_ip_address") and not state.settings.may_choose_addresses:
        raise refusal(
            403,
            "PolicyNotAuthorized",
            "(rule:create_floatingip and rule:create_floatingip:floating_ip_address) is "
            "disallowed by policy",
        )
    check_quota(state, "floatingips")
    network = found(state, "networks", asked["floating_network_id"])
    if not network["router:external"]:
        message = f"Network {network['id']} is not a valid external network"
        raise refusal(400, "BadRequest", f"Bad floatingip request: {message}.")
    state, address = _public_address(state, network, asked)
    defaults = {
        "port_id": None,
        "fixed_ip_address": None,
        "router_id": None,
        "status": "DOWN",
        "dns_name": "",
        "dns_domain": "",
        "port_details": None,
        "qos_policy_id": None,
    }
    record = made(request, {**defaults, **asked, "floating_ip_address": address})
    record.pop("name")
    record.pop("subnet_id", None)
    if record["port_id"]:
        record |= _association(state, record, record["port_id"], asked.get("fixed_ip_address"))
    state, reply = answer(state, "floatingips", record, 201)
    return _told_nova(state, record), reply


def _told_nova(state: State, *records: Record) -> State:
    """Returns the state in which Nova knows the floating IPs of servers, as Neutron tells it."""
    for record in records:
        port = state.get("ports", record["port_id"] or "")
        if port is not None and state.get("servers", port["device_id"]) is not None:
            state = refreshed(state, port["device_id"])
    return state


def _public_address(state: State, network: Record, asked: Record) -> tuple[State, str]:
    address = asked.get("floating_ip_address") or ""
    used = {one["floating_ip_address"] for one in state.table("floatingips").values()}
    if address in used:
        raise refusal(
            409,
            "IpAddressAlreadyAllocated",
            f"IP address {address} already allocated in subnet {network['subnets'][0]}",
        )
    subnet = asked.get("subnet_id") or _subnet_with(state, network, address)
    while True:
        state, found_ = assigned(state, subnet, address)
        if found_ not in used:
            return state, found_


def _subnet_with(state: State, network: Record, address: str) -> str:
    subnets = [state.table("subnets")[one] for one in network["subnets"]]
    fours = [one for one in subnets if one["ip_version"] == 4]  # noqa: PLR2004 -- IPv4
    if not fours:
        message = f"No more IP addresses available on network {network['id']}."
        raise refusal(409, "IpAddressGenerationFailure", message)
    if not address:
        return str(fours[0]["id"])
    fits = (one["id"] for one in fours if ip_address(address) in ip_network(one["cidr"]))
    return str(next(fits, fours[0]["id"]))


def _association(state: State, record: Record, port_id: str, fixed: str | None) -> Record:
    port = found(state, "ports", port_id)
    fours = [one for one in port["fixed_ips"] if ":" not in one["ip_address"]]
    chosen = next((one for one in fours if fixed in {None, one["ip_address"]}), None)
    if chosen is None:
        message = f"Bad floatingip request: Port {port_id} does not have fixed ip {fixed}."
        raise refusal(400, "BadRequest", message)
    router = _router_of(state, record["floating_network_id"], chosen["subnet_id"])
    if not router:
        raise refusal(
            404,
            "ExternalGatewayForFloatingIPNotFound",
            f"External network {record['floating_network_id']} is not reachable from subnet "
            f"{chosen['subnet_id']}.  Therefore, cannot associate Port {port_id} with a "
            "Floating IP.",
        )
    address = chosen["ip_address"]
    for one in state.table("floatingips").values():
        if (one["port_id"], one["fixed_ip_address"]) == (port_id, address) and one["id"] != record[
            "id"
        ]:
            raise refusal(
                409,
                "FloatingIPPortAlreadyAssociated",
                f"Cannot associate floating IP {record['floating_ip_address']} "
                f"({record['id']}) with port {port_id} using fixed IP {address}, as that fixed "
                f"IP already has a floating IP on external network "
                f"{record['floating_network_id']}.",
            )
    return {
        "port_id": port_id,
        "fixed_ip_address": address,
        "router_id": router,
        "port_details": {name: port[name] for name in PORT_DETAILS},
    }


def _router_of(state: State, external: str, subnet: str) -> str:
    for router in state.table("routers").values():
        gateway: Record = router["external_gateway_info"] or NONE
        if gateway.get("network_id") == external and any(
            one["id"] == subnet for one in connected(state, router["id"])
        ):
            return str(router["id"])
    return ""


def update_floating_ip(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "floatingips", request.ids[0])
    check_revision(request, record)
    asked = request.body("floatingip")
    changes = dict(asked)
    if asked.get("port_id"):
        fixed = asked.get("fixed_ip_address")
        changes |= _association(state, record, asked["port_id"], fixed)
    elif "port_id" in asked:
        changes |= UNASSOCIATED
    after = touched(record, request, changes)
    state, reply = answer(state, "floatingips", after, 200)
    return _told_nova(state, record, after), reply


def delete_floating_ip(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "floatingips", request.ids[0])
    check_revision(request, record)
    return _told_nova(state.without("floatingips", [record["id"]]), record), Reply(204)


ROUTES: Mapping[tuple[str, str], Handler] = {
    ("POST", "/v2.0/security-groups"): create_group,
    ("PUT", "/v2.0/security-groups/{id}"): update_group,
    ("DELETE", "/v2.0/security-groups/{id}"): delete_group,
    ("POST", "/v2.0/security-group-rules"): create_rule,
    ("DELETE", "/v2.0/security-group-rules/{id}"): delete_rule,
    ("POST", "/v2.0/floatingips"): create_floating_ip,
    ("PUT", "/v2.0/floatingips/{id}"): update_floating_ip,
    ("DELETE", "/v2.0/floatingips/{id}"): delete_floating_ip,
}
