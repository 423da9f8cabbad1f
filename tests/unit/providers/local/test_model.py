from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import Transport
from pileus.cloud.errors import CloudError, Conflict, NotFound, QuotaExceeded, Rejected, Unsupported
from pileus_lab.local.http_api import OPERATIONS
from pileus_lab.local.model.account import AddFault, AddKey, RemoveFault, SetQuota, usage
from pileus_lab.local.model.balancers import (
    AddMembers,
    ClaimBalancer,
    CreateBalancer,
    ListBalancers,
    ListHealth,
    OutlineBalancers,
    PutPort,
    Readdress,
)
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    FailPorts,
    ListMachines,
    StopMachine,
)
from pileus_lab.local.model.records import (
    FaultKind,
    Mark,
    Member,
    Port,
    Power,
    Probe,
    Quota,
    Traffic,
)
from pileus_lab.local.model.routes import CreateRoute, DeleteRoute, ListRoutes
from pileus_lab.local.model.snapshots import CreateSnapshot, DeleteSnapshot, ListSnapshots
from pileus_lab.local.model.state import Moment, Operation, Request, Settings, State
from pileus_lab.local.model.volumes import (
    AttachVolume,
    CreateVolume,
    DeleteVolume,
)
from tests.unit.providers.local.clouds import moment
from tests.unit.providers.local.histories import OPERATION, aimed, tried

TIGHT = Quota(
    instances=2, balancers=2, listeners=3, routes=1, volumes=2, volume_gib=15, snapshots=1, keys=1
)


@given(st.lists(OPERATION, max_size=30), st.integers(0, 2**32))
def test_after_any_history_the_cloud_is_sound(operations: list[Request], seed: int):
    state, chance = State(quota=TIGHT), Random(seed)
    marks: dict[str, Mark] = {}
    for number, planned in enumerate(operations):
        operation = aimed(planned, state)
        now = Moment(float(number), chance, Settings())
        before, state = state, tried(operation, state, now)

        new = (set(state.machines) | set(state.balancers) | set(state.volumes)) - (
            set(before.machines) | set(before.balancers) | set(before.volumes)
        )
        assert all(int(identity.split("-")[1][:4], 16) > before.serial for identity in new)
        for identity, item in (*state.balancers.items(), *state.volumes.items()):
            known = marks.setdefault(identity, item.mark)
            if known != item.mark:  # only by a claim that names the former mark
                claim = ClaimBalancer(balancer=identity, mark=item.mark, was=known)
                assert operation == claim
                marks[identity] = item.mark
        limits = {name: getattr(TIGHT, name) for name in usage(state)}
        assert all(used <= limits[name] for name, used in usage(state).items())
        hold_sound(state)


def hold_sound(state: State) -> None:
    machines = list(state.machines.values())
    addresses = [ip for machine in machines for ip in (*machine.internal, *machine.external)]
    assert len(set(addresses)) == len(addresses)
    assert len({machine.name for machine in machines}) == len(machines)
    listening = [
        (ip, *port.key)
        for balancer in state.balancers.values()
        for ip in balancer.addresses
        for port in balancer.ports
    ]
    assert len(set(listening)) == len(listening)
    owned = [one.mark for one in state.balancers.values() if one.mark != Mark()]
    assert len(set(owned)) == len(owned)
    for kind in (state.volumes, state.snapshots):
        marked = [one.mark for one in kind.values() if one.mark != Mark()]
        assert len(set(marked)) == len(marked)
    attached = [one for one in state.volumes.values() if one.machine]
    assert all(one.machine in state.machines for one in attached)
    assert len({(one.machine, one.device) for one in attached}) == len(attached)


@given(st.lists(OPERATION, max_size=12), OPERATION, st.integers(0, 2**32))
def test_what_is_done_twice_is_done_once(history: list[Request], last: Request, seed: int):
    state, chance = State(), Random(seed)
    for planned in history:
        state = tried(aimed(planned, state), state, Moment(0.0, chance))
    operation = aimed(last, state)
    once = tried(operation, state, Moment(1.0, Random(seed)))

    twice = tried(operation, once, Moment(1.0, Random(seed)))

    if not (isinstance(operation, CreateBalancer) and operation.mark == Mark()):
        assert twice == once


@given(st.lists(OPERATION, max_size=12), st.integers(0, 2**32))
def test_the_same_chance_and_time_give_the_same_cloud(history: list[Request], seed: int):
    def played() -> State:
        state, chance = State(), Random(seed)
        for planned in history:
            state = tried(aimed(planned, state), state, Moment(0.0, chance))
        return state

    assert played() == played()


