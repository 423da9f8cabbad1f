"""Random histories of the local cloud, for tests by property."""

from typing import cast

import msgspec
from hypothesis import strategies as st

from pileus.cloud.balancer import Transport
from pileus.cloud.errors import CloudError
from pileus_lab.local.model.balancers import (
    AddMembers,
    ClaimBalancer,
    CreateBalancer,
    DeleteBalancer,
    PutPort,
    Readdress,
    RemoveMembers,
    RemovePort,
    SetTraffic,
    StampBalancer,
)
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    StartMachine,
    StopMachine,
)
from pileus_lab.local.model.records import (
    Mark,
    Member,
    Port,
    Traffic,
)
from pileus_lab.local.model.routes import CreateRoute, DeleteRoute
from pileus_lab.local.model.snapshots import CreateSnapshot, DeleteSnapshot
from pileus_lab.local.model.state import Moment, Operation, Request, State
from pileus_lab.local.model.volumes import (
    AttachVolume,
    CreateVolume,
    DeleteVolume,
    DetachVolume,
    ResizeVolume,
)

NAMES = st.sampled_from(["a", "b", "c", "d"])
KNOWN = st.sampled_from(["1", "2", "3", "4"])
"""The n-th object of its kind; the operations below are given its id."""
PORTS = st.builds(
    Port,
    port=st.integers(1, 4),
    node_port=st.integers(30000, 30003),
    transport=st.sampled_from([Transport.TCP, Transport.UDP]),
)
MARKS = st.builds(Mark, cluster=st.sampled_from(["", "x", "y"]), owner=st.sampled_from(["", "u"]))
MEMBERS = st.lists(st.builds(Member, name=NAMES), max_size=3).map(tuple)
OPERATION = st.one_of(
    st.builds(CreateMachine, name=NAMES, ipv6=st.booleans(), external=st.booleans()),
    st.builds(StopMachine, machine=NAMES),
    st.builds(StartMachine, machine=NAMES),
    st.builds(DeleteMachine, machine=NAMES),
    st.builds(
        CreateBalancer,
        name=NAMES,
        mark=MARKS,
        ports=st.lists(PORTS, max_size=2).map(tuple),
        members=MEMBERS,
        families=st.sampled_from([("IPv4",), ("IPv6",), ("IPv4", "IPv6")]),
    ),
    st.builds(DeleteBalancer, balancer=KNOWN),
    st.builds(PutPort, balancer=KNOWN, port=PORTS),
    st.builds(RemovePort, balancer=KNOWN, port=st.integers(1, 4)),
    st.builds(AddMembers, balancer=KNOWN, members=MEMBERS),
    st.builds(RemoveMembers, balancer=KNOWN, names=st.lists(NAMES).map(tuple)),
    st.builds(StampBalancer, balancer=KNOWN, fingerprint=st.just("f")),
    st.builds(ClaimBalancer, balancer=KNOWN, mark=MARKS, was=MARKS),
    st.builds(SetTraffic, balancer=KNOWN, traffic=st.builds(Traffic)),
    st.builds(Readdress, balancer=KNOWN, families=st.sampled_from([("IPv4",), ("IPv6",)])),
    st.builds(
        CreateRoute, destination=st.sampled_from(["10.0.0.0/8", "10.1.0.0/16"]), target=NAMES
    ),
    st.builds(DeleteRoute, destination=st.sampled_from(["10.0.0.0/8", "10.1.0.0/16"])),
    st.builds(CreateVolume, name=NAMES, mark=MARKS, size_gib=st.integers(0, 9)),
    st.builds(CreateVolume, name=NAMES, size_gib=st.integers(5, 9), from_volume=KNOWN),
    st.builds(CreateVolume, name=NAMES, size_gib=st.integers(5, 9), from_snapshot=KNOWN),
    st.builds(CreateSnapshot, name=NAMES, mark=MARKS, volume=KNOWN),
    st.builds(DeleteSnapshot, snapshot=KNOWN, cluster=st.none() | st.sampled_from(["x", "y"])),
    st.builds(DeleteVolume, volume=KNOWN),
    st.builds(AttachVolume, volume=KNOWN, machine=NAMES),
    st.builds(DetachVolume, volume=KNOWN, machine=NAMES),
    st.builds(ResizeVolume, volume=KNOWN, size_gib=st.integers(0, 20)),
)


def aimed(operation: Request, state: State) -> Operation[object]:
    """Let `KNOWN` numbers mean the state's own objects."""
    for field, items in (
        ("balancer", state.balancers),
        ("volume", state.volumes),
        ("snapshot", state.snapshots),
        ("from_volume", state.volumes),
        ("from_snapshot", state.snapshots),
    ):
        number = getattr(operation, field, "")
        ids = sorted(items)
        if number.isdigit() and len(ids) >= int(number):
            operation = msgspec.structs.replace(operation, **{field: ids[int(number) - 1]})
    return cast("Operation[object]", operation)


def tried(operation: Operation[object], state: State, now: Moment) -> State:
    try:
        return operation.step(state, now)[0]
    except CloudError:
        return state
