import asyncio
import logging
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest

from pileus.cloud.balancer import Balancer, BalancerState, Ingress, Notice, Owner
from pileus.cloud.errors import CloudError, NotFound, Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.model import Absent, Failure, Instance, InstanceId, NodeKeys, SshKey
from tests.unit.cloud.fakes import (
    OWNER,
    ROUTE,
    WISH,
    Change,
    FakeBalancers,
    FakeInstances,
    FakeRoutes,
    Seen,
    cloud_of,
    equipped,
    instance,
    node,
)

KEY = SshKey("jane", "ssh-ed25519 AAAA")


def raising(error: BaseException):
    def raise_it(*_: object):
        raise error

    return raise_it


async def find(cloud: Cloud, *names: str) -> Any:
    assert cloud.instances
    return await cloud.instances.find([node(name) for name in names], fresh=False)


async def test_a_foreign_error_names_provider_method_and_cause(metrics):
    cloud = equipped(cloud_of(FakeInstances(raising(KeyError("zone")))), metrics)

    with pytest.raises(Unavailable, match="\"fake\" failed in instances.find: KeyError: 'zone'"):
        await find(cloud, "a")


async def test_the_traceback_is_logged_once_per_kind(metrics, caplog):
    cloud = equipped(cloud_of(FakeInstances(raising(KeyError("zone")))), metrics)

    for _ in range(3):
        with pytest.raises(Unavailable):
            await find(cloud, "a")

    assert [r.levelno for r in caplog.records if r.exc_info] == [logging.ERROR]


@pytest.mark.parametrize("error", [NotFound("gone"), KeyboardInterrupt()])
async def test_the_contracts_errors_and_the_users_interrupt_pass(metrics, error):
    cloud = equipped(cloud_of(FakeInstances(raising(error))), metrics)

    with pytest.raises(type(error)) as told:
        await find(cloud, "a")

    assert told.value is error


class Abyss(BaseException):
    pass


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), Abyss("deep")])
async def test_a_provider_that_cancels_itself_or_exits_has_only_failed(metrics, error):
    cloud = equipped(cloud_of(FakeInstances(raising(error))), metrics)

    with pytest.raises(Unavailable, match=f"failed in instances.find: {type(error).__name__}"):
        await find(cloud, "a")


async def test_our_own_cancellation_passes(metrics):
    async def forever() -> object:
        return await asyncio.Event().wait()

    class Hanging(FakeInstances):
        async def find(self, nodes: Any, *, fresh: bool) -> Any:
            return await forever()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(7):
            await find(equipped(cloud_of(Hanging(lambda _: {})), metrics), "a")


async def test_an_answer_for_a_node_that_was_not_asked_is_dropped_and_counted(metrics):
    cloud = equipped(
        cloud_of(FakeInstances(lambda _: {"a": instance("a"), "z": Absent("gone")})), metrics
    )

    assert await find(cloud, "a") == {"a": instance("a")}
    place = {"provider": "fake", "capability": "instances", "method": "find"}
    assert metrics.registry.value("pileus_cloud_odd_answers_total", place) == 1


def odd_instance(**fields: object) -> Instance:
    return replace(instance("a"), **cast("Any", fields))


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        pytest.param(None, "None instead of an Instance", id="None"),
        pytest.param({"id": "a"}, "dict instead of", id="dict"),
        pytest.param(odd_instance(provider_id=None), "provider_id is None", id="no provider ID"),
        pytest.param(odd_instance(zone=7), "zone is int", id="zone"),
        pytest.param(odd_instance(addresses=["10.0.0.1"]), "addresses are not", id="addresses"),
        pytest.param(odd_instance(labels={"a": 1}), "labels are not", id="labels"),
        pytest.param(odd_instance(state="on fire"), "state is 'on fire'", id="state"),
        pytest.param(Absent(cast("str", None)), "Absent instead of", id="no evidence"),
    ],
)
async def test_nonsense_about_one_node_becomes_its_failure_and_harms_no_other(metrics, odd, text):
    cloud = equipped(cloud_of(FakeInstances(lambda _: {"a": odd, "b": instance("b")})), metrics)

    found = await find(cloud, "a", "b")

    assert isinstance(found["a"], Failure)
    assert text in str(found["a"].error)
    assert found["b"] == instance("b")