def with_machines(*names: str, settings: Settings | None = None) -> State:
    state = State()
    for name in names:
        state, _ = CreateMachine(name=name).step(state, moment(settings=settings))
    return state


def test_a_machine_is_pending_until_it_has_booted():
    settings = Settings(boot_seconds=10)
    state, created = CreateMachine(name="a").step(State(), moment(100, settings=settings))

    _, early = ListMachines().step(state, moment(109.9, settings=settings))
    _, late = ListMachines().step(state, moment(110, settings=settings))

    assert created.power is Power.PENDING
    assert [early.items[0].power, late.items[0].power] == [Power.PENDING, Power.RUNNING]


def test_machines_are_spread_over_the_zones():
    state = with_machines("a", "b", "c", "d")

    assert sorted(one.zone for one in state.machines.values()) == [
        "local-1a",
        "local-1a",
        "local-1b",
        "local-1c",
    ]


def test_an_address_that_was_freed_is_not_given_to_the_next():
    state = with_machines("a")
    state, _ = DeleteMachine(machine="a").step(state, moment())

    state, again = CreateMachine(name="a").step(state, moment())

    assert again.internal == ("127.77.0.2",)


@pytest.mark.parametrize(
    ("operation", "error", "text"),
    [
        pytest.param(CreateMachine(name="A_b"), Rejected, "lower-case", id="bad name"),
        pytest.param(CreateMachine(name="a"), Conflict, "another name", id="name taken"),
        pytest.param(CreateMachine(name="x", type="smal"), Rejected, 'mean "small"', id="type"),
        pytest.param(CreateMachine(name="x", zone="local-1"), Rejected, "local-1a", id="zone"),
        pytest.param(StopMachine(machine="aa"), NotFound, 'no instance "aa"', id="unknown"),
        pytest.param(
            CreateRoute(destination="10.0.0.1/8", target="a"), Rejected, "host", id="cidr"
        ),
        pytest.param(CreateRoute(destination="10.0.0.0/8", target="z"), NotFound, "z", id="target"),
        pytest.param(CreateVolume(name="v", size_gib=0), Rejected, "too small", id="size"),
        pytest.param(CreateVolume(name="", size_gib=1), Rejected, "name", id="no name"),
        pytest.param(AttachVolume(volume="v", machine="a"), NotFound, "no volume", id="volume"),
        pytest.param(AddKey(user="root", public_key="hello"), Rejected, "OpenSSH", id="key"),
        pytest.param(SetQuota(limits={"instance": 1}), Rejected, '"instances"', id="quota name"),
        pytest.param(SetQuota(limits={"instances": -1}), Rejected, "-1", id="quota value"),
        pytest.param(
            AddFault(kind=FaultKind.ERROR, error="Conflct"), Rejected, "Conflict", id="err"
        ),
        pytest.param(AddFault(kind=FaultKind.ERROR, rate=2), Rejected, "from 0 to 1", id="rate"),
        pytest.param(AddFault(kind=FaultKind.ERROR, times=0), Rejected, "at least 1", id="times"),
        pytest.param(RemoveFault(fault="f"), NotFound, 'no fault "f"', id="no fault"),
        pytest.param(
            CreateBalancer(name="x", ports=(Port(port=1, node_port=2, transport=Transport.SCTP),)),
            Unsupported,
            "1/SCTP",
            id="sctp",
        ),
        pytest.param(
            CreateBalancer(name="x", ports=(Port(port=0, node_port=2),)),
            Rejected,
            "65535",
            id="port",
        ),
        pytest.param(
            CreateBalancer(name="x", traffic=Traffic(sources=("x",))),
            Rejected,
            "source",
            id="range",
        ),
        pytest.param(CreateBalancer(name="x", families=()), Rejected, "neither", id="no family"),
        pytest.param(
            CreateBalancer(name="x", requested="8.8.8.8"), Rejected, "pools", id="foreign"
        ),
        pytest.param(
            CreateBalancer(name="x", requested="what"),
            Rejected,
            "not an IP address",
            id="no address",
        ),
        pytest.param(
            CreateBalancer(name="x", requested="::1"),
            Rejected,
            "not an address of IPv4",
            id="family",
        ),
        pytest.param(
            PutPort(balancer="lb", port=Port(port=1, node_port=2)), NotFound, "lb", id="lb"
        ),
    ],
)
def test_a_bad_request_says_what_is_wrong(
    operation: Operation[object], error: type[CloudError], text: str
):
    with pytest.raises(error, match=text):
        operation.step(with_machines("a"), moment())


