import re
from pathlib import Path

import pytest

from pileus.cloud.balancer import (
    BalancerSpec,
    Listener,
    Owner,
    Wish,
)
from pileus.cloud.connection import verify
from pileus.cloud.errors import (
    Misconfigured,
    NotFound,
    Rejected,
    Throttled,
    Unavailable,
)
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import (
    Absent,
    Address,
    AddressType,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
    Route,
    SshKey,
    Zone,
)
from pileus.cloud.permission import permitted_by
from pileus.cloud.volume import REGION_LABEL, ZONE_LABEL, Attachment, VolumeSpec
from pileus.fence import Fenced
from pileus_lab.local.capabilities import LocalInstances
from pileus_lab.local.cloud import Behaviour, LocalCloud
from pileus_lab.local.connect import cloud_of, connect
from pileus_lab.local.model.account import AddFault, PutCluster
from pileus_lab.local.model.machines import CreateMachine, DeleteMachine
from pileus_lab.local.model.records import FaultKind
from tests.unit.providers.local.clouds import Hands, local_cloud

OWNER = Owner("c", "u")


def node(name: str, provider_id: str = "", uuid: str = "") -> NodeRef:
    return NodeRef(name=NodeName(name), provider_id=provider_id, system_uuid=uuid)


def spec(**changes: object) -> BalancerSpec:
    plain: dict[str, object] = {
        "listeners": frozenset({Listener(port=80, node_port=30080)}),
        "members": frozenset({node("a"), node("b")}),
    }
    return BalancerSpec(**{**plain, **changes})  # type: ignore[arg-type]


def wish(spec: BalancerSpec | None, **options: str) -> Wish:
    named = {f"local.pileus/{key.replace('_', '-')}": value for key, value in options.items()}
    return Wish(owner=OWNER, spec=spec, name="web", options={**named, "other.io/x": "y"})


async def connected(cloud: LocalCloud) -> Cloud:
    seen = await cloud_of(cloud)
    verify("local", seen)
    return seen


async def test_an_instance_tells_all_that_a_node_needs():
    local = local_cloud()
    machine = await local.call(
        CreateMachine(name="a", type="large", zone="local-1b", external=True, ipv6=True)
    )
    cloud = await connected(local)
    assert cloud.instances

    found = (await cloud.instances.find([node("a")], fresh=True))[NodeName("a")]

    assert found == Instance(
        id=InstanceId(machine.id),
        provider_id=f"local://{machine.id}",
        type="large",
        zone="local-1b",
        region="local-1",
        addresses=(
            Address(AddressType.INTERNAL_IP, "127.77.0.1"),
            Address(AddressType.INTERNAL_IP, "fd77::1"),
            Address(AddressType.EXTERNAL_IP, "127.79.0.1"),
            Address(AddressType.HOSTNAME, "a"),
            Address(AddressType.INTERNAL_DNS, "a.local-1b.local.internal"),
        ),
        names=frozenset({"a"}),
        state=InstanceState.RUNNING,
    )


async def test_a_machine_made_anew_under_an_old_name_is_another_machine():
    local = local_cloud()
    old = await local.call(CreateMachine(name="a"))
    await local.call(DeleteMachine(machine="a"))
    await local.call(CreateMachine(name="a"))
    cloud = await connected(local)
    assert cloud.instances

    found = await cloud.instances.find([node("a", f"local://{old.id}")], fresh=True)

    assert isinstance(found[NodeName("a")], Absent)


async def test_an_absent_machine_is_reported_by_what_it_was_looked_up_by():
    local = local_cloud()
    await local.call(CreateMachine(name="a"))
    cloud = await connected(local)
    assert cloud.instances
    asked = [node("a", uuid="other"), node("b"), node("c", "local://i-9")]

    found = await cloud.instances.find(asked, fresh=True)

    reasons = [str(found[each.name]) for each in asked]
    for reason, identity in zip(reasons, ("system UUID other", 'name "b"', "i-9"), strict=True):
        assert f"{identity} is not among the 1 instances" in reason


async def test_a_node_without_provider_id_is_known_by_its_firmware_before_its_name():
    local = local_cloud()
    machine = await local.call(CreateMachine(name="a"))
    cloud = await connected(local)
    assert cloud.instances

    found = await cloud.instances.find([node("renamed", uuid=machine.uuid.upper())], fresh=True)

    instance = found[NodeName("renamed")]
    assert isinstance(instance, Instance)
    assert instance.id == machine.id


