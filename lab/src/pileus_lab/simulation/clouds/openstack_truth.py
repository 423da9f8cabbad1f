"""What is true of a modelled OpenStack, computed from its state and never through the provider."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import is_
from typing import Any, TypeVar

from pileus.cloud.abilities import DEFAULT_AFFINITY_SECONDS
from pileus.cloud.balancer import Owner, Transport
from pileus.cloud.model import Address, AddressType, InstanceState
from pileus.providers.openstack.annotations import PORT_ID
from pileus.providers.openstack.config import OpenStackConfig
from pileus_lab.openstack.by_identity import by_identity
from pileus_lab.openstack.handle import settled
from pileus_lab.openstack.state import Record, State, Table
from pileus_lab.simulation.clouds.openstack_deeds import FREE, MOVED, PLACED, STRANGER
from pileus_lab.simulation.clouds.truth import (
    Balancer,
    Machine,
    Port,
    Route,
    Traffic,
    Truth,
    Volume,
)

T = TypeVar("T")
CLUSTER, SERVICE, SPEC = "pileus.dev/cluster=", "pileus.dev/service=", "pileus.dev/spec="
CREATED = "pileus.dev/created-for="
VOLUME_CLUSTER, VOLUME_OWNER = "pileus.dev/cluster", "pileus.dev/volume"
"""Keys of the metadata that mark a volume."""
EVERYWHERE = frozenset({"0.0.0.0/0", "::/0"})
VOLATILE = frozenset({"provisioning_status", "operating_status", "updated_at", "revision_number"})
"""Fields that change without anyone changing the object."""
STATES = {
    "ACTIVE": InstanceState.RUNNING,
    "SHUTOFF": InstanceState.STOPPED,
    "BUILD": InstanceState.PENDING,
}
GROUP, UID_LENGTH = "lb-sg-", 36
"""Names of security groups of Services begin so, and go on with the UID."""
DELETED = "PENDING_DELETE"
MACHINES = ("servers", "ports", "floatingips")
SERVED = ("loadbalancers", "listeners", "pools", "members")
BALANCERS = (*SERVED, "healthmonitors", "floatingips", "security-groups")
STRANGE = (*SERVED, "floatingips", "ports")
REQUESTABLE = ("floatingips", "ports")
ROUTES = ("servers", "ports", "routers")
VOLUMES = ("volumes", "attachments")
"""Tables from which each part of the truth is made."""


class TruthOf:
    """What is true, each part cached until what it is made from changes."""

    def __init__(self, config: OpenStackConfig) -> None:
        self._config = config
        self._tables: Mapping[str, Table] = {}
        self._truth = Truth()
        self._parts: dict[tuple[str, ...], tuple[tuple[object, ...], Any]] = {}
        """Parts of the truth, and the tables from which they were made, by the names of those."""
        self._owned: Mapping[str, tuple[tuple[Record, ...], Sequence[Balancer]]] = {}
        """What load balancers are to each of their owners, by the IDs of the load balancers."""
        self._clusters: dict[str, str] = {}
        """Clusters of Services, by UID, from all marks that were ever there. Those of a load
        balancer that a manager created count more than those of others with the same UID."""
        self._ids: dict[Owner, str] = {}
        """IDs of the last load balancers of owners."""

    def at(self, state: State, now: float) -> Truth:
        state = settled(state, now)
        if state.tables is not self._tables:
            self._tables, self._truth = state.tables, self._made(state)
        return self._truth

    def _made(self, state: State) -> Truth:
        return Truth(
            machines=self._part(state, MACHINES, lambda: tuple(self._all_machines(state))),
            balancers=self._part(
                state, BALANCERS, lambda: {one.id: one for one in self._all_balancers(state)}
            ),
            routes=self._part(state, ROUTES, lambda: _routes(state, self._config.route.router_id)),
            volumes=self._part(state, VOLUMES, lambda: _volumes(state)),
            strange_parts=self._part(state, STRANGE, lambda: _strange_parts(state)),
            requestable=self._part(state, REQUESTABLE, lambda: _requestable(state)),
        )

    def _part(self, state: State, sources: tuple[str, ...], make: Callable[[], T]) -> T:
        tables = tuple(map(state.tables.get, sources))
        known = self._parts.get(sources)
        if known is None or not _same(known[0], tables):
            known = self._parts[sources] = tables, make()
        return known[1]

    def _all_machines(self, state: State) -> Iterator[Machine]:
        region = self._config.auth.region if self._config.is_regional else ""
        floating = {one["port_id"]: one for one in state.table("floatingips").values()}
        ports: dict[str, list[Record]] = {}
        for port in state.table("ports").values():
            ports.setdefault(port["device_id"], []).append(port)
        for one in state.table("servers").values():
            mine = ports.get(one["id"], [])
            outside = [floating[port["id"]] for port in mine if port["id"] in floating]
            inside = [each["ip_address"] for port in mine for each in port["fixed_ips"]]
            yield Machine(
                id=one["id"],
                provider_id=f"openstack://{region}/{one['id']}",
                name=one["name"],
                uuid=one["id"],
                state=STATES[one["status"]],
                type=one["flavor"]["original_name"],
                zone=one["OS-EXT-AZ:availability_zone"],
                region=self._config.auth.region,
                addresses=(
                    *(Address(AddressType.INTERNAL_IP, each) for each in inside),
                    *(
                        Address(AddressType.EXTERNAL_IP, each["floating_ip_address"])
                        for each in outside
                    ),
                ),
            )

    def _all_balancers(self, state: State) -> Iterator[Balancer]:
        addresses = list(state.table("floatingips").values())
        floating = {one["port_id"]: one for one in addresses if one["port_id"]}
        free = [one for one in addresses if not one["port_id"]]
        owners: set[Owner] = set()
        present = [
            one
            for one in state.table("loadbalancers").values()
            if one["provisioning_status"] != DELETED and FREE not in one["tags"]
        ]
        known: dict[str, tuple[tuple[Record, ...], Sequence[Balancer]]] = {}
        for one in sorted(present, key=lambda one: (one["created_at"], one["id"])):
            outside = floating.pop(one["vip_port_id"], None)
            records = (one, *_parts(state, one), *((outside,) if outside else ()))
            before = self._owned.get(one["id"])
            if before is None or not _same(before[0], records):
                found = owners_of(one) or [None]
                before = records, [self._of(state, one, records, outside, each) for each in found]
            known[one["id"]] = before
            for made in before[1]:
                owner = made.owner
                if owner:
                    is_ours = bool(_creator_of(one))
                    first = self._clusters.get(owner.uid, owner.cluster)
                    self._clusters[owner.uid] = owner.cluster if is_ours else first
                    self._ids[owner] = made.id
                yield _twin(made) if owner in owners else made
                if owner:
                    owners.add(owner)
        self._owned = known
        # What is beside them, of an owner that has none, counts as the remains of the last one.
        beside = [
            *(one for one in (*floating.values(), *free) if not _is_strange(one)),
            *state.table("security-groups").values(),
        ]
        left: dict[Owner | str, tuple[Record, ...]] = {}
        for one in beside:
            owner = owner_of(one) or self._named(one)
            if owner not in owners:
                key = owner or one["id"]
                left[key] = (*left.get(key, ()), one)
        for key, records in left.items():
            owner = key if isinstance(key, Owner) else None
            first = str(records[0]["id"])
            id_ = self._ids.get(owner, first) if owner else first
            yield Balancer.remains(id_, owner, _frozen(records))

    def _named(self, record: Record) -> Owner | None:
        """Returns the owner of a security group that has no tags yet: its name has the UID."""
        name = str(record.get("name", ""))
        if not name.startswith(GROUP):
            return None
        uid = name.removeprefix(GROUP)[:UID_LENGTH]
        return Owner(self._clusters[uid], uid) if uid in self._clusters else None

    def _of(
        self,
        state: State,
        one: Record,
        records: tuple[Record, ...],
        outside: Record | None,
        owner: Owner | None,
    ) -> Balancer:
        """Returns what of a load balancer is the owner's."""
        is_guest = owner is not None and _creator_of(one) not in {"", owner.uid}
        listeners = [
            part
            for ref in one["listeners"]
            if (part := state.table("listeners")[ref["id"]])["provisioning_status"] != DELETED
            and STRANGER not in part["tags"]
            and (_serves(part, owner) or not (is_guest or owners_of(part)))
        ]
        pools = [
            state.table("pools")[each["default_pool_id"]]
            for each in listeners
            if each["default_pool_id"]
        ]
        ranges = {frozenset(each["allowed_cidrs"] or ()) - EVERYWHERE for each in listeners}
        return Balancer(
            id=f"{one['id']}/{owner.uid}" if owner and is_guest else one["id"],
            owner=owner,
            name_in_doubt="" if owner else one["name"],
            addresses=(
                outside["floating_ip_address"] if outside else one["vip_address"],
                *(each["ip_address"] for each in one["additional_vips"]),
            ),
            ports=frozenset(port for each in listeners for port in _ports(state, each)),
            members=frozenset(each["name"] for pool in pools for each in _members(state, pool)),
            source_ranges=ranges.pop() if len(ranges) == 1 else frozenset({"various"} & ranges),
            traffic=self._traffic(state, pools),
            is_noted=None if is_guest else _is_noted(one),
            has_failed=one["provisioning_status"] == "ERROR",
            is_of_others=owner is None and STRANGER in one["tags"],
            record=_frozen(records),
        )

    def _traffic(self, state: State, pools: list[Record]) -> Traffic | None:
        """Without monitors, nothing shows the port of health checks."""
        if not self._config.load_balancer.create_monitor:
            return None
        sticky = _one(bool(pool["session_persistence"]) for pool in pools)
        ports = {each["monitor_port"] for pool in pools for each in _members(state, pool)}
        seconds = DEFAULT_AFFINITY_SECONDS if sticky else None
        return Traffic(seconds, _one(ports)) if ports else None


