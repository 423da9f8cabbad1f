"""A kubelet claims a machine that is not its own: its node is refused."""

import asyncio

import pytest

from pileus.controllers.node.identity import Machine, has_name, refusal
from pileus.controllers.node.plan import CONDITION
from pileus.controllers.node.settings import IdentityRule
from pileus.objects.nodes import condition_of, is_unchecked_claim, is_uninitialized
from tests.unit.controllers.node.objects import Document, document, instance, node, typed
from tests.unit.controllers.node.test_controller import Site, running, site

DB = "fake://i-db"
MACHINE = Machine(DB, frozenset({"db"}))
NAME, BY_ID = IdentityRule.NAME, IdentityRule.PROVIDER_ID


@pytest.mark.parametrize(
    ("name", "names", "same"),
    [
        ("db", {"db"}, True),
        ("db", {"DB"}, True),
        ("db.internal", {"db"}, True),
        ("db", {"db.internal"}, True),
        ("db.evil", {"db.internal"}, False),
        ("db", {"other", "db"}, True),
        ("db-1", {"db"}, False),
        ("worker", {"db"}, False),
        ("worker", set[str](), False),
    ],
)
def test_names_are_equal_in_any_case_and_with_or_without_a_domain(
    name: str, names: set[str], same: bool
) -> None:
    assert has_name(name, names) is same


def older(name: str) -> Document:
    made = document(name, taints=(), provider_id=DB)
    return {**made, "metadata": {**made["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}}  # type: ignore[dict-item]


def test_a_machine_is_claimed_by_its_name_and_by_one_node() -> None:
    worker, db = node("worker", provider_id=DB), node("db", provider_id=DB)
    nameless, first = Machine(DB), typed(older("first"))

    assert refusal(db, MACHINE, (), NAME) is None
    assert refusal(db, MACHINE, [first], NAME) is None
    assert "is named db, and this node worker" in str(refusal(worker, MACHINE, (), NAME))
    assert refusal(worker, MACHINE, (), BY_ID) is None
    assert "node db has the same provider ID" in str(refusal(worker, MACHINE, [db], BY_ID))
    assert refusal(worker, nameless, (), NAME) is None
    assert "node first has the same" in str(refusal(worker, nameless, [first], NAME))
    assert refusal(first, nameless, [worker], NAME) is None
    assert refusal(node("worker"), MACHINE, (), NAME) is None, "the cloud found it by other means"


@pytest.mark.parametrize(
    ("names", "first", "second"),
    [
        pytest.param({"db"}, "db", "db.evil", id="domain"),
        pytest.param({"db.internal"}, "db.internal", "db", id="short"),
        pytest.param({"db.internal"}, "db", "db.internal", id="long"),
        pytest.param({"db", "worker"}, "db", "worker", id="two-names"),
        pytest.param({"db"}, "db.a", "db.b", id="two-domains"),
    ],
)
def test_a_machine_has_one_node_whatever_names_it_may_have(
    names: set[str], first: str, second: str
) -> None:
    machine = Machine(DB, frozenset(names))
    known, other = typed(older(first)), node(second, provider_id=DB)

    assert refusal(known, machine, (), NAME) is None
    assert "one machine has one node" in str(refusal(other, machine, [known], NAME))
    assert refusal(known, machine, [other], NAME) is None


def test_a_younger_node_wins_if_the_domain_of_the_older_one_is_not_the_machines() -> None:
    stranger, db = typed(older("db.evil")), node("db", provider_id=DB)

    assert refusal(db, MACHINE, [stranger], NAME) is None
    assert "node db has the same" in str(refusal(stranger, MACHINE, [db], NAME))


def claiming(*, tainted: bool) -> tuple[Site, Document]:
    at = site([document("db", provider_id=DB)], {})
    machine = instance("db", names=frozenset({"db"}))
    at.cloud.answers.update({"db": machine, "worker": machine})
    taints = document("x")["spec"]["taints"] if tainted else ()  # type: ignore[index]
    return at, document("worker", provider_id=DB, taints=taints)


@pytest.mark.parametrize("tainted", [True, False], ids=["with-taint", "without-taint"])
async def test_a_node_that_claims_the_machine_of_another_one_is_refused(tainted: bool) -> None:
    at, hostile = claiming(tainted=tainted)
    async with running(at):
        await asyncio.sleep(5)
        at.server.put(hostile)
        await asyncio.sleep(30)

    assert at.uninitialized() == ["worker"]
    refused = typed(at.server.documents["worker"])
    condition = condition_of(refused, CONDITION)
    assert condition is not None
    assert condition.reason == "NodeIdentityRefused"
    assert is_unchecked_claim(refused)
    assert "NodeIdentityRefused" in at.events.reasons("worker")
    assert not any("InternalIP" in str(each) for each in refused.status.addresses or ())  # type: ignore[union-attr]


REGIONAL = "fake://region/i-db"


@pytest.mark.parametrize("tainted", [True, False], ids=["with-taint", "without-taint"])
async def test_a_machine_has_one_node_whatever_form_its_provider_id_has(tainted: bool) -> None:
    first = {**document("db", taints=(), provider_id=REGIONAL)}
    machine = instance("db", aliases=frozenset({REGIONAL, DB}), names=frozenset({"db", "worker"}))
    at = site([first], {"db": machine, "worker": machine})
    taints = document("x")["spec"]["taints"] if tainted else ()  # type: ignore[index]
    async with running(at):
        await asyncio.sleep(5)
        at.server.put(document("worker", provider_id=DB, taints=taints))
        await asyncio.sleep(30)

    assert at.uninitialized() == ["worker"]
    assert "NodeIdentityRefused" in at.events.reasons("worker")


async def test_a_node_with_another_form_of_its_provider_id_is_checked_once() -> None:
    machine = instance("db", aliases=frozenset({REGIONAL}), names=frozenset({"db"}))
    at = site([], {"db": machine})
    async with running(at):
        await asyncio.sleep(5)
        at.server.put(document("db", provider_id=REGIONAL, taints=()))
        await asyncio.sleep(5)
        at.cloud.answers["db"] = instance("renamed", names=frozenset({"renamed"}))
        at.server.put(document("db", provider_id=REGIONAL, taints=(), labels={"a": "b"}))
        await asyncio.sleep(5)

    assert len(at.cloud.calls) == 1
    assert at.uninitialized() == []


async def test_a_refused_node_is_refused_after_a_restart() -> None:
    at, hostile = claiming(tainted=False)
    async with running(at):
        await asyncio.sleep(5)
        at.server.put(hostile)
        await asyncio.sleep(5)
    async with running(at):
        await asyncio.sleep(30)

    assert at.uninitialized() == ["worker"]


async def test_a_machine_that_is_given_the_name_of_the_node_is_accepted() -> None:
    at, hostile = claiming(tainted=False)
    at.server.remove("db")
    async with running(at):
        await asyncio.sleep(5)
        at.server.put(hostile)
        await asyncio.sleep(5)
        at.cloud.answers["worker"] = instance("db", names=frozenset({"db", "worker"}))
        await asyncio.sleep(600)

    assert at.uninitialized() == []


async def test_nodes_that_exist_at_the_start_keep_their_machines() -> None:
    at, node_of_go = claiming(tainted=False)
    at.server.put(node_of_go)
    async with running(at):
        await asyncio.sleep(600)

    assert not is_uninitialized(typed(at.server.documents["worker"]))
