"""The process of `pileus csi`: connects what the mode needs, and serves until it is stopped.

controller: the cloud, and the cluster ID (of --cluster-id, or of the API server)
node:       this node's Node object of the API server, or --node-id; no credentials of the cloud
all:        both, for tests and for clusters with one node
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import SystemRandom

from pileus.app.cluster_id import ClusterIdentity
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.run import loop_factory, until_signalled
from pileus.app.startup import World, connections, provider
from pileus.cloud.choice import CloudSettings
from pileus.cloud.errors import Unavailable, Unsupported
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.model import Instance, InstanceId, NodeName, NodeRef
from pileus.cloud.volume import REGION_LABEL, ZONE_LABEL, Volumes
from pileus.csi.address import HttpAddress
from pileus.csi.controller import Controller
from pileus.csi.health import Health
from pileus.csi.http_endpoint import CannotServe, serving_metrics
from pileus.csi.identity import Identity
from pileus.csi.metrics import CsiMetrics, exposed_registry
from pileus.csi.node import Node, NodeFacts
from pileus.csi.registration import (
    NotRegistered,
    Registration,
    driver_socket,
    registration_socket,
)
from pileus.csi.server import InvalidEndpoint, Observe, Services, serving, socket_path
from pileus.csi.snapshots import Snapshots
from pileus.csi.spec import registration_pb2
from pileus.fence import Open
from pileus.kube.client import Client
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import NODES
from pileus.objects.nodes import is_uninitialized
from pileus.objects.settings import ClusterSettings
from pileus.runtime.leadership import SYSTEM_TIMES
from pileus.settings.config import Config
from pileus.telemetry.logs import Verbosity
from pileus.telemetry.metrics import Metrics
from pileus.volumes.busy import InProgress
from pileus.volumes.operations import Operations
from pileus.volumes.parameters import driver_name

DEFAULT_ENDPOINT = "unix:///csi/csi.sock"


class Mode(StrEnum):
    CONTROLLER = "controller"
    NODE = "node"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiOptions:
    endpoint: str
    """Empty: the socket at which the kubelet expects the driver, or the default."""
    mode: Mode
    kubelet: str = ""
    """Folder of the kubelet with which the driver registers itself; empty: it does not."""
    node_id: str = ""
    """ID of this node's instance; empty: that of the Node's provider ID."""
    node_name: str = ""
    http_address: HttpAddress | None = None
    """Where the metrics are served; None: they are not."""
    metrics_path: str = "/metrics"
    max_volumes: int = 0
    """0: what the cloud says, if this process is connected to it."""


def run(config: Config, options: CsiOptions, verbosity: Verbosity) -> int:
    """Serve until a signal ends it. Raises CommandFailed and Fatal."""
    world = World(os.environ, SYSTEM_TIMES, SystemRandom(), verbosity.set)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(until_signalled(partial(serve, config, options, world)))
    return 0


async def serve(config: Config, options: CsiOptions, world: World) -> None:
    """Serve until cancelled. Raises CommandFailed and Fatal."""
    async with AsyncExitStack() as stack:
        name = driver_name(_cloud_name(config))
        path = _endpoint(options, name)
        registration = _registration(options, name, path)
        metrics = world.metrics()
        served = asyncio.Event()
        observe = await _exposed(stack, options, name, metrics, served.is_set)
        services = driver(config, options, world, registration, metrics, observe)
        await _serving(stack, "--endpoint", path, await stack.enter_async_context(services))
        served.set()
        if registration is None:
            await asyncio.Event().wait()
            return
        offered = Services({"Registration": [registration]}, registration_pb2.DESCRIPTOR)
        await _serving(stack, "--kubelet-dir", registration.socket, offered)
        try:
            await registration.watch()
        except NotRegistered as error:
            raise Fatal(str(error)) from error


async def _exposed(
    stack: AsyncExitStack,
    options: CsiOptions,
    name: str,
    metrics: Metrics,
    is_ready: Callable[[], bool],
) -> Observe | None:
    """Serve metrics and probes, if there is an address for them. Raises CommandFailed."""
    if options.http_address is None:
        return None
    registry = exposed_registry(metrics.registry)
    own = CsiMetrics(registry, name)
    served = serving_metrics(options.http_address, options.metrics_path, registry, is_ready)
    try:
        await stack.enter_async_context(served)
    except CannotServe as error:
        raise CommandFailed(f"--http-endpoint: {error}") from error
    return own.observe


def _endpoint(options: CsiOptions, name: str) -> Path:
    fitting = driver_socket(options.kubelet, name) if options.kubelet else DEFAULT_ENDPOINT
    with _about("--endpoint" if options.endpoint else "--kubelet-dir"):
        return socket_path(options.endpoint or fitting)


def _registration(options: CsiOptions, name: str, path: Path) -> Registration | None:
    if not options.kubelet:
        return None
    with _about("--kubelet-dir"):
        return Registration(name, path, registration_socket(options.kubelet, name))


async def _serving(stack: AsyncExitStack, flag: str, path: Path, services: Services) -> None:
    with _about(flag):
        await stack.enter_async_context(serving(path, services))


@contextmanager
def _about(flag: str) -> Generator[None]:
    try:
        yield
    except InvalidEndpoint as error:
        raise CommandFailed(f"{flag}: {error}") from error


@asynccontextmanager
async def driver(
    config: Config,
    options: CsiOptions,
    world: World,
    registration: Registration | None = None,
    metrics: Metrics | None = None,
    observe: Observe | None = None,
) -> AsyncGenerator[Services]:
    """Connect what the mode needs, for the length of the block. Raises CommandFailed and Fatal."""
    name = _cloud_name(config)
    async with AsyncExitStack() as stack:
        metrics = metrics or world.metrics()
        cloud: Cloud | None = None
        parts: dict[str, list[object]] = {}
        if options.mode is not Mode.NODE:
            cloud = await _connected(config, world, metrics, stack)
            cluster = await _cluster_id(config, world, metrics)
            parts["Controller"] = controller_parts(_volumes(cloud, name), cluster)
        if options.mode is not Mode.CONTROLLER:
            parts["Node"] = [Node(await _facts(config, options, world, metrics, stack, cloud))]
        problem = partial(getattr, registration, "problem", "")
        identity = Identity(driver_name(name), "Controller" in parts, problem)
        offered = {"Identity": [identity], **parts}
        yield Services(offered, observe=observe) if observe else Services(offered)


def controller_parts(volumes: Volumes, cluster: str) -> list[object]:
    operations, busy = Operations(volumes, cluster), InProgress()
    return [Controller(operations, busy), Snapshots(operations, busy), Health(operations)]


def _cloud_name(config: Config) -> str:
    names = [one.name for one in config[CloudSettings].clouds]
    if len(names) > 1:
        known = ", ".join(names)
        raise CommandFailed(
            f"pileus csi serves one cloud, but several are selected: {known}. Fix: run it once "
            "for each cloud, with its --cloud-provider and --cloud-config"
        )
    return names[0]


async def _connected(
    config: Config, world: World, metrics: Metrics, stack: AsyncExitStack
) -> Cloud:
    cloud = await stack.enter_async_context(provider(config, world))
    equipped = stacked(cloud, metrics=metrics, fence=Open(), equipment=Equipment())
    return await stack.enter_async_context(equipped)


def _volumes(cloud: Cloud, name: str) -> Volumes:
    if cloud.volumes is None:
        why = cloud.absent.get("volumes", "its provider has none")
        raise CommandFailed(f"cloud {name} has no volumes: {why}")
    return cloud.volumes


async def _cluster_id(config: Config, world: World, metrics: Metrics) -> str:
    given = config[ClusterSettings].id
    if given:
        return given
    async with connections(config, world, metrics) as clients:
        return await ClusterIdentity(clients.main("cluster-id")).find()


# -- what this node is -------------------------------------------------------------------------

Facts = Callable[[], Awaitable[NodeFacts]]


async def _facts(
    config: Config,
    options: CsiOptions,
    world: World,
    metrics: Metrics,
    stack: AsyncExitStack,
    cloud: Cloud | None,
) -> Facts:
    if cloud is not None and options.node_id:
        return partial(facts_from_cloud, cloud, options)
    if options.node_id:
        known = NodeFacts(id=options.node_id, topology={}, max_volumes=options.max_volumes)
        return partial(_known, known)
    if not options.node_name:
        raise CommandFailed(
            "--node-name is not set. Fix: set it to the name of this node, or set --node-id to the "
            "ID of its instance"
        )
    clients = await stack.enter_async_context(connections(config, world, metrics))
    return partial(facts_from_node, clients.main("csi-node"), options)


async def _known(facts: NodeFacts) -> NodeFacts:
    return facts


async def facts_from_node(client: Client, options: CsiOptions) -> NodeFacts:
    """Returns what the Node says. Raises Unavailable until it is initialized.

    The kubelet asks once: a node that is registered without its zone stays without it.
    """
    name = options.node_name
    try:
        node = await client.get(NODES, name)
    except KubeError as error:
        raise Unavailable(f"cannot read node {name}: {error}") from error
    provider_id = node.spec.provider_id if node.spec else ""
    if not provider_id:
        raise Unavailable(f"node {name} has no provider ID yet: it is not initialized")
    if is_uninitialized(node):
        raise Unavailable(f"node {name} is not initialized yet: its zone is not known")
    return NodeFacts(
        id=provider_id.rpartition("/")[2],
        topology=_topology(node.metadata.labels or {}),
        max_volumes=options.max_volumes,
    )


def _topology(labels: Mapping[str, str]) -> Mapping[str, str]:
    return {key: labels[key] for key in (ZONE_LABEL, REGION_LABEL) if labels.get(key)}


async def facts_from_cloud(cloud: Cloud, options: CsiOptions) -> NodeFacts:
    """Returns what the cloud says of the instance of --node-id. Raises CloudError."""
    instance = InstanceId(options.node_id)
    limit = options.max_volumes
    if cloud.volumes is not None and not limit:
        limit = (await cloud.volumes.limits(instance)).attachments or 0
    return NodeFacts(id=instance, topology=await _place(cloud, instance), max_volumes=limit)


async def _place(cloud: Cloud, instance: InstanceId) -> Mapping[str, str]:
    if cloud.instances is None:
        raise Unsupported("the cloud has no instances")
    nodes = [
        NodeRef(name=NodeName(form), provider_id=f"{cloud.name}:{form}{instance}")
        for form in ("//", "///")
    ]
    found = await cloud.instances.find(nodes, fresh=False)
    labels = [_labels(one) for one in found.values() if isinstance(one, Instance)]
    return {key: value for key, value in (labels or [{}])[0].items() if value}


def _labels(found: Instance) -> Mapping[str, str]:
    return {ZONE_LABEL: found.zone, REGION_LABEL: found.region}
