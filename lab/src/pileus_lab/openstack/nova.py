"""Nova: servers, flavors, key pairs and attached volumes."""

import re
from collections.abc import Mapping
from typing import Any

from pileus_lab.openstack import neutron
from pileus_lab.openstack.listing import page_of, selected
from pileus_lab.openstack.state import (
    PROJECT,
    Due,
    Fault,
    Handler,
    Record,
    Reply,
    Request,
    State,
)

FLAVORS: Mapping[str, Record] = {
    "1": {"id": "1", "name": "m1.small", "vcpus": 1, "ram": 2048, "disk": 20},
    "2": {"id": "2", "name": "m1.medium", "vcpus": 2, "ram": 4096, "disk": 40},
}
EMBEDDED_FLAVOR = (2, 47)
OLDEST, NEWEST_FIELD = (2, 1), (2, 63)
SINCE = {
    "locked": (2, 9),
    "description": (2, 19),
    "tags": (2, 26),
    "trusted_image_certificates": NEWEST_FIELD,
}
"""Fields of servers that older versions of the API do not have."""
CREATED_KEYPAIR = (2, 2)
ACTIONS_OF_DELETED = (2, 21)
RUNNING, SHUTDOWN = 1, 4
NAMES = {400: "badRequest", 403: "forbidden", 404: "itemNotFound", 409: "conflictingRequest"}


def refusal(status: int, message: str) -> Fault:
    return Fault(status, {NAMES[status]: {"code": status, "message": message}})


def version(request: Request) -> tuple[int, int]:
    major, _, minor = (request.call.microversion or "2.1").partition(".")
    return int(major), int(minor)


def found(state: State, id_: str) -> Record:
    record = state.get("servers", id_)
    if record is None:
        raise refusal(404, f"Instance {id_} could not be found.")
    return record


def shown(state: State, request: Request, server: Record) -> Record:
    """Returns the server as this version of the API has it."""
    asked = version(request)
    if asked >= NEWEST_FIELD:
        return server
    server = {name: value for name, value in server.items() if SINCE.get(name, OLDEST) <= asked}
    if asked >= EMBEDDED_FLAVOR:
        return server
    names = {one["name"]: one["id"] for one in flavors_of(state).values()}
    flavor = names.get(server["flavor"]["original_name"], "deleted")
    return {**server, "flavor": {"id": flavor, "links": []}}


def flavors_of(state: State) -> Mapping[str, Record]:
    return {**FLAVORS, **state.table("flavors")}


def list_servers(state: State, request: Request) -> tuple[State, Reply]:
    return _listed(state, request, brief=True)


def list_details(state: State, request: Request) -> tuple[State, Reply]:
    return _listed(state, request, brief=False)


def _listed(state: State, request: Request, *, brief: bool) -> tuple[State, Reply]:
    items = list(state.table("servers").values())[::-1]
    pattern = request.query.get("name", [""])[-1]
    if pattern:
        # Nova escapes "|" for MySQL.
        expression = re.compile(pattern.replace("|", r"\|"), re.IGNORECASE)
        items = [one for one in items if expression.search(one["name"])]
    status = {one.upper() for one in request.query.get("status", ())}
    items = [one for one in items if not status or one["status"] in status]
    body = page_of(items, request, "servers", state.settings.page_limit)
    if body is None:
        raise refusal(400, f"marker [{request.query['marker'][-1]}] not found")
    if brief:
        body["servers"] = [{name: one[name] for name in ("id", "name")} for one in body["servers"]]
    else:
        body["servers"] = [shown(state, request, one) for one in body["servers"]]
    return state, Reply(200, body)


def show_server(state: State, request: Request) -> tuple[State, Reply]:
    server = shown(state, request, found(state, request.ids[0]))
    return state, Reply(200, {"server": server})


def create_server(state: State, request: Request) -> tuple[State, Reply]:
    """Nova answers at once and starts the server later; here it runs with the next request."""
    asked = request.body("server")
    flavor = flavors_of(state).get(str(asked.get("flavorRef", "1")))
    if flavor is None:
        raise refusal(400, f"Flavor {asked['flavorRef']} could not be found.")
    id_ = asked.get("id") or request.moment.new_id()  # Nova chooses it; the laboratory may
    zone = asked.get("availability_zone", "nova")
    for one in asked.get("networks", ()):
        state = _with_port(state, request, id_, zone, one)
    record = _building(request, id_, asked, flavor)
    state = state.put("servers", record).later(Due(request.moment.now, "servers", id_))
    return state, Reply(202, {"server": {"id": id_, "links": []}})


