"""Carries out one call, and returns its answer. Connects to the cloud only if the call needs it."""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import SystemRandom
from typing import cast

from pileus.app.clients import Clients
from pileus.app.cluster_id import ClusterIdentity
from pileus.app.errors import CommandFailed, Fatal
from pileus.app.run import loop_factory
from pileus.app.startup import World, connections, provider
from pileus.cloud.choice import CloudSettings
from pileus.cloud.errors import CloudError
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.fence import Open
from pileus.flexvolume import node
from pileus.flexvolume.attachment import Attachments
from pileus.flexvolume.calls import (
    CAPABILITIES,
    Answer,
    BadCall,
    Call,
    failed,
    read_call,
    unknown,
)
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.core_v1 import PERSISTENT_VOLUMES, PersistentVolume
from pileus.kube.settings import ClientSettings
from pileus.objects.settings import ClusterSettings
from pileus.runtime.leadership import SYSTEM_TIMES
from pileus.settings.config import Config
from pileus.telemetry.mask import masked
from pileus.volumes.commands import HostError
from pileus.volumes.operations import Operations, Patience
from pileus.volumes.persistent_volumes import CloudVolumes

SECONDS = 100.0
"""For one call. kubelet waits for two minutes, and calls again."""
EXPECTED = (BadCall, HostError, CloudError, KubeError, CommandFailed, Fatal, InvalidConfiguration)

Node = Callable[[Call], Awaitable[Answer]]
NODE_CALLS: Mapping[str, Node] = {
    "waitforattach": node.wait_for_attach,
    "mountdevice": node.mount_device,
    "unmountdevice": node.unmount,
    "mount": node.mount,
    "unmount": node.unmount,
    "expandfs": node.expand_filesystem,
}


def answer(arguments: Sequence[str], config: Callable[[], Config]) -> Answer:
    """Returns the answer to a call. Never raises: kubelet understands nothing but an answer.

    `config` is read only for calls that need the cloud. It raises CommandFailed.
    """
    try:
        call = read_call(arguments)
        if call is None:
            return unknown(arguments[0])
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_in_time(call, config))
    except Exception as error:  # noqa: BLE001 -- kubelet understands nothing but an answer
        return failed(masked(explained(arguments[0] if arguments else "", error)))


def explained(name: str, error: Exception) -> str:
    """Returns the message for a call that failed."""
    if isinstance(error, ExceptionGroup):
        several = cast("ExceptionGroup[Exception]", error)
        return "; ".join(explained(name, each) for each in several.exceptions)
    if isinstance(error, EXPECTED):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"{name} did not end within {SECONDS:g} s; it is tried again"
    return f"this is a bug in pileus, please report it: {error!r}"


async def _in_time(call: Call, config: Callable[[], Config]) -> Answer:
    async with asyncio.timeout(SECONDS):
        return await perform(call, config)


async def perform(call: Call, config: Callable[[], Config]) -> Answer:
    if call.name == "init":
        return Answer(fields={"capabilities": CAPABILITIES})
    if call.name == "getvolumename":
        return Answer(fields={"volumeName": call.options.volume})
    if call.name in NODE_CALLS:
        return await NODE_CALLS[call.name](call)
    world = World(os.environ, SYSTEM_TIMES, SystemRandom(), lambda _: None)
    async with attachments(config(), world) as cloud:
        calls: Mapping[str, Node] = {
            "attach": cloud.attach,
            "detach": cloud.detach,
            "isattached": cloud.is_attached,
            "expandvolume": cloud.expand,
        }
        return await calls[call.name](call)


@asynccontextmanager
async def attachments(config: Config, world: World) -> AsyncGenerator[Attachments]:
    """The cloud and the API server. Raises CommandFailed, Fatal, KubeError."""
    if len(config[CloudSettings].clouds) > 1:
        raise CommandFailed("a FlexVolume driver serves one cloud: configure one cloud-provider")
    metrics = world.metrics()
    async with AsyncExitStack() as stack:
        _check_api_server(config, world)
        clients = await stack.enter_async_context(connections(config, world, metrics))
        found = await stack.enter_async_context(provider(config, world))
        cloud = await stack.enter_async_context(
            stacked(found, metrics=metrics, fence=Open(), equipment=Equipment())
        )
        if cloud.volumes is None or cloud.instances is None:
            raise CommandFailed(f"cloud {cloud.name} has no volumes that can be attached")
        operations = Operations(cloud.volumes, await _cluster_id(config, clients), Patience(80.0))
        driver = CloudVolumes(cloud.name).flex_driver
        yield Attachments(operations, cloud.instances, driver, _reader(clients))


def _check_api_server(config: Config, world: World) -> None:
    """Raises CommandFailed if the configuration names no API server."""
    asked = config[ClientSettings]
    if not (asked.kubeconfig or asked.master or "KUBERNETES_SERVICE_HOST" in world.environ):
        raise CommandFailed(
            "the API server is not known, and a volume is used only if a PersistentVolume names "
            "it. Fix: set kubeconfig in the configuration file"
        )


async def _cluster_id(config: Config, clients: Clients) -> str:
    given = config[ClusterSettings].id
    return given or await ClusterIdentity(clients.main("cluster-id")).find(wait=False)


def _reader(clients: Clients) -> Callable[[str], Awaitable[PersistentVolume | None]]:
    async def read(name: str) -> PersistentVolume | None:
        try:
            return await clients.main("flexvolume").get(PERSISTENT_VOLUMES, name)
        except NotFound:
            return None

    return read
