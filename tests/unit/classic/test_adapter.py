import asyncio
import io
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pytest

from pileus.classic import interface
from pileus.classic.adapter import Adapted
from pileus.classic.errors import (
    DiskNotFound,
    ImplementedElsewhere,
    InstanceNotFound,
    Unimplemented,
)
from pileus.classic.registry import (
    cloud_providers,
    get_cloud_provider,
    init_cloud_provider,
    is_cloud_provider,
    is_external,
    register_cloud_provider,
)
from pileus.classic.stop import Stop, stopping
from pileus.cloud.balancer import Wish
from pileus.cloud.connection import connected
from pileus.cloud.errors import Misconfigured, Unavailable
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import (
    Address,
    AddressType,
    Failure,
    NodeName,
    NodeRef,
    Route,
    SshKey,
    Zone,
)
from pileus.cloud.registry import DuplicateProvider, Registry, UnknownProvider
from pileus.kube.model.core_v1 import NodeAddress
from tests.unit.classic.fakes import (
    GONE,
    OWNER,
    Access,
    InformedProvider,
    Provider,
    Recorder,
    View,
    adapted,
    kube_node,
    kube_service,
    wish,
)


def test_the_sentinels_have_gos_texts():
    texts = [
        str(e()) for e in (InstanceNotFound, Unimplemented, ImplementedElsewhere, DiskNotFound)
    ]

    assert texts == [
        "instance not found",
        "unimplemented",
        "implemented by alternate to cloud provider",
        "disk is not found",
    ]


async def test_the_factory_gets_the_config_stream_or_nothing():
    streams: list[str | None] = []

    def factory(config: Any) -> Provider:
        streams.append(None if config is None else config.read())
        return Provider()

    for text in ("region: r", None):
        async with connected("fake", Adapted(factory), ProviderConfig(text=text)) as cloud:
            assert cloud.name == "fake"

    assert streams == ["region: r", None]


async def test_what_a_provider_does_not_support_is_no_capability():
    cloud = adapted(Provider(offers=frozenset()))

    assert (cloud.instances, cloud.balancers, cloud.routes, cloud.zones) == (None,) * 4


async def test_small_capabilities_come_along():
    provider = Provider(offers=frozenset({"v1", "zones"}))
    cloud = adapted(provider)
    assert cloud.zones
    assert cloud.ssh_keys

    await cloud.ssh_keys.add("any", [SshKey("ops", "ssh-ed25519 AAAA")], [])

    assert await cloud.zones.current() == Zone("r-a", "r")
    assert provider.record.calls[0] == ("add_ssh_key_to_all_instances", "ops", b"ssh-ed25519 AAAA")


async def test_an_incomplete_provider_is_refused_by_what_it_lacks():
    with pytest.raises(Misconfigured, match=r"made a str, which lacks: initialize\(\), load_ba"):
        async with connected("x", Adapted(cast("Any", lambda _: "text")), ProviderConfig()):
            pytest.fail("entered")


async def test_initialize_comes_with_leadership_then_informers_and_stop_at_the_end():
    provider = InformedProvider()
    cloud = adapted(provider)
    assert cloud.leading
    assert provider.record.calls == []

    async with cloud.leading(Access(View())):
        assert provider.record.names == ["initialize", "set_informers"]
        builder = provider.record.calls[0][1]
        assert builder.client_or_die("routes") == "client of routes"
        with pytest.raises(LookupError):
            builder.config("routes")
        with pytest.raises(SystemExit, match='no access to the cluster as "routes"'):
            builder.config_or_die("routes")
        assert not provider.stop.is_set()

    assert provider.stop.is_set()
    async with cloud.leading(Access(View())):
        assert provider.record.names.count("initialize") == 2


async def test_leading_without_a_view_is_refused():
    cloud = adapted(Provider())
    assert cloud.leading

    with pytest.raises(Misconfigured, match="need a view"):
        async with cloud.leading(Access(None)):
            pytest.fail("entered")


@pytest.mark.real_time
async def test_background_work_is_awaited_at_the_end():
    ended: list[str] = []

    async with stopping() as stop:

        async def task() -> None:
            await stop.stopped()
            ended.append("task")

        def thread() -> None:
            stop.wait()
            ended.append("thread")

        stop.background(task)
        stop.background(thread)

    assert sorted(ended) == ["task", "thread"]


async def test_background_work_that_does_not_end_is_abandoned():
    async def deaf() -> None:
        await asyncio.sleep(1e6)

    async with stopping() as stop:
        stop.background(deaf)
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() == pytest.approx(11)


async def test_background_work_that_fails_begins_again_and_harms_nobody():
    begun: list[float] = []

    async def crashing() -> None:
        begun.append(asyncio.get_running_loop().time())
        raise KeyError("zone")

    async with stopping() as stop:
        stop.background(crashing)
        await asyncio.sleep(60)

    assert 4 <= len(begun) <= 7  # ever later, no busy loop
    assert asyncio.get_running_loop().time() == pytest.approx(60)  # nobody waits for its next try


