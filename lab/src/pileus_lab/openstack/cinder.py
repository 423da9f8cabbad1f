"""Cinder: volumes and snapshots."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pileus_lab.openstack.listing import page_of, selected
from pileus_lab.openstack.nova import refusal
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

SINGULAR = {"volumes": "volume", "snapshots": "snapshot"}
EXTENDS_ATTACHED = (3, 42)
AFTER: Mapping[str, tuple[str, str]] = {
    "creating": ("available", "error"),
    "reserved": ("in-use", "error_attaching"),
    "detaching": ("available", "error_detaching"),
    "deleting": ("", "error_deleting"),
    "extending": ("available", "error_extending"),
}
"""States in which a volume or snapshot works, and what they become: done or failed."""


def found(state: State, collection: str, id_: str) -> Record:
    record = state.get(collection, id_)
    if record is None:
        name = SINGULAR[collection].title()
        raise refusal(404, f"{name} {id_} could not be found.")
    return record


def over_limit(message: str) -> Fault:
    body = {"overLimit": {"code": 413, "message": message, "retryAfter": "0"}}
    return Fault(413, body, {"Retry-After": "0"})


def check_quota(state: State, collection: str) -> None:
    limit = state.settings.quotas.get(collection, -1)
    if limit >= 0 and len(state.table(collection)) + 1 > limit:
        kind = SINGULAR[collection].title()
        raise over_limit(
            f"{kind}LimitExceeded: Maximum number of {collection} allowed ({limit}) exceeded for "
            f"quota '{collection}'."
        )


def check_space(state: State, more: int) -> None:
    limit, used = state.settings.quotas.get("gigabytes", -1), gigabytes(state)
    if 0 <= limit < used + more:
        raise over_limit(
            "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed "
            f"gigabytes quota. Requested {more}G, quota is {limit}G and {used}G has been consumed."
        )


def gigabytes(state: State) -> int:
    """Returns what counts against the quota: volumes and snapshots."""
    return sum(one["size"] for name in SINGULAR for one in state.table(name).values())


def show_limits(state: State, _: Request) -> tuple[State, Reply]:
    quotas = state.settings.quotas
    absolute = {
        "maxTotalVolumes": quotas.get("volumes", -1),
        "maxTotalSnapshots": quotas.get("snapshots", -1),
        "maxTotalVolumeGigabytes": quotas.get("gigabytes", -1),
        "maxTotalBackups": -1,
        "maxTotalBackupGigabytes": -1,
        "totalVolumesUsed": len(state.table("volumes")),
        "totalSnapshotsUsed": len(state.table("snapshots")),
        "totalGigabytesUsed": gigabytes(state),
        "totalBackupsUsed": 0,
        "totalBackupGigabytesUsed": 0,
    }
    return state, Reply(200, {"limits": {"rate": [], "absolute": absolute}})


def done(state: State, due: Due) -> State:
    """Returns the state after Cinder has finished with a volume or snapshot."""
    record = state.get(due.collection, due.id)
    if record is None or record["status"] not in AFTER:
        return state
    status = AFTER[record["status"]][1 if due.failure else 0]
    if not status:
        return state.without(due.collection, [due.id])
    if due.collection == "volumes":
        return _volume_done(state, record, status, due.size)
    return state.put(due.collection, {**record, "status": status})


def _volume_done(state: State, record: Record, status: str, size: int) -> State:
    """An attachment is part of the volume when it is complete; a new size is shown then."""
    mine = [one for one in state.table("attachments").values() if one["volume_id"] == record["id"]]
    if record["status"] == "detaching" and status == "available":
        state = state.without("attachments", [one["id"] for one in mine])
        mine = []
    if record["status"] == "extending" and status == "available":
        record, status = {**record, "size": size}, "in-use" if mine else status
    for one in mine if status == "in-use" else ():
        state = state.change("attachments", one["id"], {"status": "attached"})
    attached = [_attached(one) for one in mine]
    return state.put("volumes", {**record, "status": status, "attachments": attached})


def _attached(attachment: Record) -> Record:
    return {
        "id": attachment["volume_id"],
        "attachment_id": attachment["id"],
        "volume_id": attachment["volume_id"],
        "server_id": attachment["instance"],
        "device": attachment["device"],
        "attached_at": attachment["attached_at"],
        "host_name": None,
    }


def working(state: State, request: Request, collection: str, id_: str, *, size: int = 0) -> State:
    moment = request.moment
    return state.later(Due(moment.now + moment.at_work, collection, id_, moment.doom, size))


def listing(collection: str) -> Handler:
    def handler(state: State, request: Request) -> tuple[State, Reply]:
        items = list(state.table(collection).values())[::-1]
        for text in request.query.get("metadata", ()):
            pairs = cast("dict[str, str]", ast.literal_eval(text)).items()
            items = [one for one in items if pairs <= one["metadata"].items()]
        plain = tuple(one for one in request.call.query if one[0] != "metadata")
        items = selected(items, _with_query(request, plain))
        body = page_of(items, request, collection, state.settings.page_limit)
        if body is None:
            marker = request.query["marker"][-1]
            raise refusal(404, f"{SINGULAR[collection].title()} {marker} could not be found.")
        return state, Reply(200, body)

    return handler


def _with_query(request: Request, query: tuple[tuple[str, str], ...]) -> Request:
    return replace(request, call=replace(request.call, query=query))


def showing(collection: str) -> Handler:
    def handler(state: State, request: Request) -> tuple[State, Reply]:
        record = found(state, collection, request.ids[0])
        return state, Reply(200, {SINGULAR[collection]: record})

    return handler


def create_volume(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("volume")
    check_quota(state, "volumes")
    _check_place_and_type(state, asked)
    _check_source(state, asked)
    check_space(state, asked["size"])
    defaults: dict[str, Any] = {
        "id": request.moment.new_id(),
        "name": None,
        "description": None,
        "status": "creating",
        "availability_zone": state.settings.volume_zones[0],
        "volume_type": state.settings.volume_types[0],
        "consistencygroup_id": None,
        "group_id": None,
        "replication_status": None,
        "snapshot_id": None,
        "source_volid": None,
        "metadata": {},
        "attachments": [],
        "bootable": "false",
        "encrypted": False,
        "multiattach": False,
        "created_at": request.moment.seconds(),
        "updated_at": None,
    }
    given = {key: value for key, value in asked.items() if value is not None}
    record = {**defaults, **given}
    stored = {**record, "os-vol-tenant-attr:tenant_id": PROJECT}
    state = working(state.put("volumes", stored), request, "volumes", record["id"])
    return state, Reply(202, {"volume": record})


def _check_place_and_type(state: State, asked: Record) -> None:
    zone, kind = asked.get("availability_zone"), asked.get("volume_type")
    if zone and zone not in state.settings.volume_zones:
        raise refusal(400, f"Availability zone '{zone}' is invalid.")
    if kind and kind not in state.settings.volume_types:
        raise refusal(404, f"Volume type with name {kind} could not be found.")


def _check_source(state: State, asked: dict[str, Any]) -> None:
    """Also sets the size of a volume that has none: that of its source."""
    for key, collection in (("snapshot_id", "snapshots"), ("source_volid", "volumes")):
        if not asked.get(key):
            continue
        source = found(state, collection, asked[key])
        asked["size"] = asked.get("size") or source["size"]
        if asked["size"] < source["size"]:
            raise refusal(
                400,
                f"Invalid input received: Volume size '{asked['size']}'GB cannot be smaller than "
                f"original volume size  {source['size']}GB. They must be >= original volume size.",
            )


def delete_volume(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "volumes", request.ids[0])
    has_snapshots = any(
        one["volume_id"] == record["id"] for one in state.table("snapshots").values()
    )
    if record["status"] not in {"available", "error"} or has_snapshots:
        raise refusal(
            400,
            "Invalid volume: Volume status must be available or error or error_restoring or "
            "error_extending or error_managing and must not be migrating, attached, belong to a "
            "group, have snapshots, awaiting a transfer, or be disassociated from snapshots after "
            "volume transfer.",
        )
    state = state.change("volumes", record["id"], {"status": "deleting"})
    return working(state, request, "volumes", record["id"]), Reply(202)


def update_volume(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "volumes", request.ids[0])
    after = {**record, **request.body("volume"), "updated_at": request.moment.seconds()}
    return state.put("volumes", after), Reply(200, {"volume": after})


def set_metadata(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "volumes", request.ids[0])
    asked = request.body("metadata")
    after = asked if request.call.method == "PUT" else {**record["metadata"], **asked}
    state = state.change("volumes", record["id"], {"metadata": after})
    return state, Reply(200, {"metadata": after})


def act(state: State, request: Request) -> tuple[State, Reply]:
    """Only `os-extend` is modelled."""
    record = found(state, "volumes", request.ids[0])
    asked = request.body("os-extend")
    major, _, minor = (request.call.microversion or "3.0").partition(".")
    allowed = {"available"}
    if (int(major), int(minor)) >= EXTENDS_ATTACHED:
        allowed |= {"in-use"}
    if record["status"] not in allowed:
        raise refusal(
            400,
            f"Invalid volume: Volume {record['id']} status must be "
            f"'{' or '.join(sorted(allowed))}' to extend, currently {record['status']}.",
        )
    if asked["new_size"] <= record["size"]:
        raise refusal(
            400,
            f"Invalid input received: New size for extend must be greater than current size. "
            f"(current: {record['size']}, extended: {asked['new_size']}).",
        )
    state = state.change("volumes", record["id"], {"status": "extending"})
    state = working(state, request, "volumes", record["id"], size=asked["new_size"])
    return state, Reply(202)


def create_snapshot(state: State, request: Request) -> tuple[State, Reply]:
    asked = request.body("snapshot")
    check_quota(state, "snapshots")
    volume = found(state, "volumes", asked["volume_id"])
    if volume["status"] not in {"available", "in-use"} or (
        volume["status"] == "in-use" and not asked.get("force")
    ):
        raise refusal(
            400,
            f"Invalid volume: Volume {volume['id']} status must be available, but current status "
            f"is: {volume['status']}.",
        )
    record: dict[str, Any] = {
        "id": request.moment.new_id(),
        "name": None,
        "description": None,
        "status": "creating",
        "size": volume["size"],
        "group_snapshot_id": None,
        "metadata": {},
        "created_at": request.moment.seconds(),
        "updated_at": None,
        **{key: value for key, value in asked.items() if key != "force"},
    }
    state = working(state.put("snapshots", record), request, "snapshots", record["id"])
    return state, Reply(202, {"snapshot": record})


def delete_snapshot(state: State, request: Request) -> tuple[State, Reply]:
    record = found(state, "snapshots", request.ids[0])
    if record["status"] not in {"available", "error"}:
        message = "Invalid snapshot: Snapshot status must be available or error."
        raise refusal(400, message)
    state = state.change("snapshots", record["id"], {"status": "deleting"})
    return working(state, request, "snapshots", record["id"]), Reply(202)


def list_attachments(state: State, request: Request) -> tuple[State, Reply]:
    names = ("id", "status", "instance", "volume_id")
    items = selected(state.table("attachments").values(), request)
    body = page_of(items, request, "attachments", state.settings.page_limit)
    if body is None:
        raise refusal(404, f"Attachment {request.query['marker'][-1]} could not be found.")
    body["attachments"] = [{name: one[name] for name in names} for one in body["attachments"]]
    return state, Reply(200, body)


def delete_attachment(state: State, request: Request) -> tuple[State, Reply]:
    """Cinder asks Nova whether the server still uses the volume."""
    one = found(state, "attachments", request.ids[0])
    server = state.get("servers", one["instance"] or "")
    used: list[Record] = server["os-extended-volumes:volumes_attached"] if server else []
    if any(each["id"] == one["volume_id"] for each in used):
        raise refusal(
            409,
            f"Detach volume from instance {one['instance']} using the Compute API (HTTP 409)",
        )
    state = state.without("attachments", [one["id"]])
    after: Record = {"status": "available", "attachments": []}
    answer: Record = {"attachments": []}
    return state.change("volumes", one["volume_id"], after), Reply(200, answer)


def list_zones(state: State, request: Request) -> tuple[State, Reply]:
    del request
    zones = [
        {"zoneName": one, "zoneState": {"available": True}} for one in state.settings.volume_zones
    ]
    return state, Reply(200, {"availabilityZoneInfo": zones})


ROUTES: Mapping[tuple[str, str], Handler] = {
    ("GET", "/attachments"): list_attachments,
    ("DELETE", "/attachments/{id}"): delete_attachment,
    ("GET", "/os-availability-zone"): list_zones,
    ("GET", "/limits"): show_limits,
    ("GET", "/volumes"): listing("volumes"),
    ("GET", "/volumes/detail"): listing("volumes"),
    ("POST", "/volumes"): create_volume,
    ("GET", "/volumes/{id}"): showing("volumes"),
    ("PUT", "/volumes/{id}"): update_volume,
    ("DELETE", "/volumes/{id}"): delete_volume,
    ("POST", "/volumes/{id}/action"): act,
    ("POST", "/volumes/{id}/metadata"): set_metadata,
    ("PUT", "/volumes/{id}/metadata"): set_metadata,
    ("GET", "/snapshots"): listing("snapshots"),
    ("GET", "/snapshots/detail"): listing("snapshots"),
    ("POST", "/snapshots"): create_snapshot,
    ("GET", "/snapshots/{id}"): showing("snapshots"),
    ("DELETE", "/snapshots/{id}"): delete_snapshot,
}
