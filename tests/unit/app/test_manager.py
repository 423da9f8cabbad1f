"""A start that fails says what and why; and whatever ends, nothing is left running."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import msgspec
import pytest

from pileus.app.errors import CommandFailed, Fatal
from pileus.app.manager import Manager
from pileus.app.run import ending_of
from pileus.app.startup import NO_CLUSTER_ID, World, choose_provider
from pileus.cloud.choice import CloudSettings
from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.kube.model.coordination_v1 import LEASES, Lease
from pileus.kube.transport import Request
from pileus.server.metrics import prometheus_text
from pileus.telemetry.instruments import MetricRegistry
from pileus.testing.scripted import ScriptedTransport, refused
from tests.unit.app.stage import TIMES, Kube, configured
from tests.unit.app.test_route import NoRoutes
from tests.unit.cloud.fakes import FakeInstances


@dataclass
class Provider:
    """A provider that notes its beginning and its end, or cannot begin."""

    cloud: object = field(default_factory=lambda: Cloud(name="fake", instances=FakeInstances()))
    error: Exception | None = None
    lines: list[str] = field(default_factory=list[str])

    @asynccontextmanager
    async def connect(self, config: ProviderConfig) -> AsyncGenerator[Cloud]:
        if self.error:
            raise self.error
        self.lines.append("connected")
        try:
            yield self.cloud  # type: ignore[misc]
        finally:
            self.lines.append("closed")


def manager(*arguments: str, provider: Provider | None = None, kube: Kube | None = None) -> Manager:
    providers = Registry(discover=tuple)
    providers.register("fake", (provider or Provider()).connect)
    world = World(
        environ={},
        times=TIMES,
        random=Random(0),
        set_verbosity=lambda _: None,
        providers=providers,
        connect=(kube or Kube()).connect,
    )
    return Manager(configured(*arguments), world)


def test_a_provider_is_given_the_names_that_flags_set():
    providers = Registry(discover=tuple)
    providers.register("fake", Provider().connect)
    world = World(
        environ={"A": "b"},
        times=TIMES,
        random=Random(0),
        set_verbosity=lambda _: None,
        providers=providers,
    )
    config = configured("--cluster-name=blue", "--user-agent=acme/7", "--user-agent=x")
    _, found = choose_provider(config, world, config[CloudSettings].clouds[0])
    assert (found.cluster_name, found.user_agent) == ("blue", ("acme/7", "x"))
    assert found.environ == {"A": "b"}


async def ending(make: Callable[[], Manager]) -> BaseException:
    """The error with which the program would end."""
    try:
        await make().run()
    except BaseException as error:
        return ending_of(error)
    raise AssertionError("it has ended without an error")


MISSING = "/no/such/file"


@pytest.mark.parametrize(
    ("arguments", "kind", "texts"),
    [
        pytest.param(
            [f"--kubeconfig={MISSING}"],
            CommandFailed,
            ["invalid configuration: --kubeconfig=/no/such/file"],
            id="kubeconfig",
        ),
        pytest.param(
            ["--enable-leader-migration", f"--leader-migration-config={MISSING}"],
            CommandFailed,
            ['unable to read leader migration configuration from "/no/such/file"'],
            id="migration file",
        ),
        pytest.param(
            [f"--authentication-kubeconfig={MISSING}"],
            CommandFailed,
            ["invalid configuration: --authentication-kubeconfig=/no/such/file"],
            id="delegated kubeconfig",
        ),
        pytest.param(
            ["--cloud-provider=fke"],
            CommandFailed,
            ["--cloud-provider: unknown cloud provider", 'did you mean "fake"?'],
            id="unknown provider",
        ),
        pytest.param(
            ["--cloud-provider=external"],
            CommandFailed,
            ["--cloud-provider=external selects no provider (known: fake)"],
            id="no provider",
        ),
        pytest.param(
            [f"--cloud-config={MISSING}"],
            CommandFailed,
            ['--cloud-config: cannot read "/no/such/file"'],
            id="cloud config",
        ),
    ],
)
async def test_a_wrong_setting_ends_the_start_with_its_name(
    arguments: Sequence[str], kind: type[Exception], texts: Sequence[str]
):
    kube, provider = Kube(), Provider()

    error = await ending(lambda: manager(*arguments, provider=provider, kube=kube))

    assert type(error) is kind
    assert all(text in str(error) for text in texts), str(error)
    assert provider.lines == []
    assert not any(wire.is_open for wire in kube.wires)


@pytest.mark.parametrize(
    ("provider", "text"),
    [
        (Provider(error=Misconfigured("no region")), "no region"),
        (Provider(error=KeyError("region")), "KeyError: 'region'"),
        (Provider(cloud=None), "yielded None instead of a pileus Cloud"),
        (Provider(cloud=Cloud(name="", instances=FakeInstances())), "name must be"),
    ],
    ids=["misconfigured", "raises", "nothing", "incomplete"],
)
async def test_a_provider_that_cannot_be_used_is_fatal(provider: Provider, text: str):
    error = await ending(lambda: manager(provider=provider))

    assert isinstance(error, Fatal)
    assert str(error).startswith("Cloud provider could not be initialized: ")
    assert text in str(error)
    assert provider.lines in ([], ["connected", "closed"])


async def test_a_cloud_without_cluster_id_is_fatal_unless_allowed(
    caplog: pytest.LogCaptureFixture,
):
    def untagged() -> Provider:
        return Provider(cloud=Cloud(name="fake", has_cluster_id=False))

    error = await ending(lambda: manager(provider=untagged()))
    assert (type(error), str(error)) == (Fatal, NO_CLUSTER_ID)

    await run_for(30, manager("--allow-untagged-cloud", provider=untagged()))
    assert "detected a cluster without a ClusterID" in caplog.text


async def test_an_invalid_cluster_cidr_ends_the_start_only_with_a_cloud_that_has_routes():
    def routed() -> Provider:
        return Provider(cloud=Cloud(name="fake", routes=NoRoutes()))

    error = await ending(lambda: manager("--cluster-cidr=x", provider=routed()))
    assert type(error) is CommandFailed
    assert str(error).startswith('--cluster-cidr: "x" is not a CIDR')

    for flags in (["--configure-cloud-routes=false"], ["--controllers=*,-route"]):
        await run_for(30, manager("--cluster-cidr=x", *flags, provider=routed()))
    await run_for(30, manager("--cluster-cidr=x", provider=Provider(cloud=Cloud(name="fake"))))


async def run_for(seconds: float, running: Manager) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(running.run())
        await asyncio.sleep(seconds)
        assert not task.done()
        task.cancel()


async def test_an_api_server_that_refuses_us_is_fatal_and_the_provider_is_closed():
    provider, kube = Provider(), Kube(ScriptedTransport(lambda _: refused(401, "Unauthorized")))

    error = await ending(lambda: manager("--leader-elect=false", provider=provider, kube=kube))

    assert isinstance(error, Fatal)
    assert "failed to wait for apiserver being healthy" in str(error)
    assert provider.lines == ["connected", "closed"]


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--leader-elect=false",),
        ("--dry-run",),
        ("--enable-leader-migration",),
        ("--use-service-account-credentials",),
        ("--use-service-account-credentials", "--leader-elect=false"),
    ],
    ids=lambda flags: " ".join(flags) or "default",
)
async def test_an_absent_api_server_is_waited_for_whatever_the_flags(flags: Sequence[str]):
    provider, kube = Provider(), Kube(is_down=True)

    await run_for(3600, manager(*flags, provider=provider, kube=kube))

    assert provider.lines == ["connected", "closed"]


async def test_a_run_that_is_stopped_releases_its_lease_and_closes_everything():
    provider, kube = Provider(), Kube()

    await run_for(60, manager(provider=provider, kube=kube))

    assert provider.lines == ["connected", "closed"]
    assert not any(wire.is_open for wire in kube.wires)
    writes = [r for _, r in kube.requests if r.method != "GET" and "leases" in r.path]
    assert b'"holderIdentity":""' in (writes[-1].body or b"")


async def test_metrics_of_the_provider_are_served_with_the_managers():
    registry = MetricRegistry()
    registry.counter("acme_requests_total", "Requests", ("kind",)).labels("list").inc()
    cloud = Cloud(name="fake", instances=FakeInstances(), metrics=registry.read)
    running = manager(provider=Provider(cloud=cloud))

    await run_for(10, running)

    assert (
        'acme_requests_total{kind="list"} 1' in prometheus_text(running._metrics.registry).decode()
    )


async def test_of_two_one_leads_and_the_other_takes_over_when_it_stops():
    kube = Kube()
    holders: list[str] = []
    async with asyncio.TaskGroup() as group:
        leader = group.create_task(manager(kube=kube).run())
        await asyncio.sleep(10)
        stand_by = group.create_task(manager(kube=kube).run())
        await asyncio.sleep(60)
        holders.append(await holder(kube))
        leader.cancel()
        await asyncio.sleep(10)
        holders.append(await holder(kube))
        stand_by.cancel()

    assert holders[0] != holders[1]
    assert all(holders)


async def holder(kube: Kube) -> str:
    path = LEASES.path("cloud-controller-manager", namespace="kube-system")
    async with kube.transport.send(Request(method="GET", path=path)) as reply:
        lease = msgspec.json.decode(await reply.read(), type=Lease)
    assert lease.spec
    return lease.spec.holder_identity or ""


@pytest.mark.real_time
async def test_a_start_that_fails_late_leaves_no_port_open():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    provider = Provider(error=Misconfigured("no region"))

    error = await ending(
        lambda: manager(f"--secure-port={port}", "--bind-address=127.0.0.1", provider=provider)
    )

    assert isinstance(error, Fatal)
    with socket.create_server(("127.0.0.1", port)):
        pass


@pytest.mark.real_time
async def test_a_taken_port_ends_the_start_before_the_provider_begins():
    provider = Provider()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = await ending(
            lambda: manager(f"--secure-port={port}", "--bind-address=127.0.0.1", provider=provider)
        )

    assert isinstance(error, CommandFailed)
    assert f"127.0.0.1:{port}: the port is in use" in str(error)
    assert provider.lines == []