def owners_of(record: Record) -> list[Owner]:
    """Returns the owners in the tags: Services may share a load balancer."""
    clusters = [tag.removeprefix(CLUSTER) for tag in record["tags"] if tag.startswith(CLUSTER)]
    services = [tag.removeprefix(SERVICE) for tag in record["tags"] if tag.startswith(SERVICE)]
    return [Owner(clusters[0], one) for one in services] if clusters else []


def owner_of(record: Record) -> Owner | None:
    """Returns the first owner in the tags."""
    return next(iter(owners_of(record)), None)


def _creator_of(record: Record) -> str:
    """Returns the UID of the Service for which a load balancer was created; empty: it is unknown.

    That one has it under its ID, and the others under that and their UID.
    """
    found = (tag.removeprefix(CREATED) for tag in record["tags"] if tag.startswith(CREATED))
    return next(found, "")


def _serves(listener: Record, owner: Owner | None) -> bool:
    return owner is None or owner in owners_of(listener)


def _is_noted(record: Record) -> bool:
    notes = [tag for tag in record["tags"] if tag.startswith(SPEC)]
    return bool(notes) and not any("changing" in tag for tag in notes)


def _twin(balancer: Balancer) -> Balancer:
    """A second one with the same mark is not the Service's: it has to be deleted."""
    owner = balancer.owner
    mark = Owner(owner.cluster, f"{owner.uid} again {balancer.id}") if owner else None
    return Balancer(
        id=balancer.id,
        owner=mark,
        addresses=balancer.addresses,
        ports=balancer.ports,
        members=balancer.members,
        twin_of=owner,
        record=balancer.record,
    )


