"""What a ported provider is checked for when it connects, and what is logged of its errors."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from pileus.classic import interface
from pileus.classic.adapter import Adapted
from pileus.classic.errors import InstanceNotFound
from pileus.cloud.balancer import Wish
from pileus.cloud.connection import connected
from pileus.cloud.errors import Misconfigured, Unavailable
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import Failure, NodeName, NodeRef, Route, SshKey
from tests.unit.classic.fakes import (
    GONE,
    OWNER,
    Access,
    Provider,
    Recorder,
    View,
    adapted,
    kube_node,
    kube_service,
    wish,
)

ROUTE = Route(destination="10.1.0.0/24", target=NodeName("n1"))


async def refusal_of(provider: object) -> str:
    with pytest.raises(Misconfigured) as refused:
        async with connected("x", Adapted(cast("Any", lambda _: provider)), ProviderConfig()):
            pytest.fail("entered")
    return str(refused.value)


GETTERS = [
    name
    for name in vars(interface.Interface)
    if not name.startswith("_") and name != "initialize"
] + ["provider_id_schemes"]  # fmt: skip


@pytest.mark.parametrize("getter", GETTERS)
async def test_law_every_getter_that_is_async_is_refused_at_connect(getter: str):
    async def late(self: object) -> object:
        return None

    made = type("Acme", (Provider,), {getter: late})()

    assert f"Acme.{getter}() is async: make it a plain method" in await refusal_of(made)


class Partial:
    """A load balancer that lacks methods, and that has one with too few parameters."""

    async def get_load_balancer(self, cluster_name: str, service: object) -> None: ...
    def ensure_load_balancer(self, service: object) -> None: ...


async def test_a_capability_that_cannot_be_called_as_the_framework_does_is_refused_at_connect():
    made = type("Acme", (Provider,), {"load_balancer": lambda _: Partial()})()

    refusal = await refusal_of(made)

    assert refusal.startswith("the provider Acme is incomplete: ")
    assert "load_balancer() (Partial) lacks the method update_load_balancer()" in refusal
    assert "ensure_load_balancer() must take (cluster_name, service, nodes)" in refusal
    assert "get_load_balancer()" not in refusal, "it may be async"


@pytest.mark.parametrize(
    ("getter", "protocol"),
    [
        ("load_balancer", interface.LoadBalancer),
        ("instances", interface.Instances),
        ("instances_v2", interface.InstancesV2),
        ("zones", interface.Zones),
        ("clusters", interface.Clusters),
        ("routes", interface.Routes),
    ],
)
async def test_law_every_method_of_a_capability_is_asked_for(getter: str, protocol: type):
    made = type("Acme", (Provider,), {getter: lambda _: object()})()

    refusal = await refusal_of(made)

    assert [one for one in methods_of(protocol) if f"lacks the method {one}()" not in refusal] == []


async def test_an_initialize_without_its_parameters_is_refused_at_connect():
    made = type("Acme", (Provider,), {"initialize": lambda _: None})()

    assert "initialize() must take (client_builder, stop)" in await refusal_of(made)


class TwoKinds(Provider):
    """As hcloud: virtual machines, and rented servers with a scheme of their own."""

    schemes: Any = ("fake", "bare")

    def provider_id_schemes(self) -> Any:
        return self.schemes


@pytest.mark.parametrize(
    ("provider_id", "owned"),
    [
        ("fake://1", True),
        ("bare://1", True),
        ("other://1", False),
        ("barely://1", False),
        ("", None),
        ("1", None),
    ],
)
async def test_all_declared_schemes_are_the_providers_own(provider_id: str, owned: bool | None):
    cloud = adapted(TwoKinds())
    assert cloud.owns

    assert cloud.owns(NodeRef(name=NodeName("n1"), provider_id=provider_id)) is owned


async def test_the_providers_name_is_always_one_of_its_schemes():
    provider = TwoKinds()
    provider.schemes = ["bare"]
    cloud = adapted(provider)
    assert cloud.owns

    assert cloud.owns(NodeRef(name=NodeName("n1"), provider_id="fake://1")) is True


async def test_without_declared_schemes_the_name_decides():
    assert adapted(Provider()).owns is None


@pytest.mark.parametrize("schemes", ["bare", ["bare://"], [""], [7], None, {"bare": 1}])
async def test_schemes_that_are_none_are_refused_with_an_example(schemes: Any):
    provider = TwoKinds()
    provider.schemes = schemes

    assert 'such as ["hcloud", "hrobot"]' in await refusal_of(provider)


async def _settle(balancers: Any, wanted: Wish) -> None:
    seen = (await balancers.observe([wanted], deep=True))[wanted.owner]
    for change in () if isinstance(seen, Failure) else balancers.changes(wanted, seen):
        await balancers.apply(change, seen)


async def use_everything(cloud: Cloud) -> None:
    """Calls each method of the provider at least once; errors are what the tests look for."""
    node, other = NodeRef(name=NodeName("n1")), "10.2.0.0/24"
    service = replace(OWNER, uid="s1")
    work: list[Callable[[], Awaitable[object]]] = []
    if cloud.instances:
        work += [partial(cloud.instances.find, [node], fresh=each) for each in (True, False)]
    if cloud.routes:
        gone = Route(destination=other, target=None)
        work += [
            partial(cloud.routes.list_routes, "uid"),
            partial(cloud.routes.create, "uid", [ROUTE]),
            partial(cloud.routes.delete, "uid", [gone]),
        ]
    if cloud.balancers:
        for wanted in (wish("n1"), wish("n2"), GONE):
            work.append(partial(_settle, cloud.balancers, replace(wanted, owner=service)))
    if cloud.ssh_keys:
        work.append(partial(cloud.ssh_keys.add, "any", [SshKey("ops", "ssh-rsa AAAA")], [node]))
    if cloud.zones:
        work.append(cloud.zones.current)
    for each in work:
        with suppress(Unavailable):
            await each()


NOT_CALLED = {"current_node_name", "name"}
"""By the Go framework neither."""


def methods_of(*fakes: type) -> set[str]:
    return {name for fake in fakes for name in vars(fake) if not name.startswith("_")}


RECORDED = {
    "get_load_balancer": "get",
    "get_load_balancer_name": "name",
    "ensure_load_balancer": "ensure",
    "update_load_balancer": "update",
    "ensure_load_balancer_deleted": "delete",
}
METHODS = {
    RECORDED.get(name, name)
    for name in methods_of(
        interface.Instances,
        interface.InstancesV2,
        interface.Zones,
        interface.LoadBalancer,
        interface.Routes,
    )
}


@pytest.mark.parametrize("method", sorted(METHODS - NOT_CALLED))
async def test_law_whatever_method_raises_its_traceback_is_logged(
    caplog: pytest.LogCaptureFixture, method: str
):
    answers: dict[str, Any] = {method: KeyError("deep inside")}
    by_name = {"node_addresses", "instance_type", "get_zone_by_node_name"}
    if method in by_name:  # asked only if asking by provider ID failed
        answers[method.replace("_by_node_name", "") + "_by_provider_id"] = InstanceNotFound()
    v1 = {"v1", "zones", "routes", "balancer"}
    is_v2 = method in methods_of(interface.InstancesV2)
    provider = Provider(Recorder(answers), offers=frozenset({"v2"} if is_v2 else v1))
    cloud = adapted(provider)
    assert cloud.leading
    view = View({"n1": kube_node("n1"), "n2": kube_node("n2")}, {"s1": kube_service()})

    async with cloud.leading(Access(view)):
        await use_everything(cloud)

    traced = [each for each in caplog.records if each.exc_info]
    assert [each.getMessage() for each in traced] == [
        "Cloud provider raised an unexpected exception"
    ]
    assert provider.record.names.count(method) >= 1