async def test_nothing_is_concluded_from_a_part_of_the_machines():
    local = local_cloud()
    await local.call(CreateMachine(name="a"))
    await local.call(AddFault(kind=FaultKind.PARTIAL, where="instances.*", share=1.0))
    cloud = await connected(local)
    assert cloud.instances

    assert await cloud.instances.find([node("a"), node("b")], fresh=True) == {}


async def test_nothing_is_concluded_from_a_part_of_balancers_routes_or_volumes():
    local = local_cloud()
    cloud = await connected(local)
    assert cloud.balancers
    assert cloud.routes
    assert cloud.volumes
    seen = await cloud.balancers.observe([wish(spec())], deep=True)
    await cloud.balancers.apply(cloud.balancers.changes(wish(spec()), seen[OWNER])[0], seen[OWNER])
    await local.call(AddFault(kind=FaultKind.PARTIAL, share=1.0))

    assert await cloud.balancers.observe([wish(spec())], deep=True) == {}
    with pytest.raises(Unavailable):
        await cloud.balancers.owners("c")
    with pytest.raises(Unavailable):
        await cloud.routes.list_routes("c")
    with pytest.raises(Unavailable):
        await cloud.volumes.list_volumes("blue")


async def test_old_answers_are_given_only_to_those_who_take_them():
    clock = Hands()
    local = local_cloud(clock, behaviour=Behaviour(lag_seconds=10))
    machine = await local.call(CreateMachine(name="a"))
    clock.forward(60)
    await local.call(DeleteMachine(machine="a"))
    cloud = await connected(local)
    assert cloud.instances
    asked = [node("a", f"local://{machine.id}")]

    lagging = await cloud.instances.find(asked, fresh=False)
    fresh = await cloud.instances.find(asked, fresh=True)

    assert isinstance(lagging[NodeName("a")], Instance)
    assert isinstance(fresh[NodeName("a")], Absent)


def test_only_our_own_provider_ids_are_ours():
    from pileus_lab.local.api import owns

    assert owns(node("a", "local://i-1")) is True
    assert owns(node("a", "aws:///eu/i-1")) is False
    assert owns(node("a", "local://")) is False
    assert owns(node("a")) is None


async def test_volumes_are_created_once_per_mark_and_report_where_they_are():
    local = local_cloud()
    machine = await local.call(CreateMachine(name="a", zone="local-1b"))
    instance = InstanceId(machine.id)
    cloud = await connected(local)
    assert cloud.volumes
    places = ({ZONE_LABEL: "elsewhere"}, {ZONE_LABEL: "local-1b"})
    wanted = VolumeSpec(owner=Owner("blue", "pvc-1"), size_gib=10, topologies=places)

    made = await cloud.volumes.create(wanted)
    again = await cloud.volumes.create(wanted)
    attached = await cloud.volumes.attach("blue", made.id, instance)
    grown = await cloud.volumes.resize("blue", made.id, 20)
    same = await cloud.volumes.resize("blue", made.id, 1)
    await cloud.volumes.detach("blue", made.id, instance)
    listed = await cloud.volumes.list_volumes("blue", [made.id])
    await cloud.volumes.delete("blue", made.id)

    assert again == made
    assert made.topology == {ZONE_LABEL: "local-1b", REGION_LABEL: "local-1"}
    assert attached.attachments == (Attachment(instance, "/dev/vdb"),)
    assert grown.size_gib == same.size_gib == 20
    assert listed[made.id].attachments == ()
    assert await cloud.volumes.list_volumes("blue") == {}


async def test_a_volume_in_another_region_is_refused():
    cloud = await connected(local_cloud())
    assert cloud.volumes
    spec = VolumeSpec(
        owner=Owner("blue", "pvc-1"), size_gib=10, topologies=({REGION_LABEL: "far"},)
    )

    with pytest.raises(Rejected, match='region "far" is not that of this cloud, "local-1"'):
        await cloud.volumes.create(spec)


async def test_clusters_and_zones():
    local = local_cloud()
    await local.call(PutCluster(name="blue", master="127.0.0.1:6443"))
    cloud = await cloud_of(local, zone="local-1c")
    assert cloud.clusters
    assert cloud.zones

    assert await cloud.clusters.list_clusters() == ["blue"]
    assert await cloud.clusters.master("blue") == "127.0.0.1:6443"
    with pytest.raises(NotFound):
        await cloud.clusters.master("red")
    assert await cloud.zones.current() == Zone("local-1c", "local-1")


