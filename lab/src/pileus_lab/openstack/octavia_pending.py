"""Octavia: changes take a while, and a load balancer that is pending refuses further ones."""

from collections.abc import Iterable, Iterator
from typing import Any

from pileus_lab.openstack.neutron import without_port
from pileus_lab.openstack.state import NONE, Due, Fault, Record, Request, State

NAMES = {
    "loadbalancers": "Load Balancer",
    "listeners": "Listener",
    "pools": "Pool",
    "members": "Member",
    "healthmonitors": "Health Monitor",
}
"""As Octavia's messages name them."""
CREATE, UPDATE, DELETE = "PENDING_CREATE", "PENDING_UPDATE", "PENDING_DELETE"
Touched = tuple[str, str, str]
"""Collection, ID and the status that a record has until the change is done."""


def refusal(status: int, message: str) -> Fault:
    return Fault(status, {"faultcode": "Client", "faultstring": message, "debuginfo": None})


def invalid(detail: str) -> Fault:
    return refusal(400, f"Validation failure: {detail}")


def unsupported(provider: str, detail: str) -> Fault:
    message = f"Provider '{provider}' does not support a requested option: {detail}"
    return refusal(501, message)


def found(state: State, collection: str, id_: str) -> Record:
    """Raises `Fault` if there is no such record."""
    record = state.get(collection, id_)
    if record is None:
        raise refusal(404, f"{NAMES[collection]} {id_} not found.")
    return record


def check_quota(state: State, collection: str, adding: int = 1) -> None:
    limit = state.settings.quotas.get(collection, -1)
    if limit >= 0 and len(state.table(collection)) + adding > limit:
        raise refusal(403, f"Quota has been met for resources: {NAMES[collection]}")


def balancer_of(record: Record) -> str:
    """Returns the ID of the load balancer of a listener or pool."""
    return str(record["loadbalancers"][0]["id"])


def check_mutable(state: State, balancer: str, pool: Record | None = None) -> None:
    """Refuses a change while the load balancer, or the pool, is pending or failed."""
    if pool is not None and pool["provisioning_status"] != "ACTIVE":
        raise refusal(409, f"Pool {pool['id']} is immutable and cannot be updated.")
    if found(state, "loadbalancers", balancer)["provisioning_status"] != "ACTIVE":
        raise refusal(409, f"Load Balancer {balancer} is immutable and cannot be updated.")


def begun(state: State, request: Request, balancer: str, touched: Iterable[Touched]) -> State:
    """Returns the state in which a load balancer is busy with a change of these records."""
    for collection, id_, status in (*touched, ("loadbalancers", balancer, UPDATE)):
        state = state.change(collection, id_, {"provisioning_status": status})
    return finishing(state, request, balancer)


def finishing(state: State, request: Request, balancer: str) -> State:
    moment = request.moment
    at = moment.now + state.settings.pending_seconds + moment.at_work
    return state.later(Due(at, "loadbalancers", balancer, moment.doom))


def children(state: State, balancer: Record) -> Iterator[tuple[str, Record]]:
    """Yields all parts of a load balancer, with their collections."""
    for one in balancer["listeners"]:
        yield "listeners", state.table("listeners")[one["id"]]
    for one in balancer["pools"]:
        pool = state.table("pools")[one["id"]]
        yield "pools", pool
        for member in pool["members"]:
            yield "members", state.table("members")[member["id"]]
        if monitor := pool.get("healthmonitor_id"):
            yield "healthmonitors", state.table("healthmonitors")[monitor]


def done(state: State, due: Due) -> State:
    """Returns the state after the change of a load balancer is done or has failed."""
    balancer = state.get("loadbalancers", due.id)
    if balancer is None:
        return state
    status = balancer["provisioning_status"]
    if status == DELETE and not due.failure:
        return without_balancer(state, balancer)
    pending = [
        (collection, one)
        for collection, one in children(state, balancer)
        if one["provisioning_status"].startswith("PENDING")
    ]
    for collection, one in pending:
        if one["provisioning_status"] == DELETE and not due.failure:
            state = without_part(state, collection, one)
    after = "ERROR" if due.failure else "ACTIVE"
    for collection, one in pending:
        if state.get(collection, one["id"]) is not None:
            state = state.change(collection, one["id"], {"provisioning_status": after})
    state = state.change("loadbalancers", due.id, {"provisioning_status": after})
    seconds = state.settings.failover_seconds
    if due.failure and status == UPDATE and seconds:
        state = state.later(Due(due.at + seconds, "failovers", due.id))
    return _operating(state, due.id)