def _parts(state: State, one: Record) -> Iterator[Record]:
    for ref in one["listeners"]:
        yield state.table("listeners")[ref["id"]]
    for ref in one["pools"]:
        pool = state.table("pools")[ref["id"]]
        yield pool
        yield from (state.table("members")[each["id"]] for each in pool["members"])
        if monitor := pool.get("healthmonitor_id"):
            yield state.table("healthmonitors")[monitor]


def _members(state: State, pool: Record) -> Iterator[Record]:
    for ref in pool["members"]:
        member = state.table("members")[ref["id"]]
        if member["provisioning_status"] != DELETED:
            yield member


def _ports(state: State, listener: Record) -> Iterator[Port]:
    """A pool without members has no node port: 0."""
    transport = listener["protocol"] if listener["protocol"] in {"UDP", "SCTP"} else "TCP"
    pool = state.get("pools", listener["default_pool_id"] or "")
    found = {one["protocol_port"] for one in _members(state, pool)} if pool else {-1}
    for node_port in sorted(found) or [0]:
        yield Port(listener["protocol_port"], node_port, Transport(transport))


def _strange_parts(state: State) -> Mapping[str, object]:
    """Returns what others have on load balancers of ours, or that looks like ours."""
    listeners = [one for one in state.table("listeners").values() if STRANGER in one["tags"]]
    pools = [one for one in state.table("pools").values() if one["name"] == "stranger"]
    twins = (one["id"] for one in state.table("loadbalancers").values() if FREE in one["tags"])
    addresses = (one for one in state.table("floatingips").values() if _is_strange(one))
    ports = (one for one in state.table("ports").values() if one["name"] == FREE)
    return {
        **{one["id"]: _frozen([one]) for one in ports},
        **{one["id"]: _frozen([_of_others(one)]) for one in addresses},
        **dict.fromkeys(twins, "exists"),
        **{one["id"]: _frozen([one]) for one in listeners},
        **{one["id"]: _frozen([one, *_members(state, one)]) for one in pools},
    }