def test_a_quota_says_what_is_used_and_how_to_raise_it():
    state = replace(State(), quota=Quota(instances=0))

    with pytest.raises(QuotaExceeded, match="quota set instances=1"):
        CreateMachine(name="a").step(state, moment())


def test_a_busy_balancer_takes_no_change():
    settings = Settings(settle_seconds=5)
    state, made = CreateBalancer(name="x").step(State(), moment(100, settings=settings))
    change = AddMembers(balancer=made.id, members=(Member(name="a"),))

    with pytest.raises(Conflict, match="busy for another"):
        change.step(state, moment(104, settings=settings))
    state, later = change.step(state, moment(105, settings=settings))

    assert made.is_busy
    assert later.members == (Member(name="a"),)


def test_a_change_that_changes_nothing_makes_nothing_busy():
    settings = Settings(settle_seconds=5)
    state, made = CreateBalancer(name="x").step(State(), moment(0, settings=settings))

    _, after = AddMembers(balancer=made.id, members=()).step(state, moment(9, settings=settings))

    assert not after.is_busy


def test_balancers_share_the_one_loopback_address_of_ipv6_on_different_ports():
    first = CreateBalancer(name="x", families=("IPv6",), ports=(Port(port=80, node_port=1),))
    state, made = first.step(State(), moment())
    state, other = CreateBalancer(
        name="y", families=("IPv6",), ports=(Port(port=81, node_port=1),)
    ).step(state, moment())

    assert made.addresses == other.addresses == ("::1",)
    with pytest.raises(Rejected, match="80/TCP is taken by another balancer"):
        PutPort(balancer=other.id, port=Port(port=80, node_port=1)).step(state, moment())


def test_an_address_of_another_balancer_is_refused_on_any_port_and_it_is_not_named():
    first = CreateBalancer(name="x", ports=(Port(port=80, node_port=1),))
    state, made = first.step(State(), moment())
    (address,) = made.addresses
    second = CreateBalancer(name="y", requested=address, ports=(Port(port=81, node_port=1),))

    with pytest.raises(Rejected, match=f"{address} is taken by another balancer") as refused:
        second.step(state, moment())

    assert made.id not in str(refused.value)


def test_readdressing_keeps_the_addresses_that_fit():
    state, made = CreateBalancer(name="x").step(State(), moment())

    state, both = Readdress(balancer=made.id, families=("IPv4", "IPv6")).step(state, moment())
    state, asked = Readdress(balancer=made.id, requested="127.78.9.9").step(state, moment())

    assert both.addresses == (*made.addresses, "::1")
    assert asked.addresses == ("127.78.9.9",)


def test_a_deleted_machine_frees_its_volumes_and_blackholes_its_routes():
    state = with_machines("a")
    state, volume = CreateVolume(name="v", size_gib=1).step(state, moment())
    state, _ = AttachVolume(volume=volume.id, machine="a").step(state, moment())
    state, _ = CreateRoute(destination="10.0.0.0/8", target="a").step(state, moment())

    state, _ = DeleteMachine(machine="a").step(state, moment())

    assert state.volumes[volume.id].machine == ""
    assert ListRoutes().step(state, moment())[1].items[0].is_blackhole


def test_a_volume_is_attached_once_and_in_its_own_zone():
    state = with_machines("a", "b", "c", "d")
    state, volume = CreateVolume(name="v", size_gib=1).step(state, moment())

    with pytest.raises(Rejected, match="zone"):
        AttachVolume(volume=volume.id, machine="b").step(state, moment())
    state, attached = AttachVolume(volume=volume.id, machine="a").step(state, moment())
    with pytest.raises(Conflict, match="detach it first"):
        AttachVolume(volume=volume.id, machine="d").step(state, moment())
    with pytest.raises(Conflict, match="detach it first"):
        DeleteVolume(volume=volume.id).step(state, moment())

    assert attached.device == "/dev/vdb"


def test_a_machine_takes_as_many_volumes_as_its_type_allows():
    state = with_machines("a")
    for number in range(4):
        state, volume = CreateVolume(name=f"v{number}", size_gib=1).step(state, moment())
        state, _ = AttachVolume(volume=volume.id, machine="a").step(state, moment())
    state, volume = CreateVolume(name="one too many", size_gib=1).step(state, moment())

    with pytest.raises(QuotaExceeded, match="has 4 volumes"):
        AttachVolume(volume=volume.id, machine="a").step(state, moment())