def failed_over(state: State, due: Due) -> State:
    """Returns the state after an administrator failed over a load balancer, if it is in ERROR.

    Octavia builds it again from its records, all of which are ACTIVE then.
    """
    balancer = state.get("loadbalancers", due.id)
    if balancer is None or balancer["provisioning_status"] != "ERROR":
        return state
    for collection, one in (*children(state, balancer), ("loadbalancers", balancer)):
        state = state.change(collection, one["id"], {"provisioning_status": "ACTIVE"})
    return _operating(state, due.id)


def _operating(state: State, balancer: str) -> State:
    """Returns the state with the operating status that working amphorae report."""
    record = state.table("loadbalancers")[balancer]
    watched = {
        member["id"]
        for one in record["pools"]
        if (pool := state.table("pools")[one["id"]]).get("healthmonitor_id")
        for member in pool["members"]
    }
    for collection, one in (*children(state, record), ("loadbalancers", record)):
        status = "ONLINE"
        if collection == "members" and one["id"] not in watched:
            status = "NO_MONITOR"
        if one["provisioning_status"] == "ERROR":
            status = "ERROR" if collection == "loadbalancers" else one["operating_status"]
        if one["operating_status"] != status:
            state = state.change(collection, one["id"], {"operating_status": status})
    return state


def without_balancer(state: State, balancer: Record) -> State:
    """Returns the state without a load balancer, its parts, and the port that was made for it."""
    gone: dict[str, list[str]] = {}
    for collection, one in children(state, balancer):
        gone.setdefault(collection, []).append(one["id"])
    for collection, ids in gone.items():
        state = state.without(collection, ids)
    port = state.get("ports", balancer["vip_port_id"])
    if port is not None and port["device_owner"] == "Octavia":
        state = without_port(state, port["id"])
    return state.without("loadbalancers", [balancer["id"]])


def without_part(state: State, collection: str, record: Record) -> State:
    """Returns the state without a part, and without references to it."""
    id_ = record["id"]
    state = state.without(collection, [id_])
    match collection:
        case "listeners":
            state = _unlinked(state, "loadbalancers", balancer_of(record), "listeners", id_)
            return _unlinked(state, "pools", record["default_pool_id"] or "", "listeners", id_)
        case "pools":
            return _without_pool(state, record)
        case "members":
            for pool in _pools_with(state, id_):
                state = _unlinked(state, "pools", pool["id"], "members", id_)
            return state
        case _:
            pool = state.get("pools", record["pools"][0]["id"]) or NONE
            rest = {name: value for name, value in pool.items() if name != "healthmonitor_id"}
            return state.put("pools", rest) if rest else state


def _without_pool(state: State, record: Record) -> State:
    state = state.without("members", [one["id"] for one in record["members"]])
    state = state.without("healthmonitors", [record.get("healthmonitor_id") or ""])
    state = _unlinked(state, "loadbalancers", balancer_of(record), "pools", record["id"])
    for one in record["listeners"]:
        if state.get("listeners", one["id"]) is not None:
            state = state.change("listeners", one["id"], {"default_pool_id": None})
    return state


def _pools_with(state: State, member: str) -> list[Record]:
    return [
        one
        for one in state.table("pools").values()
        if any(each["id"] == member for each in one["members"])
    ]


def _unlinked(state: State, collection: str, id_: str, field: str, gone: str) -> State:
    record = state.get(collection, id_)
    if record is None:
        return state
    return state.change(collection, id_, {field: [o for o in record[field] if o["id"] != gone]})


def linked(state: State, collection: str, id_: str, field: str, new: str) -> State:
    """Returns the state in which a record refers to another one as well."""
    record = state.table(collection)[id_]
    return state.change(collection, id_, {field: [*record[field], {"id": new}]})


def part(request: Request, fields: Record) -> dict[str, Any]:
    """Returns a record with what all parts of a load balancer have."""
    now = request.moment.seconds()
    return {
        "id": request.moment.new_id(),
        "name": "",
        "provisioning_status": CREATE,
        "operating_status": "OFFLINE",
        "admin_state_up": True,
        "created_at": now,
        "updated_at": None,
        "tags": [],
        **fields,
    }
