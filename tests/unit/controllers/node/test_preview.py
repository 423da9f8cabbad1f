"""What the node controller says beforehand is what it does."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import Unavailable
from pileus.cloud.model import Absent, Failure, Instance
from pileus.controllers.node.patches import StatusWrite, Write
from pileus.controllers.node.preview import NodePreview
from pileus.objects.preview import EVERYTHING, Place, Planned, Scope, Trouble
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.unit.controllers.node.harness import World
from tests.unit.controllers.node.objects import (
    OTHER_TAINT,
    TAINT,
    Document,
    document,
    external,
    instance,
    internal,
)

STUCK = {"type": "CloudProviderUninitialized", "status": "True", "reason": "InstanceNotFound"}


async def preview(
    world: World, scope: Scope = EVERYTHING, *, sync_labels: bool = False
) -> Sequence[Planned | Trouble]:
    return await NodePreview(world.tools, sync_labels).of(scope)


async def pass_over(world: World) -> None:
    for name in [*world.nodes.documents, *world.nodes.documents]:
        await world.reconciler.reconcile(name)
    await world.refresher.round()


async def test_a_new_node_is_planned_in_two_writes_with_all_that_they_change() -> None:
    world = World([document()], {"n1": instance(labels={"example.com/rack": "r7"})})

    status, whole = await preview(world)

    assert isinstance(status, Planned)
    assert isinstance(whole, Planned)
    assert (status.about.name, status.about.uid) == ("n1", "uid-n1")
    assert (status.effect, status.place) == (Effect.UPDATE, Place.CLUSTER)
    assert status.summary == "addresses"
    assert status.details == ("status.addresses: Hostname n1 → InternalIP 10.0.0.1, Hostname n1",)
    assert whole.summary == "provider ID, labels, initialized"
    assert whole.details[0] == 'spec.providerID: "" → "fake://i-n1"'
    assert 'metadata.labels[example.com/rack]: "r7"' in whole.details
    assert whole.details[-1] == (
        "spec.taints: without node.cloudprovider.kubernetes.io/uninitialized"
    )


async def test_a_preview_writes_nothing_and_tells_nobody() -> None:
    world = World([document()], {"n1": instance()})

    assert await preview(world)

    assert (world.nodes.writes, world.nodes.reads, world.events.told) == ([], 0, [])


async def test_a_label_that_changes_is_shown_before_and_after() -> None:
    labels = {"node.kubernetes.io/instance-type": "m0"}
    world = World([document(labels=labels)], {"n1": instance()})

    whole = (await preview(world))[1]

    assert isinstance(whole, Planned)
    assert 'metadata.labels[node.kubernetes.io/instance-type]: "m0" → "m1"' in whole.details


@pytest.mark.parametrize(
    ("taints", "answer", "reason"),
    [
        pytest.param((TAINT,), Absent("asked for i-1"), "InstanceNotFound", id="new, absent"),
        pytest.param((TAINT,), None, "CloudUnavailable", id="new, unknown"),
        pytest.param((), None, "CloudUnavailable", id="unknown"),
        pytest.param((), Failure(Unavailable("busy")), "CloudUnavailable", id="failed"),
    ],
)
async def test_where_the_cloud_does_not_say_there_is_trouble_and_a_new_node_will_say_so(
    taints: Sequence[object], answer: object, reason: str
) -> None:
    world = World([document(taints=taints)], {"n1": answer} if answer else {})

    *reports, trouble = await preview(world)

    assert isinstance(trouble, Trouble)
    assert (trouble.about.name, trouble.reason) == ("n1", reason)
    shown = [(line.details, line.waits_for) for line in reports if isinstance(line, Planned)]
    condition = f'status.conditions[CloudProviderUninitialized]: none → "True" ({reason})'
    is_new = bool(taints)
    assert shown == ([((condition,), "the failure to last for 10 s")] if is_new else [])


async def test_an_initialized_node_whose_machine_is_gone_is_not_this_controllers_matter() -> None:
    world = World([document(taints=())], {"n1": Absent("asked for i-1")})

    assert await preview(world) == []


async def test_what_is_left_out_of_the_clouds_answer_is_told_as_trouble() -> None:
    world = World([document()], {"n1": instance(labels={"-": "x"})})

    lines = await preview(world)

    assert [each.reason for each in lines if isinstance(each, Trouble)] == ["CloudLabelSkipped"]
    assert len([each for each in lines if isinstance(each, Planned)]) == 2


async def test_a_node_address_that_cannot_be_given_is_trouble() -> None:
    asked = {"alpha.kubernetes.io/provided-node-ip": "10.9.9.9"}
    world = World([document(annotations=asked)], {"n1": instance()})

    report, trouble = await preview(world)

    assert isinstance(trouble, Trouble)
    assert trouble.reason == "ProvidedNodeIPRefused"
    assert isinstance(report, Planned)
    assert report.details[0].endswith('none → "True" (ProvidedNodeIPRefused)')


async def test_a_scope_asks_the_cloud_about_its_node_only() -> None:
    world = World([document("n1"), document("n2")], {"n1": instance(), "n2": instance("n2")})

    lines = await preview(world, Scope("Node", "", "n2"))

    assert {each.about.name for each in lines} == {"n2"}
    assert world.cloud.calls == [("n2",)]


async def test_another_kind_costs_no_call() -> None:
    world = World([document()], {"n1": instance()})

    assert await preview(world, Scope("Service", "default", "n1")) == []
    assert world.cloud.calls == []


async def test_a_node_being_deleted_is_left_out() -> None:
    leaving = document()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"  # type: ignore[index]
    world = World([leaving], {"n1": instance()})

    assert await preview(world) == []


nodes = st.builds(
    document,
    taints=st.sampled_from([(TAINT,), (), (OTHER_TAINT, TAINT), (OTHER_TAINT,)]),
    labels=st.dictionaries(
        st.sampled_from([
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
            "example.com/rack",
        ]),
        st.sampled_from(["z0", "z1"]),
    ),
    addresses=st.sampled_from([(), (("Hostname", "n1"),), (("InternalIP", "10.0.0.1"),)]),
    provider_id=st.sampled_from(["", "fake://i-n1"]),
    conditions=st.sampled_from([(), ({"type": "Ready", "status": "True"},), (STUCK,)]),
)
machines = st.builds(
    instance,
    addresses=st.sampled_from([(), (internal("10.0.0.1"),), (external("1.2.3.4"),)]),
    labels=st.sampled_from([{}, {"example.com/rack": "z1"}]),
    zone=st.sampled_from(["", "z1"]),
)


@given(nodes, machines, st.booleans())
@settings(max_examples=150)
def test_what_is_planned_is_what_the_passes_write_and_then_nothing_is_planned(
    node: Document, machine: Instance, sync_labels: bool
) -> None:
    async def scenario() -> None:
        world = World([node], {"n1": machine}, sync_labels=sync_labels)
        planned = await preview(world, sync_labels=sync_labels)
        await pass_over(world)

        assert [each.summary for each in planned if isinstance(each, Planned)] == [
            ", ".join(_words(write)) for _, write in world.nodes.writes
        ]
        assert await preview(world, sync_labels=sync_labels) == []

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scenario())


def _words(write: Write) -> Iterator[str]:
    if isinstance(write, StatusWrite):
        yield from ["addresses"] * (write.addresses is not None)
        yield from ["condition CloudProviderUninitialized"] * (write.condition is not None)
        return
    yield from ["provider ID"] * bool(write.provider_id)
    yield from ["labels"] * bool(write.labels)
    yield from ["initialized"] * write.untaint