def _is_strange(address: Record) -> bool:
    return not {FREE, PLACED, MOVED}.isdisjoint(address["tags"])


@by_identity
def _of_others(address: Record) -> Record:
    """Returns what no manager may change: one in the place of ours may be detached."""
    if MOVED in address["tags"]:
        return {"id": address["id"], "port_id": address["port_id"]}
    if PLACED in address["tags"]:
        return {key: address[key] for key in ("id", "tags", "description")}
    return address


def _requestable(state: State) -> Mapping[str, tuple[str, str]]:
    addresses = [one for one in state.table("floatingips").values() if FREE in one["tags"]]
    ports = [one["id"] for one in state.table("ports").values() if one["name"] == FREE]
    return {
        **{one["id"]: ("", one["floating_ip_address"]) for one in addresses},
        **{one: (PORT_ID.name, one) for one in ports},
    }


def _routes(state: State, router: str) -> Mapping[str, Route]:
    by_address: dict[str, Record] = {}
    for port in state.table("ports").values():
        by_address |= {one["ip_address"]: port for one in port["fixed_ips"]}
    names = {one["id"]: one["name"] for one in state.table("servers").values()}
    found: dict[str, Route] = {}
    for one in state.table("routers")[router]["routes"]:
        there, hop = one["destination"], one["nexthop"]
        port = by_address.get(hop)
        target = names.get(port["device_id"], hop) if port else hop
        id_ = f"{there} via {hop}"
        found[id_] = Route(id=id_, destination=there, target=target, cluster=None, record=id_)
    return found


def _volumes(state: State) -> Mapping[str, Volume]:
    """An attachment counts from when it is accepted until the volume is detached."""
    holders: dict[str, list[str]] = {}
    for one in state.table("attachments").values():
        holders.setdefault(one["volume_id"], []).append(one["instance"])
    found: dict[str, Volume] = {}
    for one in state.table("volumes").values():
        marks = one["metadata"]
        is_marked = VOLUME_CLUSTER in marks and VOLUME_OWNER in marks
        machines = holders.get(one["id"], [])
        found[one["id"]] = Volume(
            id=one["id"],
            owner=Owner(marks[VOLUME_CLUSTER], marks[VOLUME_OWNER]) if is_marked else None,
            size_gib=one["size"],
            machine=machines[0] if machines else "",
            zone=one["availability_zone"],
            machines=frozenset(machines),
            is_leaving=one["status"] == "detaching",
        )
    return found


def _frozen(records: Iterable[Record]) -> str:
    return f"[{', '.join(map(_frozen_record, records))}]"


@by_identity
def _frozen_record(record: Record) -> str:
    return json.dumps({k: v for k, v in record.items() if k not in VOLATILE}, sort_keys=True)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def _one(values: Iterable[T]) -> T | None:
    """What all values are; None if they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