@pytest.mark.parametrize("answer", [None, [], "text"])
async def test_an_answer_that_is_no_mapping_is_an_error(metrics, answer):
    with pytest.raises(Unavailable, match='"fake" answered instances.find with .* instead of a'):
        await find(equipped(cloud_of(FakeInstances(lambda _: answer)), metrics), "a")


def balancers(metrics, answer) -> Any:
    return equipped(cloud_of(balancers=FakeBalancers(answer)), metrics).balancers


async def test_owners_of_other_clusters_are_never_passed_on(metrics):
    guard = balancers(metrics, lambda: [OWNER, Owner("red", "u1"), "u2"])

    assert await guard.owners("blue") == {OWNER}


async def test_observations_that_nobody_asked_for_are_dropped(metrics):
    answer = {OWNER: Seen(), Owner("blue", "u2"): Seen()}

    assert await balancers(metrics, lambda: answer).observe([WISH], deep=True) == {OWNER: Seen()}


@pytest.mark.parametrize("odd", [None, "text", Failure(cast("Any", KeyError("x")))])
async def test_an_observation_without_a_balancer_fails_for_its_owner_alone(metrics, odd):
    other = Owner("blue", "u2")
    wishes = [WISH, replace(WISH, owner=other)]

    seen = await balancers(metrics, lambda: {OWNER: odd, other: Seen()}).observe(wishes, deep=True)

    assert isinstance(seen[OWNER], Failure)
    assert "which has no `balancer`" in str(seen[OWNER].error)
    assert seen[other] == Seen()


ODD_INGRESS = ["192.0.2.1", ["192.0.2.1"], ("192.0.2.1",), (Ingress(ports=cast("Any", [80])),)]


@pytest.mark.parametrize("ingress", ODD_INGRESS, ids=repr)
async def test_addresses_of_a_wrong_type_fail_for_their_owner_alone(metrics, ingress):
    @dataclass(frozen=True)
    class Odd:
        balancer: Balancer

    odd = Odd(Balancer(id="lb", state=BalancerState.READY, ingress=ingress))
    seen = await balancers(metrics, lambda: {OWNER: odd}).observe([WISH], deep=True)

    assert isinstance(seen[OWNER], Failure)
    assert "Odd whose ingress is" in str(seen[OWNER].error)


ODD_REPORTS: list[tuple[dict[str, Any], str]] = [
    ({"notices": [Notice("Kept", "x")]}, "notices are not a tuple of Notice"),
    ({"notices": ("Kept",)}, "notices are not a tuple of Notice"),
    ({"notices": (Notice("two words", "x"),)}, "instead of one CamelCase word"),
    ({"notices": (Notice(cast("Any", None), "x"),)}, "instead of one CamelCase word"),
    ({"notices": (Notice("Kept", " "),)}, "and a message"),
    ({"annotations": None}, "annotations are no texts"),
    ({"annotations": [("a/b", "c")]}, "annotations are no texts"),
    ({"annotations": {"a/b": 1}}, "annotations are no texts"),
]


@pytest.mark.parametrize(("report", "text"), ODD_REPORTS)
async def test_notices_and_annotations_of_a_wrong_type_fail_for_their_owner_alone(
    metrics, report: dict[str, Any], text: str
):
    @dataclass(frozen=True)
    class Odd:
        balancer: Balancer

    odd = Odd(Balancer(id="lb", state=BalancerState.READY, **report))
    seen = await balancers(metrics, lambda: {OWNER: odd}).observe([WISH], deep=True)

    assert isinstance(seen[OWNER], Failure)
    assert text in str(seen[OWNER].error)


async def test_why_an_owner_is_unknown_is_passed_on(metrics):
    failure = Failure(Unavailable("busy"))

    assert await balancers(metrics, lambda: {OWNER: failure}).observe([WISH], deep=True) == {
        OWNER: failure
    }


async def test_applying_must_say_what_is_there(metrics):
    with pytest.raises(Unavailable, match="balancers.apply with None"):
        await balancers(metrics, lambda: None).apply(Change(), Seen())


