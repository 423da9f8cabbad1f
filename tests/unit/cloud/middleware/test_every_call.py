"""What stands around every call stands around every method of every capability."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from pileus.cloud.balancer import Balancers
from pileus.cloud.errors import Unsupported
from pileus.cloud.interface import Cloud, Clusters, Instances, Routes, SshKeys, Volumes, Zones
from pileus.cloud.middleware.calls import Call, wrap
from pileus.cloud.middleware.fenced import fenced
from pileus.cloud.middleware.read_only import read_only
from pileus.cloud.model import InstanceId, SshKey, VolumeId, VolumeSpec
from pileus.fence import Fenced
from tests.unit.cloud.fakes import ROUTE, WISH, Change, Seen, node

T = TypeVar("T")

PROTOCOLS: dict[str, type] = {
    "instances": Instances,
    "balancers": Balancers,
    "routes": Routes,
    "volumes": Volumes,
    "clusters": Clusters,
    "ssh_keys": SshKeys,
    "zones": Zones,
}
V1, I1 = VolumeId("v1"), InstanceId("i1")
NODE = node("n1")
KEY = SshKey("jane", "ssh-ed25519 AAAA")

READS: dict[str, tuple[object, ...]] = {
    "instances.find": ([NODE],),
    "balancers.owners": ("blue",),
    "balancers.observe": ([WISH],),
    "routes.list_routes": ("blue",),
    "volumes.list_volumes": ([V1],),
    "clusters.list_clusters": (),
    "clusters.master": ("blue",),
    "ssh_keys.list_keys": ("blue", [NODE]),
    "zones.current": (),
}
WRITES: dict[str, tuple[object, ...]] = {
    "balancers.apply": (Change(), Seen()),
    "routes.create": ("blue", [ROUTE]),
    "routes.delete": ("blue", [ROUTE]),
    "volumes.create": (VolumeSpec(mark="claim", size_gib=10),),
    "volumes.delete": (V1,),
    "volumes.attach": (V1, I1),
    "volumes.detach": (V1, I1),
    "volumes.resize": (V1, 20),
    "ssh_keys.add": ("blue", [KEY], [NODE]),
    "ssh_keys.remove": ("blue", [KEY], [NODE]),
}
NAMED: dict[str, dict[str, object]] = {
    "instances.find": {"fresh": True},
    "balancers.observe": {"deep": True},
}
WITHOUT_ANSWER = {"volumes.delete", "volumes.detach"}


class Recorder:
    """Any capability: notes what it is asked, and answers with the method's name."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def __getattr__(self, method: str) -> Callable[..., Awaitable[object]]:
        async def call(*arguments: object, **named: object) -> object:
            self.asked.append((method, *arguments, named))
            return method

        return call


def world() -> tuple[Recorder, Cloud]:
    recorder = Recorder()
    capabilities: dict[str, Any] = dict.fromkeys(PROTOCOLS, recorder)
    return recorder, Cloud(name="fake", **capabilities)


async def ask(cloud: Cloud, name: str, arguments: tuple[object, ...]) -> object:
    capability, _, method = name.partition(".")
    return await getattr(getattr(cloud, capability), method)(*arguments, **NAMED.get(name, {}))


def test_the_methods_below_are_all_there_are() -> None:
    there_are = {
        f"{capability}.{name}"
        for capability, protocol in PROTOCOLS.items()
        for name, _ in inspect.getmembers(protocol, inspect.iscoroutinefunction)
    }

    assert there_are == READS.keys() | WRITES.keys()


@pytest.mark.parametrize("name", [*READS, *WRITES])
async def test_a_call_is_told_and_reaches_the_provider_as_it_was_made(name: str) -> None:
    recorder, cloud = world()
    calls: list[Call] = []

    async def around(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        calls.append(call)
        return await proceed()

    arguments = (READS | WRITES)[name]
    method = name.partition(".")[2]

    answer = await ask(wrap(cloud, around), name, arguments)

    assert [(call.name, call.writes) for call in calls] == [(name, name in WRITES)]
    assert recorder.asked == [(method, *arguments, NAMED.get(name, {}))]
    assert answer == (None if name in WITHOUT_ANSWER else method)


class Closed:
    def check(self) -> None:
        raise Fenced("the lease is too old")


@pytest.mark.parametrize("name", WRITES)
async def test_no_write_passes_the_fence(name: str) -> None:
    recorder, cloud = world()

    with pytest.raises(Fenced):
        await ask(fenced(cloud, Closed()), name, WRITES[name])

    assert not recorder.asked


@pytest.mark.parametrize("name", WRITES)
async def test_no_write_reaches_a_provider_that_is_only_looked_at(name: str) -> None:
    recorder, cloud = world()

    with pytest.raises(Unsupported, match=f"{name}: not done") as refused:
        await ask(read_only(cloud), name, WRITES[name])

    assert not recorder.asked
    assert "ssh-ed25519" not in str(refused.value), "a key is nobody's business"


@pytest.mark.parametrize("name", READS)
async def test_a_provider_that_is_only_looked_at_is_read_for_real(name: str) -> None:
    recorder, cloud = world()

    answer = await ask(read_only(cloud), name, READS[name])

    assert recorder.asked == [(answer, *READS[name], NAMED.get(name, {}))]
