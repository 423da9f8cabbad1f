"""Adapts a ported provider to the cloud contract: its interfaces become capabilities.

connect:  factory(config) ▶ provider
leading:  initialize(client_builder, stop) ▶ set_informers ▶ … controllers … ▶ stop, awaited
"""

import inspect
import io
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import field
from typing import TypeVar, cast, get_type_hints

from pileus.classic.balancers import ClassicBalancers
from pileus.classic.calls import Calls
from pileus.classic.errors import translated
from pileus.classic.instances import ClassicInstances, ClassicSshKeys
from pileus.classic.interface import (
    Clusters,
    Factory,
    InformerUser,
    Interface,
    Maybe,
    SchemeOwner,
    Zones,
)
from pileus.classic.routes import ClassicRoutes
from pileus.classic.service_records import Memory, Notes, ProcessMemory
from pileus.classic.stop import stopping
from pileus.classic.view import LateView
from pileus.cloud.connection import methods, protocol_of, wrong_form, wrong_methods
from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import NodeRef, Zone
from pileus.dataclass import dataclass
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.runtime.cluster_access import KubernetesAccess

T = TypeVar("T")

IDENTITY = "service-controller"
"""The identity that removes notes from Services."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """The `connect` of a ported provider, made from its factory: the value of its entry point."""

    factory: Factory
    at_once: int = 16
    """Calls to the provider at the same time, at most. Abandoned threads count."""
    memory: Callable[[], Memory] = field(default=ProcessMemory)

    def __call__(self, config: ProviderConfig) -> AbstractAsyncContextManager[Cloud]:
        return self._connected(config)

    @asynccontextmanager
    async def _connected(self, config: ProviderConfig) -> AsyncGenerator[Cloud]:
        calls = Calls(self.at_once)
        stream = None if config.text is None else io.StringIO(config.text)
        provider = await calls.make(self.factory, stream)
        yield as_cloud(provider, calls, cluster_name=config.cluster_name, memory=self.memory())


def as_cloud(
    provider: Interface, calls: Calls, *, cluster_name: str, memory: Memory | None = None
) -> Cloud:
    """Returns the provider as a cloud. It sees the cluster while `Cloud.leading` is entered."""
    _verify(provider)
    view = LateView()
    notes = Notes(view.service_if_leading)
    has_instances = provider.instances_v2() is not None or provider.instances() is not None
    balancers = ClassicBalancers(
        provider=provider,
        view=view,
        memory=memory or ProcessMemory(),
        notes=notes,
        calls=calls,
        cluster_name=cluster_name,
    )
    v1, zones, clusters = provider.instances(), provider.zones(), provider.clusters()
    return Cloud(
        name=provider.provider_name(),
        instances=ClassicInstances(provider, view, calls) if has_instances else None,
        balancers=balancers if provider.load_balancer() is not None else None,
        routes=ClassicRoutes(provider, view, calls, cluster_name) if provider.routes() else None,
        clusters=None if clusters is None else _Clusters(clusters, calls),
        ssh_keys=None if v1 is None else ClassicSshKeys(v1, calls),
        zones=None if zones is None else _Zones(zones, calls),
        owns=_owns(provider),
        leading=lambda access: _leading(provider, calls, access, (view, notes)),
        knows_leftovers=False,
        has_cluster_id=provider.has_cluster_id(),
        health=calls.health,
    )


@asynccontextmanager
async def _leading(
    provider: Interface, calls: Calls, access: KubernetesAccess, late: tuple[LateView, Notes]
) -> AsyncGenerator[None]:
    view, notes = late
    view.bind(access.view())
    if provider.load_balancer() is not None:
        notes.bind(access.client(IDENTITY))
    try:
        async with stopping() as stop:
            await calls.make(provider.initialize, _ClientBuilder(access), stop)
            if isinstance(provider, InformerUser):
                await calls.make(provider.set_informers, access.informers())
            yield
    finally:
        notes.bind(None)
        view.bind(None)


@dataclass(frozen=True, slots=True)
class _ClientBuilder:
    access: KubernetesAccess

    def config(self, name: str) -> Access:
        return self.access.config(name)

    def client(self, name: str) -> Client:
        return self.access.client(name)

    def config_or_die(self, name: str) -> Access:
        return _or_die(self.config, name)

    def client_or_die(self, name: str) -> Client:
        return _or_die(self.client, name)


def _or_die(make: Callable[[str], T], name: str) -> T:
    try:
        return make(name)
    except Exception as error:
        raise SystemExit(f'cannot access the cluster as "{name}": {error}') from error


@dataclass(frozen=True, slots=True)
class _Clusters:
    inner: Clusters
    calls: Calls

    async def list_clusters(self) -> Sequence[str]:
        return await _made(self.calls, self.inner.list_clusters)

    async def master(self, cluster: str) -> str:
        return await _made(self.calls, lambda: self.inner.master(cluster))


@dataclass(frozen=True, slots=True)
class _Zones:
    inner: Zones
    calls: Calls

    async def current(self) -> Zone:
        zone = await _made(self.calls, self.inner.get_zone)
        return Zone(zone.failure_domain, zone.region)


async def _made(calls: Calls, call: Callable[[], Maybe[T]]) -> T:
    try:
        return await calls.make(call)
    except Exception as error:
        raise translated(error) from error


GETTERS = tuple(name for name in methods(Interface) if name != "initialize")
"""Methods of a provider that return what it already has."""
CAPABILITIES = {
    name: protocol
    for name in GETTERS
    if (protocol := protocol_of(get_type_hints(getattr(Interface, name))["return"]))
}
OPTIONAL = ("provider_id_schemes",)


def _verify(provider: object) -> None:
    """Raises `Misconfigured` if the provider or one of its capabilities is incomplete."""
    made = type(provider).__name__
    missing = [n for n in ("initialize", *GETTERS) if not callable(getattr(provider, n, None))]
    if missing:
        raise Misconfigured(
            f"the factory of the provider returned a {made} without: "
            f"{', '.join(f'{name}()' for name in missing)}"
        )
    has = {
        name: _got(made, name, getattr(provider, name))
        for name in (*GETTERS, *OPTIONAL)
        if callable(getattr(provider, name, None))
    }
    problems = [
        problem
        for name, protocol in CAPABILITIES.items()
        if has[name] is not None
        for problem in wrong_methods(f"{name}()", has[name], protocol)
    ]
    if wrong := wrong_form(cast("Interface", provider).initialize, Interface.initialize):
        problems.append(f"initialize() {wrong}")
    if problems:
        raise Misconfigured(f"the provider {made} is incomplete: {'; '.join(problems)}")


def _got(made: str, name: str, getter: Callable[[], object]) -> object:
    """Returns what a getter returns. Raises `Misconfigured` if it is async."""
    value = getter()
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise Misconfigured(
            f"{made}.{name}() is async: make it a plain method that returns what the provider "
            "already has. It is called often and must not wait; initialize() may."
        )
    return value


def _owns(provider: Interface) -> Callable[[NodeRef], bool | None] | None:
    """Returns `Cloud.owns`, by provider ID, if the provider declares further schemes."""
    if not isinstance(provider, SchemeOwner):
        return None
    schemes = frozenset({provider.provider_name(), *_schemes(provider)})

    def owns(node: NodeRef) -> bool | None:
        scheme, separator, _ = node.provider_id.partition("://")
        return scheme in schemes if separator else None

    return owns


def _schemes(provider: SchemeOwner) -> Sequence[str]:
    given = cast("object", provider.provider_id_schemes())
    if not isinstance(given, list | tuple) or not all(map(_is_scheme, cast("list[object]", given))):
        raise Misconfigured(
            f"{type(provider).__name__}.provider_id_schemes() returned {given!r}: "
            'return a list of schemes without "://", such as ["hcloud", "hrobot"]'
        )
    return cast("Sequence[str]", given)


def _is_scheme(value: object) -> bool:
    return isinstance(value, str) and value != "" and ":" not in value
