"""The table of methods is complete, and one row is all that a method needs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from pileus.cloud.abilities import Deadlines, Limits
from pileus.cloud.connection import CAPABILITIES, methods
from pileus.cloud.errors import CloudError, Throttled, Unavailable, Unsupported
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.answers import check_node_errors
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.faults import Fail, Rule
from pileus.cloud.middleware.methods import METHODS, Kind, Method
from pileus.cloud.middleware.stack import Equipment, composed, read_only, stacked
from pileus.cloud.model import (
    InstanceId,
    NodeKeys,
    NodeName,
    NodeRef,
    SshKey,
    Zone,
)
from pileus.cloud.volume import (
    Attachment,
    Snapshot,
    SnapshotId,
    SnapshotSpec,
    SnapshotState,
    Volume,
    VolumeCapacity,
    VolumeId,
    VolumeLimits,
    VolumeSpec,
    VolumeState,
)
from pileus.fence import Fenced, Open
from pileus.telemetry.metrics import Metrics
from tests.unit.cloud.fakes import (
    OWNER,
    ROUTE,
    WISH,
    Change,
    Seen,
    equipped,
    instance,
    node,
)

NODE = node("n1")
KEY = SshKey("jane", "ssh-ed25519 AAAA")
V1, I1 = VolumeId("v1"), InstanceId("i1")
S1 = SnapshotId("s1")
VOLUME = Volume(
    id=V1,
    owner=OWNER,
    size_gib=20,
    state=VolumeState.ATTACHED,
    attachments=(Attachment(I1, "/dev/vdb"),),
)
SNAPSHOT = Snapshot(
    id=S1, owner=OWNER, volume=V1, size_gib=10, state=SnapshotState.READY, created_at=1.0
)


@dataclass(frozen=True)
class Example:
    """A call of one method, and a valid answer."""

    arguments: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict[str, object])
    answer: object = None


EXAMPLES = {
    "instances.find": Example(([NODE],), {"fresh": True}, {NODE.name: instance("n1")}),
    "balancers.owners": Example(("blue",), answer=frozenset({OWNER})),
    "balancers.observe": Example(([WISH],), {"deep": True}, {OWNER: Seen()}),
    "balancers.changes": Example((WISH, Seen()), answer=(Change(),)),
    "balancers.apply": Example((Change(), Seen()), answer=Seen()),
    "balancers.lock_key": Example((WISH,), answer="u1"),
    "routes.list_routes": Example(("blue",), answer=[ROUTE]),
    "routes.create": Example(("blue", [ROUTE]), answer={ROUTE: Unavailable("down")}),
    "routes.delete": Example(("blue", [ROUTE]), answer={}),
    "volumes.list_volumes": Example(("blue", [V1]), answer={V1: VOLUME}),
    "volumes.create": Example((VolumeSpec(owner=OWNER, size_gib=10),), answer=VOLUME),
    "volumes.delete": Example(("blue", V1)),
    "volumes.attach": Example(("blue", V1, I1), answer=VOLUME),
    "volumes.detach": Example(("blue", V1, I1)),
    "volumes.resize": Example(("blue", V1, 20), answer=VOLUME),
    "volumes.list_snapshots": Example(("blue", [S1]), answer={S1: SNAPSHOT}),
    "volumes.create_snapshot": Example((SnapshotSpec(owner=OWNER, volume=V1),), answer=SNAPSHOT),
    "volumes.delete_snapshot": Example(("blue", S1)),
    "volumes.limits": Example((I1,), answer=VolumeLimits(attachments=4)),
    "volumes.capacity": Example(("ssd",), answer=VolumeCapacity(available_gib=4)),
    "clusters.list_clusters": Example(answer=["blue"]),
    "clusters.master": Example(("blue",), answer="192.0.2.1"),
    "ssh_keys.list_keys": Example(("blue", [NODE]), answer={NODE.name: NodeKeys()}),
    "ssh_keys.add": Example(("blue", [KEY], [NODE]), answer={NODE.name: Unavailable("down")}),
    "ssh_keys.remove": Example(("blue", [KEY], [NODE]), answer={}),
    "zones.current": Example(answer=Zone("a", "north")),
}
ANSWER_NOTHING = {"volumes.delete", "volumes.detach", "volumes.delete_snapshot"}
WRITES = [method.name for method in METHODS if method.writes]
READS = [method.name for method in METHODS if method.kind is Kind.READ]


class Recorder:
    """Any capability: records its calls, and gives the answers of the examples or another one."""

    def __init__(self, answer: Callable[[Example], object]) -> None:
        self.answer = answer
        self.calls: list[tuple[object, ...]] = []

    def of(self, capability: str) -> "_Capability":
        return _Capability(self, capability)


class _Capability:
    def __init__(self, recorder: Recorder, capability: str) -> None:
        self._recorder = recorder
        self._capability = capability

    def __getattr__(self, attribute: str) -> Callable[..., Any]:
        name = f"{self._capability}.{attribute}"

        def record(*arguments: object, **named: object) -> object:
            self._recorder.calls.append((name, arguments, named))
            return self._recorder.answer(EXAMPLES[name])

        async def call(*arguments: object, **named: object) -> object:
            return record(*arguments, **named)

        is_pure = next(each.kind is Kind.PURE for each in METHODS if each.name == name)
        return record if is_pure else call


def world(
    answer: Callable[[Example], object] = lambda example: example.answer,
) -> tuple[Recorder, Cloud]:
    recorder = Recorder(answer)
    capabilities: dict[str, Any] = {name: recorder.of(name) for name in CAPABILITIES}
    return recorder, Cloud(name="fake", **capabilities)


async def ask(cloud: Cloud, name: str) -> object:
    capability, _, attribute = name.partition(".")
    example = EXAMPLES[name]
    answer = getattr(getattr(cloud, capability), attribute)(*example.arguments, **example.named)
    return await answer if isinstance(answer, Awaitable) else answer


def test_the_table_and_the_examples_have_every_method_of_the_contract() -> None:
    of_the_contract = {
        f"{capability}.{attribute}"
        for capability, protocol in CAPABILITIES.items()
        for attribute in methods(protocol)
    }

    assert [method.name for method in METHODS] == list(EXAMPLES)
    assert of_the_contract == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
async def test_a_call_reaches_the_provider_as_it_was_made_and_so_does_its_answer(
    name: str, metrics: Metrics
) -> None:
    recorder, cloud = world()
    example = EXAMPLES[name]

    answer = await ask(equipped(cloud, metrics), name)

    assert recorder.calls == [(name, example.arguments, example.named)]
    assert answer == example.answer


@pytest.mark.parametrize("name", [*READS, *WRITES])
async def test_every_call_is_counted(name: str, metrics: Metrics) -> None:
    _, cloud = world()

    await ask(equipped(cloud, metrics), name)

    capability, _, method = name.partition(".")
    labels = {"provider": "fake", "capability": capability, "method": method, "result": "success"}
    assert metrics.registry.value("pileus_cloud_calls_total", labels) == 1


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - ANSWER_NOTHING))
async def test_the_answer_of_every_method_is_checked(name: str, metrics: Metrics) -> None:
    _, cloud = world(lambda _: 7)

    with pytest.raises(Unavailable, match=f'"fake" answered {name} with '):
        await ask(equipped(cloud, metrics), name)


@pytest.mark.parametrize(
    ("arguments", "named", "items"),
    [
        (("blue", [V1, V1]), {}, 2),
        (("blue",), {"ids": [V1, V1, V1]}, 3),
        ((), {"cluster": "blue", "ids": None}, 1),
        (("blue",), {}, 1),
    ],
)
def test_the_items_of_a_call_are_those_of_the_last_parameter_it_is_about(
    arguments: tuple[object, ...], named: dict[str, object], items: int
) -> None:
    (method,) = (each for each in METHODS if each.name == "volumes.list_volumes")

    asked = method.asked(arguments, named)

    assert asked == ("blue", named.get("ids", arguments[1] if len(arguments) > 1 else None))
    assert method.items(asked) == items


class Closed:
    def check(self) -> None:
        raise Fenced("the lease is too old")


@pytest.mark.parametrize("name", WRITES)
async def test_no_write_passes_the_fence(name: str, metrics: Metrics) -> None:
    recorder, cloud = world()

    with pytest.raises(Fenced):
        await ask(equipped(cloud, metrics, fence=Closed()), name)

    assert not recorder.calls


@pytest.mark.parametrize("name", WRITES)
async def test_no_write_reaches_a_read_only_provider(name: str) -> None:
    recorder, cloud = world()

    with pytest.raises(Unsupported, match=f"{name} was not sent") as refused:
        await ask(read_only(cloud), name)

    assert not recorder.calls
    assert "ssh-ed25519" not in str(refused.value), "a key is not for logs"


async def test_a_write_that_is_excepted_reaches_a_read_only_provider() -> None:
    recorder, cloud = world()

    await ask(read_only(cloud, but=frozenset({"balancers.apply"})), "balancers.apply")

    assert [name for name, *_ in recorder.calls] == ["balancers.apply"]


@pytest.mark.parametrize("name", READS)
async def test_a_read_only_provider_is_really_read(name: str) -> None:
    recorder, cloud = world()

    await ask(read_only(cloud), name)

    assert [called for called, *_ in recorder.calls] == [name]


# -- a new method of the contract is one row ---------------------------------------------------


class NewZones(Protocol):
    """A contract with a method that Pileus does not have."""

    async def label(self, prefix: str, nodes: Sequence[NodeRef]) -> Mapping[NodeName, CloudError]:
        """Label the nodes with their zone."""
        ...


ROW = Method(
    "zones",
    NewZones.label,
    kind=Kind.WRITE,
    about="nodes",
    check=check_node_errors,
    has_outcomes=True,
)


class Labels:
    def __init__(self, answer: object = None) -> None:
        self.answer = {} if answer is None else answer
        self.labelled: list[str] = []

    async def label(self, prefix: str, nodes: Sequence[NodeRef]) -> Any:
        self.labelled += [prefix + one.name for one in nodes]
        return self.answer


def extended(zones: Labels, metrics: Metrics, fence: Any = None, **parts: Any) -> Any:
    cloud = Cloud(name="fake", zones=zones)  # type: ignore[arg-type]
    return composed(
        cloud,
        metrics=metrics,
        fence=fence or Open(),
        equipment=Equipment(**parts),
        methods=(ROW,),
    ).zones


async def test_a_row_is_enough_for_the_fence_the_metrics_and_the_answer_check(
    metrics: Metrics,
) -> None:
    zones = Labels({"a": NotImplementedError(), "z": Unavailable("down")})

    with pytest.raises(Fenced):
        await extended(zones, metrics, Closed()).label("zone-", [node("a")])
    answer = await extended(zones, metrics).label("zone-", nodes=[node("a"), node("b")])

    assert zones.labelled == ["zone-a", "zone-b"]
    assert isinstance(answer["a"], Unavailable)
    assert answer.keys() == {"a"}, "what was not asked for is dropped"
    labels = {"provider": "fake", "capability": "zones", "method": "label"}
    assert metrics.registry.value("pileus_cloud_call_items_total", labels) == 2


async def test_a_row_is_enough_for_the_budget_and_the_deadline(metrics: Metrics) -> None:
    throttled = Labels({"a": Throttled("slow", retry_after=100)})
    budget = Budget(Limits(), metrics)
    await extended(throttled, metrics, budget=budget).label("", [node("a")])
    with pytest.raises(Throttled):
        await extended(throttled, metrics, budget=budget).label("", [node("a")])

    class Hanging(Labels):
        async def label(self, prefix: str, nodes: Sequence[NodeRef]) -> Any:
            await asyncio.sleep(1e6)

    deadlines = Deadlines(write=7, per_item=1)
    with pytest.raises(Unavailable, match=r"did not answer zones\.label in 8 s"):
        await extended(Hanging(), metrics, deadlines=deadlines).label("", [node("a"), node("b")])


async def test_a_row_is_enough_for_faults(metrics: Metrics) -> None:
    fail = Rule(where="zones.label", fault=Fail(Unavailable("on purpose")))
    cloud = Cloud(name="fake", zones=Labels())  # type: ignore[arg-type]
    equipment = Equipment(faults=(fail,))

    async with stacked(
        cloud, metrics=metrics, fence=Open(), equipment=equipment, methods=(ROW,)
    ) as faulty:
        zones: Any = faulty.zones
        with pytest.raises(Unavailable, match="on purpose"):
            await zones.label("", [node("a")])
