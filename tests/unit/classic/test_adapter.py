import asyncio
import io
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
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
from pileus.cloud.connection import connected
from pileus.cloud.errors import Misconfigured, Unavailable
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import (
    Address,
    AddressType,
    NodeName,
    Route,
    SshKey,
    Zone,
)
from pileus.cloud.registry import DuplicateProvider, Registry, UnknownProvider
from pileus.kube.model.core_v1 import NodeAddress
from tests.unit.classic.fakes import (
    Access,
    InformedProvider,
    Provider,
    Recorder,
    View,
    adapted,
    kube_node,
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


async def test_a_capability_that_appears_after_the_connection_is_not_used():
    provider = Provider(offers=frozenset())
    cloud = adapted(provider)

    provider.offers = frozenset({"v2", "balancer", "routes"})

    assert (cloud.instances, cloud.balancers, cloud.routes) == (None,) * 3
    assert "initialize" not in provider.record.names


async def test_small_capabilities_come_along():
    provider = Provider(offers=frozenset({"v1", "zones"}))
    cloud = adapted(provider)
    assert cloud.zones
    assert cloud.ssh_keys

    await cloud.ssh_keys.add("any", [SshKey("ops", "ssh-ed25519 AAAA")], [])

    assert await cloud.zones.current() == Zone("r-a", "r")
    assert provider.record.calls[0] == ("add_ssh_key_to_all_instances", "ops", b"ssh-ed25519 AAAA")


async def test_an_incomplete_provider_is_refused_by_what_it_lacks():
    with pytest.raises(Misconfigured, match=r"returned a str without: initialize\(\), load_ba"):
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
        with pytest.raises(SystemExit, match='cannot access the cluster as "routes"'):
            builder.config_or_die("routes")
        assert not provider.stop.is_set()

    assert provider.stop.is_set()
    async with cloud.leading(Access(View())):
        assert provider.record.names.count("initialize") == 2


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

    assert await cloud.routes.list_routes("uid") == [
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