async def test_the_pure_part_is_guarded_too(metrics):
    with pytest.raises(Unavailable, match="failed in balancers.changes: ZeroDivisionError"):
        balancers(metrics, raising(ZeroDivisionError("x"))).changes(WISH, Seen())
    with pytest.raises(Unavailable, match="list instead of a tuple of changes"):
        balancers(metrics, list).changes(WISH, Seen())
    with pytest.raises(Unavailable, match="balancers.lock_key"):
        balancers(metrics, raising(KeyError("x"))).lock_key(WISH)


async def test_a_list_of_routes_is_whole_or_an_error(metrics):
    def routes(answer) -> Any:
        return equipped(cloud_of(routes=FakeRoutes(answer)), metrics).routes

    assert await routes(lambda: [ROUTE]).list_routes("blue") == [ROUTE]
    for odd in (lambda: None, lambda: [ROUTE, "10.0.0.0/24"]):
        with pytest.raises(Unavailable, match=r"routes\.list_routes with"):
            await routes(odd).list_routes("blue")


async def test_results_of_routes_are_kept_to_those_asked_for(metrics):
    other = replace(ROUTE, destination="10.0.1.0/24")
    guard = equipped(
        cloud_of(routes=FakeRoutes(lambda: {other: NotFound("x"), ROUTE: "why"})), metrics
    )
    assert guard.routes

    errors = await guard.routes.create("blue", [ROUTE])

    assert set(errors) == {ROUTE}
    assert isinstance(errors[ROUTE], CloudError)


class FakeKeys:
    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def list_keys(self, cluster: str, nodes: object) -> Any:
        return self.answer

    async def add(self, cluster: str, keys: object, nodes: object) -> Any:
        return self.answer

    remove = add


async def test_nonsense_about_the_keys_of_one_node_is_its_failure_alone(metrics):
    right = NodeKeys(frozenset({KEY}))
    answer = {"a": right, "b": [KEY], "c": NodeKeys(frozenset({"x"})), "d": right}  # type: ignore[arg-type]
    keys: Any = equipped(replace(cloud_of(), ssh_keys=FakeKeys(answer)), metrics).ssh_keys

    seen = await keys.list_keys("blue", [node("a"), node("b"), node("c")])

    assert seen["a"] == right
    assert seen.keys() == {"a", "b", "c"}
    assert all(isinstance(seen[name], Failure) for name in "bc")


@pytest.mark.parametrize("method", ["add", "remove"])
async def test_results_of_keys_are_kept_to_the_nodes_asked_for(metrics, method: str):
    answer = {"a": "why", "z": NotFound("x")}
    keys = equipped(replace(cloud_of(), ssh_keys=FakeKeys(answer)), metrics).ssh_keys

    errors = await getattr(keys, method)("blue", [KEY], [node("a"), node("b")])

    assert set(errors) == {"a"}
    assert isinstance(errors["a"], CloudError)


async def test_a_verdict_on_ownership_that_fails_is_unknown(metrics):
    for owns in (raising(KeyError("x")), lambda _: "yes"):
        cloud = equipped(replace(cloud_of(), owns=cast("Any", owns)), metrics)
        assert cloud.owns
        assert cloud.owns(node("a")) is None


async def test_what_is_right_passes_untouched(metrics):
    answer = {
        "a": Instance(id=InstanceId("a"), provider_id="", labels={"k": "v"}),
        "b": Absent("asked by name"),
        "c": Failure(Unavailable("busy")),
    }
    cloud = equipped(cloud_of(FakeInstances(lambda _: answer)), metrics)

    assert await find(cloud, "a", "b", "c") == answer


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        pytest.param("text", "str whose effect is None instead of Effect", id="no change"),
        pytest.param(Change(summary=cast("Any", 7)), "summary is int instead of str", id="summary"),
        pytest.param(Change(part=cast("Any", "all")), "part is str instead of Part", id="part"),
    ],
)
async def test_a_plan_with_an_odd_line_is_no_plan(metrics, odd, text):
    with pytest.raises(Unavailable, match=text):
        balancers(metrics, lambda: (Change(), odd)).changes(WISH, Seen())


async def test_a_plan_that_is_right_passes_untouched(metrics):
    assert balancers(metrics, lambda: (Change(),)).changes(WISH, Seen()) == (Change(),)