@pytest.mark.real_time
async def test_a_failing_thread_begins_again_too():
    begun: list[str] = []

    def crashing() -> None:
        begun.append("once more")
        if len(begun) == 1:
            raise KeyError("zone")
        stop.wait()

    async with stopping() as stop:
        stop.background(crashing)
        async with asyncio.timeout(30):
            while len(begun) < 2:
                await asyncio.sleep(0.05)


async def test_background_work_that_fails_at_the_end_is_not_begun_again():
    async def crashing(stop: Stop) -> None:
        await stop.stopped()
        raise KeyError("zone")

    async with stopping() as stop:
        stop.background(partial(crashing, stop))
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() == pytest.approx(1)


async def test_an_error_of_the_block_comes_out_as_it_is_after_the_stop():
    heard: list[str] = []

    async def task(stop: Stop) -> None:
        await stop.stopped()
        heard.append("stop")

    async def fail() -> None:
        async with stopping() as stop:
            stop.background(partial(task, stop))
            raise KeyError("ours")

    with pytest.raises(KeyError):
        await fail()

    assert heard == ["stop"]


ROUTE = Route(destination="10.1.0.0/24", target=NodeName("n1"))


async def test_routes_are_passed_on_one_by_one_with_the_nodes_uid_as_hint():
    provider = Provider()
    cloud = adapted(provider)
    assert cloud.routes
    assert cloud.leading
    addresses = (Address(AddressType.INTERNAL_IP, "10.0.0.1"),)

    async with cloud.leading(Access(View({"n1": kube_node("n1")}))):
        assert await cloud.routes.create("uid", [replace(ROUTE, addresses=addresses)]) == {}
        assert await cloud.routes.delete("uid", [replace(ROUTE, name="r7")]) == {}

    kube_addresses = (NodeAddress(type="InternalIP", address="10.0.0.1"),)
    plain = interface.Route(destination_cidr="10.1.0.0/24", target_node="n1")
    assert provider.record.calls[1:] == [
        ("create_route", "blue", "uid-n1", replace(plain, target_node_addresses=kube_addresses)),
        ("delete_route", "blue", replace(plain, name="r7")),
    ]


async def test_listed_routes_say_whether_they_carry_addresses():
    listed = [
        interface.Route(name="a", destination_cidr="10.1.0.0/24", enable_node_addresses=True),
        interface.Route(name="b", destination_cidr="10.2.0.0/24", target_node="n1", blackhole=True),
    ]
    cloud = adapted(Provider(Recorder({"list_routes": listed})))
    assert cloud.routes

    assert await cloud.routes.list("uid") == [
        Route(name="a", destination="10.1.0.0/24", target=None, addresses=()),
        Route(name="b", destination="10.2.0.0/24", target=NodeName("n1"), blackhole=True),
    ]


async def test_a_route_that_fails_is_named():
    cloud = adapted(Provider(Recorder({"delete_route": OSError("down")})))
    assert cloud.routes

    errors = await cloud.routes.delete("uid", [ROUTE])

    assert isinstance(errors[ROUTE], Unavailable)


def test_registration_works_as_in_go(tmp_path):
    registry = Registry(lambda: ())
    register_cloud_provider("fake", lambda _: Provider(), registry=registry)

    assert cloud_providers(registry=registry) == ("fake",)
    assert is_cloud_provider("fake", registry=registry)
    assert not is_cloud_provider("other", registry=registry)
    assert is_external("external")
    assert not is_external("")
    assert isinstance(get_cloud_provider("fake", io.StringIO(), registry=registry), Provider)
    assert get_cloud_provider("other", None, registry=registry) is None
    with pytest.raises(DuplicateProvider):
        register_cloud_provider("fake", lambda _: Provider(), registry=registry)


def test_names_that_mean_no_provider_have_no_classic_one_either():
    assert get_cloud_provider("external", None, registry=Registry(lambda: ())) is None


def test_a_provider_of_the_new_shape_is_not_taken_for_a_classic_one():
    @asynccontextmanager
    async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
        yield Cloud(name="new")

    registry = Registry(lambda: ())
    registry.register("new", connect)

    with pytest.raises(Misconfigured, match='"new" has no classic interface'):
        get_cloud_provider("new", None, registry=registry)


def test_initialization_by_name_and_file(tmp_path):
    texts: list[Any] = []

    def factory(config: Any) -> Provider:
        texts.append(config and config.read())
        return Provider()

    registry = Registry(lambda: ())
    register_cloud_provider("fake", factory, registry=registry)
    (tmp_path / "cloud.conf").write_text("a = 1")

    assert init_cloud_provider("", "", registry=registry) is None
    assert init_cloud_provider("external", "", registry=registry) is None
    init_cloud_provider("fake", str(tmp_path / "cloud.conf"), registry=registry)
    init_cloud_provider("fake", "", registry=registry)
    assert texts == ["a = 1", None]
    with pytest.raises(UnknownProvider):
        init_cloud_provider("other", "", registry=registry)
    with pytest.raises(Misconfigured, match="absent"):
        init_cloud_provider("fake", str(tmp_path / "absent"), registry=registry)


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
            partial(cloud.routes.list, "uid"),
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