def _building(request: Request, id_: str, asked: Record, flavor: Record) -> Record:
    now = f"{request.moment.seconds()}Z"
    newer = version(request) >= SINCE["description"]
    return {
        "id": id_,
        "name": asked["name"],
        "status": "BUILD",
        "tenant_id": PROJECT,
        "metadata": dict(asked.get("metadata", {})),
        "flavor": _embedded(flavor),
        "created": now,
        "updated": now,
        "addresses": {},
        "accessIPv4": asked.get("accessIPv4", ""),
        "accessIPv6": asked.get("accessIPv6", ""),
        "OS-DCF:diskConfig": "MANUAL",
        "config_drive": "",
        "description": asked.get("description", None if newer else asked["name"]),
        "locked": False,
        "progress": 0,
        "security_groups": [{"name": "default"}],
        "tags": [],
        "trusted_image_certificates": None,
        "key_name": asked.get("key_name"),
        "OS-EXT-AZ:availability_zone": asked.get("availability_zone", "nova"),
        "OS-EXT-STS:task_state": "spawning",
        "OS-EXT-STS:vm_state": "building",
        "OS-EXT-STS:power_state": 0,
        "os-extended-volumes:volumes_attached": [],
    }


def _embedded(flavor: Record) -> Record:
    return {
        "original_name": flavor["name"],
        "vcpus": flavor.get("vcpus", 1),
        "ram": flavor.get("ram", 2048),
        "disk": flavor.get("disk", 20),
        "ephemeral": 0,
        "swap": 0,
        "extra_specs": {},
    }


def _with_port(state: State, request: Request, server: str, zone: str, asked: Record) -> State:
    device = {"device_id": server, "device_owner": f"compute:{zone}", "status": "ACTIVE"}
    if asked.get("port"):
        port = neutron.found(state, "ports", asked["port"])
        return state.put("ports", {**port, **device})
    fields: dict[str, Any] = {"network_id": asked["uuid"], **device}
    if asked.get("fixed_ip"):
        fields["fixed_ips"] = [{"ip_address": asked["fixed_ip"]}]
    return neutron.new_port(state, request, fields)[0]


def started(state: State, due: Due) -> State:
    if state.get("servers", due.id) is None:
        return state
    return refreshed(_powered(state, due.id, is_on=True), due.id)


def _powered(state: State, id_: str, *, is_on: bool) -> State:
    changes = {
        "status": "ACTIVE" if is_on else "SHUTOFF",
        "OS-EXT-STS:task_state": None,
        "OS-EXT-STS:vm_state": "active" if is_on else "stopped",
        "OS-EXT-STS:power_state": RUNNING if is_on else SHUTDOWN,
    }
    return state.change("servers", id_, changes)


def refreshed(state: State, server: str) -> State:
    """Returns the state in which Nova knows the current addresses of a server."""
    ports = [one for one in state.table("ports").values() if one["device_id"] == server]
    floating = [one for one in state.table("floatingips").values() if one["port_id"]]
    addresses: dict[str, list[Record]] = {}
    for port in ports:
        name = state.table("networks")[port["network_id"]]["name"]
        listed = addresses.setdefault(name, [])
        listed += [_address(one["ip_address"], port, "fixed") for one in port["fixed_ips"]]
        listed += [
            _address(one["floating_ip_address"], port, "floating")
            for one in floating
            if one["port_id"] == port["id"]
        ]
    return state.change("servers", server, {"addresses": addresses})


def _address(address: str, port: Record, kind: str) -> Record:
    return {
        "version": 6 if ":" in address else 4,
        "addr": address,
        "OS-EXT-IPS:type": kind,
        "OS-EXT-IPS-MAC:mac_addr": port["mac_address"],
    }


