import pytest

from pileus.cloud.errors import CloudError, NotFound, Throttled, Unavailable
from pileus.cloud.model import Absent, Address, AddressType, Failure
from pileus.controllers.node.observation import Facts, look_up
from pileus.kube.model.core_v1 import Node
from pileus.kube.model.meta import ObjectMeta
from pileus.objects.nodes import reference
from tests.unit.controllers.node.harness import FakeInstances
from tests.unit.controllers.node.objects import instance, node


async def answer_to(found: object) -> Facts | CloudError:
    return (await look_up(FakeInstances({"n1": found}), [node("n1")]))["n1"]


async def test_an_instance_becomes_facts() -> None:
    facts = await answer_to(instance())

    assert isinstance(facts, Facts)
    assert facts.provider_id == "fake://i-n1"


async def test_absent_and_unknown_are_told_apart() -> None:
    absent = await answer_to(Absent("GET /servers?name=n1: empty"))
    unknown = (await look_up(FakeInstances({}), [node("n1")]))["n1"]

    assert isinstance(absent, NotFound)
    assert "GET /servers?name=n1" in str(absent)
    assert isinstance(unknown, Unavailable)


async def test_one_nodes_failure_is_its_own() -> None:
    error = Throttled("slow down", retry_after=7)
    cloud = FakeInstances({"n1": Failure(error), "n2": instance("n2")})

    answers = await look_up(cloud, [node("n1"), node("n2")])

    assert answers["n1"] is error
    assert isinstance(answers["n2"], Facts)
    assert len(cloud.calls) == 1


async def test_an_answer_about_a_node_that_was_not_asked_for_is_ignored() -> None:
    cloud = FakeInstances({})
    cloud.whole = {"other": instance("other")}

    answers = await look_up(cloud, [node("n1")])

    assert set(answers) == {"n1"}
    assert isinstance(answers["n1"], Unavailable)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param("i-1", id="text"),
        pytest.param(instance(addresses=None), id="no list of addresses"),
        pytest.param(instance(addresses=("10.0.0.1",)), id="addresses that are text"),
        pytest.param(instance(labels=None), id="no mapping of labels"),
        pytest.param(instance(provider_id=None), id="no provider ID"),
        pytest.param(Failure("oops"), id="a failure without an error"),  # type: ignore[arg-type]
    ],
)
async def test_a_wrong_type_is_a_bug_of_the_provider_and_said_so(found: object) -> None:
    answer = await answer_to(found)

    assert isinstance(answer, CloudError)
    assert "bug" in str(answer)


@pytest.mark.parametrize(
    "whole",
    [
        pytest.param(ZeroDivisionError("division by zero"), id="raises anything"),
        pytest.param([], id="returns a list"),
        pytest.param(7, id="returns a number"),
    ],
)
async def test_a_broken_provider_harms_only_the_nodes_asked_for(whole: object) -> None:
    cloud = FakeInstances({})
    cloud.whole = whole

    answers = await look_up(cloud, [node("n1"), node("n2")])

    assert all("bug" in str(answer) for answer in answers.values())
    assert set(answers) == {"n1", "n2"}


async def test_a_provider_that_hangs_is_given_up_on() -> None:
    cloud = FakeInstances({"n1": instance()}, takes=1e6)

    answer = (await look_up(cloud, [node("n1")], deadline=30))["n1"]

    assert isinstance(answer, Unavailable)
    assert "30 s" in str(answer)


def test_a_provider_sees_all_that_may_help_to_find_the_machine() -> None:
    seen = node(
        "n1",
        provider_id="fake://7",
        labels={"a": "b"},
        annotations={"c": "d"},
        addresses=[("InternalIP", "10.0.0.1"), ("Odd", "x")],
    )

    ref = reference(seen)

    assert (ref.name, ref.provider_id, ref.system_uuid) == ("n1", "fake://7", "uuid-n1")
    assert ref.addresses == (Address(AddressType.INTERNAL_IP, "10.0.0.1"), Address("Odd", "x"))
    assert (ref.labels, ref.annotations) == ({"a": "b"}, {"c": "d"})


def test_a_bare_node_can_be_asked_about() -> None:
    assert reference(Node(metadata=ObjectMeta(name="n1"))).name == "n1"