def test_the_operator_may_change_volumes_of_every_cluster():
    state = with_machines("a")
    mark = Mark(cluster="x", owner="u")
    state, volume = CreateVolume(name="v", mark=mark, size_gib=1).step(state, moment())
    state, snapshot = CreateSnapshot(name="s", mark=mark, volume=volume.id).step(state, moment())

    with pytest.raises(Rejected, match='cluster "x", not "y"'):
        DeleteVolume(volume=volume.id, cluster="y").step(state, moment())
    state, _ = DeleteVolume(volume=volume.id).step(state, moment())
    assert ListSnapshots().step(state, moment())[1].items == (snapshot,)
    state, _ = DeleteSnapshot(snapshot=snapshot.id).step(state, moment())

    assert (state.volumes, state.snapshots) == ({}, {})


def test_without_a_mark_the_name_identifies_a_volume():
    mark = Mark(cluster="x", owner="u")
    state, first = CreateVolume(name="v", size_gib=1).step(State(), moment())
    state, again = CreateVolume(name="v", size_gib=1).step(state, moment())
    state, marked = CreateVolume(name="v", mark=mark, size_gib=1).step(state, moment())

    assert again == first
    assert marked.id != first.id


def test_another_cluster_s_route_is_not_deleted():
    state = with_machines("a")
    state, _ = CreateRoute(destination="10.0.0.0/8", target="a", cluster="x").step(state, moment())

    with pytest.raises(Rejected, match='cluster "x", not "y"'):
        DeleteRoute(destination="10.0.0.0/8", cluster="y").step(state, moment())


def test_without_a_data_plane_health_follows_from_the_state():
    state = with_machines("a", "b", "c")
    members = tuple(Member(name=name) for name in ("a", "b", "c", "d"))
    traffic = Traffic(probe=Probe(node_port=30001))
    state, _ = CreateBalancer(name="x", members=members, traffic=traffic).step(state, moment())
    state, _ = StopMachine(machine="b").step(state, moment())
    state, _ = FailPorts(machine="c", ports=(30001,)).step(state, moment())

    _, health = ListHealth().step(state, moment())

    assert [one.problem for one in health.items] == [
        "",
        "instance is stopped",
        "answers 503",
        "no such instance",
    ]


def test_a_list_shows_every_balancer_with_its_mark():
    mark = Mark(cluster="x", owner="u")
    state, made = CreateBalancer(name="b", mark=mark).step(State(), moment())

    assert ListBalancers().step(state, moment())[1].items == (made,)
    assert made.mark == mark


def test_every_operation_has_a_name_of_its_own_and_says_whether_it_writes():
    for name, operation in OPERATIONS.items():
        assert operation.WRITES is not any(word in name for word in (".list", ".health", ".desc"))  # type: ignore[attr-defined]


def test_a_change_that_fails_late_is_at_work_then_failed_and_undone_until_the_next_try():
    settings = Settings(settle_seconds=5)
    sound = Moment(0.0, Random(1), settings)
    doomed = replace(sound, now=10.0, doom="no host has room")
    port = Port(port=80, node_port=30080)
    state, made = CreateBalancer(name="web", ports=(port,), fingerprint="f").step(State(), sound)
    added = AddMembers(balancer=made.id, members=(Member(name="a"),), fingerprint="g")

    state, accepted = added.step(state, doomed)
    later = replace(sound, now=16.0)
    failed = ListBalancers().step(state, later)[1].items[0]
    state, again = added.step(state, replace(doomed, now=16.0))
    state, _ = added.step(state, replace(sound, now=22.0))
    healed = ListBalancers().step(state, replace(sound, now=30.0))[1].items[0]

    assert (accepted.is_busy, accepted.problem) == (True, "")
    assert (failed.is_busy, failed.problem) == (False, "no host has room")
    assert (again.is_busy, again.problem) == (True, "")
    assert (failed.members, failed.fingerprint) == ((), "")
    assert (healed.problem, healed.members) == ("", (Member(name="a"),))


def test_a_balancer_whose_making_failed_late_is_there_and_failed():
    doomed = Moment(0.0, Random(1), Settings(), doom="no host has room")

    state, made = CreateBalancer(name="web", fingerprint="f").step(State(), doomed)
    outline = OutlineBalancers().step(state, doomed)[1].items[0]

    assert (made.problem, outline.problem, outline.fingerprint) == (*["no host has room"] * 2, "")