def delete_server(state: State, request: Request) -> tuple[State, Reply]:
    """Its ports are deleted and its volumes detached."""
    server = found(state, request.ids[0])
    for port in [one for one in state.table("ports").values() if one["device_id"] == server["id"]]:
        state = neutron.without_port(state, port["id"])
    for one in server["os-extended-volumes:volumes_attached"]:
        state = state.change("volumes", one["id"], {"status": "available", "attachments": []})
    attachments = state.table("attachments").values()
    mine = [one["id"] for one in attachments if one["instance"] == server["id"]]
    state = state.without("attachments", mine)
    state = state.put("deleted-servers", {"id": server["id"]})
    return state.without("servers", [server["id"]]), Reply(204)


def list_actions(state: State, request: Request) -> tuple[State, Reply]:
    """Of deleted servers, too, since 2.21. Which actions there were is not modelled."""
    id_ = request.ids[0]
    if version(request) < ACTIONS_OF_DELETED or state.get("deleted-servers", id_) is None:
        found(state, id_)
    action = {"action": "create", "instance_uuid": id_, "project_id": PROJECT}
    return state, Reply(200, {"instanceActions": [action]})


def act(state: State, request: Request) -> tuple[State, Reply]:
    server = found(state, request.ids[0])
    action = next(iter(dict(request.call.body)), "")
    if action not in {"os-start", "os-stop"}:
        raise refusal(400, f"There is no such action: {action}")
    is_on = action == "os-start"
    if (server["OS-EXT-STS:vm_state"] == "active") == is_on:
        raise refusal(
            409,
            f"Cannot '{action.removeprefix('os-')}' instance {server['id']} while it is in "
            f"vm_state {server['OS-EXT-STS:vm_state']}",
        )
    return _powered(state, server["id"], is_on=is_on), Reply(202)


def list_flavors(state: State, request: Request) -> tuple[State, Reply]:
    items = [*flavors_of(state).values()]
    body = page_of(items, request, "flavors", state.settings.page_limit)
    if body is None:
        raise refusal(400, f"marker [{request.query['marker'][-1]}] not found")
    return state, Reply(200, body)


def show_flavor(state: State, request: Request) -> tuple[State, Reply]:
    flavor = flavors_of(state).get(request.ids[0])
    if flavor is None:
        raise refusal(404, f"Flavor {request.ids[0]} could not be found.")
    return state, Reply(200, {"flavor": flavor})


# Attached volumes


def list_attachments(state: State, request: Request) -> tuple[State, Reply]:
    server = found(state, request.ids[0])
    ids = [one["id"] for one in server["os-extended-volumes:volumes_attached"]]
    items = [_attachment(state, server["id"], one) for one in ids]
    return state, Reply(200, {"volumeAttachments": items})


def _attachment(state: State, server: str, volume: str) -> Record:
    attachments = state.table("attachments").values()
    device = next(one["device"] for one in attachments if one["volume_id"] == volume)
    return {"id": volume, "serverId": server, "volumeId": volume, "device": device}


def attach(state: State, request: Request) -> tuple[State, Reply]:
    server = found(state, request.ids[0])
    asked = request.body("volumeAttachment")
    volume = state.get("volumes", asked["volumeId"])
    if volume is None:
        raise refusal(404, f"Volume {asked['volumeId']} could not be found.")
    if volume["attachments"]:
        holders = ", ".join(one["server_id"] for one in volume["attachments"])
        message = f"volume {volume['id']} is already attached to instances: {holders}"
        raise refusal(400, f"Invalid volume: {message}")
    if volume["status"] != "available":
        raise refusal(
            400,
            f"Invalid volume: volume '{volume['id']}' status must be 'available'. Currently in "
            f"'{volume['status']}' status.",
        )
    listed = server["os-extended-volumes:volumes_attached"]
    device = _free_device(state, server["id"])
    attachment = {
        "id": request.moment.new_id(),
        "status": "reserved",
        "volume_id": volume["id"],
        "instance": server["id"],
        "device": device,
        "attached_at": request.moment.seconds(),
    }
    state = state.put("attachments", attachment)
    state = state.change("volumes", volume["id"], {"status": "reserved"})
    after = [*listed, {"id": volume["id"], "delete_on_termination": False}]
    state = state.change("servers", server["id"], {"os-extended-volumes:volumes_attached": after})
    at = request.moment.now + request.moment.at_work
    state = state.later(Due(at, "volumes", volume["id"], request.moment.doom))
    body = {"volumeAttachment": _attachment(state, server["id"], volume["id"])}
    return state, Reply(200, body)