async def test_a_zone_that_does_not_exist_is_refused():
    with pytest.raises(Misconfigured, match='did you mean "local-1'):
        await cloud_of(local_cloud(), zone="local-1d")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("endpont: /x", 'unknown key "endpont" (did you mean "endpoint"?)', id="key"),
        pytest.param("zones: []", "zones must name at least one", id="no zones"),
        pytest.param(
            "bootSeconds: soon", 'bootSeconds: invalid value "soon": must be a number', id="number"
        ),
        pytest.param(
            "balancerPool: 1.2.3.4/8",
            'balancerPool: invalid value "1.2.3.4/8": must be a CIDR',
            id="network",
        ),
        pytest.param("- a", "must hold keys and values", id="list"),
        pytest.param("a: [", "is not YAML", id="syntax"),
    ],
)
async def test_mistakes_in_the_file_are_named_with_the_file(text: str, expected: str):
    config = ProviderConfig(path="/etc/local.yaml", text=text)

    with pytest.raises(Misconfigured, match=f"/etc/local.yaml.*{re.escape(expected)}"):
        async with connect(config):
            pass


@pytest.mark.real_time
async def test_without_a_cloud_one_is_told_how_to_start_it(tmp_path: Path):
    config = ProviderConfig(text=f'{{"endpoint": "{tmp_path}/none.sock"}}')

    with pytest.raises(Unavailable, match="none.sock.*start one with `pileus local serve`"):
        async with connect(config):
            pass


async def test_a_machine_of_the_same_name_and_another_uuid_is_another_one():
    local = local_cloud()
    await local.call(CreateMachine(name="m-1"))
    instances = LocalInstances(local, "local-1")

    found = await instances.find(
        [node("m-1", uuid="0c0c0c0c-0000-4000-8000-000000000001")], fresh=True
    )

    assert isinstance(found[NodeName("m-1")], Absent)


@pytest.mark.parametrize("change", ["routes.create", "routes.delete", "keys.add", "keys.remove"])
async def test_nothing_more_is_changed_once_the_lease_is_lost(change: str):
    local = local_cloud()
    capability, _, method = change.partition(".")
    items = {
        "routes": [Route(destination="10.1.0.0/24", target=NodeName("m-1"))],
        "keys": [SshKey("admin", "ssh-ed25519 AAAA")],
    }[capability]
    before, cloud = local.state, await connected(local)

    with permitted_by(closed):
        if capability == "routes":
            failed = await getattr(cloud.routes, method)("blue", items)
            assert [str(error) for error in failed.values()] == ["request not sent: too old"]
        else:
            with pytest.raises(Unavailable, match="request not sent"):
                await getattr(cloud.ssh_keys, method)("blue", items, [])

    assert local.state == before


def closed() -> None:
    raise Fenced("too old")


async def test_no_second_request_of_a_look_leaves_while_the_cloud_wants_silence():
    """Found by a simulation: keys were listed, and then machines, though others were to wait."""
    local = local_cloud()
    cloud = await connected(local)
    keys, instances = cloud.ssh_keys, cloud.instances
    assert keys
    assert instances
    asked: list[None] = []

    def silent_after_one() -> None:
        asked.append(None)
        if len(asked) > 1:
            raise Throttled("slow down", retry_after=11)

    for look in (
        lambda: keys.list_keys("blue", [node("m-1")]),
        lambda: instances.find([node("m-1")], fresh=False),
    ):
        asked.clear()
        with permitted_by(silent_after_one), pytest.raises(Throttled):
            await look()
        assert len(asked) == 2


async def test_routes_are_not_asked_for_one_by_one_while_the_cloud_wants_silence():
    local = local_cloud()
    cloud = await connected(local)
    assert cloud.routes
    await local.call(CreateMachine(name="a"))
    await local.call(AddFault(kind=FaultKind.THROTTLE, where="routes.create", times=1, seconds=7))
    routes = [Route(destination=f"10.0.{n}.0/24", target=NodeName("a")) for n in range(3)]

    errors = await cloud.routes.create("c", routes)

    assert set(errors) == set(routes)
    assert {type(error) for error in errors.values()} == {Throttled}
    assert await cloud.routes.list_routes("c") == []