def _free_device(state: State, server: str) -> str:
    attachments = state.table("attachments").values()
    used = {one["device"] for one in attachments if one["instance"] == server}
    letters = (f"/dev/vd{chr(letter)}" for letter in range(ord("b"), ord("z") + 1))
    device = next((one for one in letters if one not in used), None)
    if device is None:
        raise refusal(
            403,
            "The maximum allowed number of disk devices (26) to attach to a single instance has "
            "been exceeded.",
        )
    return device


def detach(state: State, request: Request) -> tuple[State, Reply]:
    server, volume = found(state, request.ids[0]), request.ids[1]
    listed = server["os-extended-volumes:volumes_attached"]
    if not any(one["id"] == volume for one in listed):
        message = f"Instance {server['id']} is not attached to volume {volume}"
        raise refusal(404, message)
    after = [one for one in listed if one["id"] != volume]
    state = state.change("servers", server["id"], {"os-extended-volumes:volumes_attached": after})
    state = state.change("volumes", volume, {"status": "detaching"})
    at = request.moment.now + request.moment.at_work
    return state.later(Due(at, "volumes", volume, request.moment.doom)), Reply(202)


# Key pairs


def list_keypairs(state: State, request: Request) -> tuple[State, Reply]:
    items = selected(state.table("keypairs").values(), request)
    return state, Reply(200, {"keypairs": [{"keypair": _keypair(one, request)} for one in items]})


def _keypair(record: Record, request: Request) -> Record:
    hidden = {"id"} if version(request) >= CREATED_KEYPAIR else {"id", "type"}
    return {name: value for name, value in record.items() if name not in hidden}


def create_keypair(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("keypair")
    if state.get("keypairs", asked["name"]) is not None:
        raise refusal(409, f"Key pair '{asked['name']}' already exists.")
    digest = f"{request.moment.chance.getrandbits(128):032x}"
    fingerprint = ":".join(digest[i : i + 2] for i in range(0, 32, 2))
    record = {"id": asked["name"], "fingerprint": fingerprint, "type": "ssh", **asked}
    status = 201 if version(request) >= CREATED_KEYPAIR else 200
    return state.put("keypairs", record), Reply(status, {"keypair": _keypair(record, request)})


def show_keypair(state: State, request: Request) -> tuple[State, Reply]:
    record = _found_keypair(state, request.ids[0])
    return state, Reply(200, {"keypair": _keypair(record, request)})


def _found_keypair(state: State, name: str) -> Record:
    record = state.get("keypairs", name)
    if record is None:
        raise refusal(404, f"Keypair {name} not found for user {PROJECT}")
    return record


def delete_keypair(state: State, request: Request) -> tuple[State, Reply]:
    _found_keypair(state, request.ids[0])
    status = 204 if version(request) >= CREATED_KEYPAIR else 202
    return state.without("keypairs", [request.ids[0]]), Reply(status)


ROUTES: Mapping[tuple[str, str], Handler] = {
    ("GET", "/servers"): list_servers,
    ("GET", "/servers/detail"): list_details,
    ("POST", "/servers"): create_server,
    ("GET", "/servers/{id}"): show_server,
    ("DELETE", "/servers/{id}"): delete_server,
    ("POST", "/servers/{id}/action"): act,
    ("GET", "/servers/{id}/os-instance-actions"): list_actions,
    ("GET", "/servers/{id}/os-volume_attachments"): list_attachments,
    ("POST", "/servers/{id}/os-volume_attachments"): attach,
    ("DELETE", "/servers/{id}/os-volume_attachments/{id}"): detach,
    ("GET", "/flavors"): list_flavors,
    ("GET", "/flavors/detail"): list_flavors,
    ("GET", "/flavors/{id}"): show_flavor,
    ("GET", "/os-keypairs"): list_keypairs,
    ("POST", "/os-keypairs"): create_keypair,
    ("GET", "/os-keypairs/{id}"): show_keypair,
    ("DELETE", "/os-keypairs/{id}"): delete_keypair,
}
