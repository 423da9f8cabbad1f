"""The admission webhooks of the process: their port, their certificate, and the clouds they ask.

Every replica serves them, also one that is not the leader. They only read: nothing that they do
needs the lease.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial

from pileus.admission.labels import LabelsWebhook
from pileus.admission.names import LABELS, RESIZE
from pileus.admission.port import Served, WebhookPort, opened
from pileus.admission.resize import ApiObjects, ResizeWebhook
from pileus.admission.review import Review
from pileus.admission.serving_certificate import SecretFollower, use_files
from pileus.admission.settings import WebhookSettings
from pileus.admission.volumes import Place, Unknown, VolumeLookup
from pileus.app.background import background
from pileus.app.clients import Clients
from pileus.app.cluster_id import ClusterIdentity, ClusterIdUnknown
from pileus.app.errors import CommandFailed
from pileus.app.startup import World, connect_cloud
from pileus.cloud.choice import CloudChoice, CloudSettings
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.stack import Equipment, read_only, stacked
from pileus.fence import Open
from pileus.objects.settings import ClusterSettings
from pileus.runtime.supervision import Supervised
from pileus.server.errors import ServerError
from pileus.server.settings import ServerSettings
from pileus.settings.config import Config
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

FOLLOWING = "webhook-certificate"


@contextmanager
def opened_port(config: Config, metrics: Metrics) -> Generator[WebhookPort | None]:
    """Open the webhook port; None if it is not served. Raises CommandFailed."""
    settings = config[WebhookSettings]
    shared = config[ServerSettings].serving.permit_port_sharing
    with _failing(), opened(replace(settings.serving, permit_port_sharing=shared), metrics) as port:
        yield port


@contextmanager
def _failing() -> Generator[None]:
    try:
        yield
    except ServerError as error:
        raise CommandFailed(str(error)) from error


class Webhooks:
    """Serves the enabled webhooks."""

    def __init__(self, config: Config, world: World, clients: Clients) -> None:
        self._config = config
        self._settings = config[WebhookSettings]
        self._world = world
        self._clients = clients
        identity = ClusterIdentity(clients.main("cluster-id"), config[ClusterSettings].id)
        self._cluster_id = _known(partial(identity.find, wait=False))

    @asynccontextmanager
    async def serving(self, port: WebhookPort, cloud: Cloud | None) -> AsyncGenerator[None]:
        """Serve while the block lasts. `cloud` is the only one; None: each is connected here."""
        async with AsyncExitStack() as stack:
            follow = await self._certificate(port)
            await stack.enter_async_context(background(follow.run()))
            places = await self.places(stack, cloud)
            reviews = self._reviews(VolumeLookup(lambda: places, self._cluster_id))
            served = {
                each.path: Served(each.name, reviews[each.name]) for each in self._settings.chosen()
            }
            await stack.enter_async_context(port.serving(served))
            yield

    def _reviews(self, lookup: VolumeLookup) -> dict[str, Review]:
        objects = ApiObjects(self._clients.main("webhooks"))
        return {
            LABELS.name: LabelsWebhook(lookup).review,
            RESIZE.name: ResizeWebhook(lookup, objects).review,
        }

    async def _certificate(self, port: WebhookPort) -> Supervised:
        """Returns the work that keeps the certificate of the port up to date.

        One that exists is in use before the port is served: replicas may share the port, and a
        request that reaches a new one must not fail. Raises CommandFailed.
        """
        clients = self._clients
        if self._settings.is_managed:
            client = clients.main("webhook-certificate")
            follower = SecretFollower(client, port.tls, clients.metrics)
            await follower.refresh()
            return self.supervised(FOLLOWING, follower.follow)
        with _failing():
            files = use_files(self._settings.serving, self._world.times.wall, port.tls)
        return self.supervised(FOLLOWING, partial(files.follow, port.tls))

    async def places(self, stack: AsyncExitStack, cloud: Cloud | None) -> tuple[Place, ...]:
        """Returns the clouds that webhooks ask, until the stack is closed."""
        if cloud is not None:
            ready = await stack.enter_async_context(self._equipped(cloud, self._clients.metrics))
            return (Place(cloud.name, lambda: ready, str),)
        slots = [_Slot(self, choice) for choice in self._config[CloudSettings].clouds]
        for slot in slots:
            await stack.enter_async_context(background(slot.run()))
        return tuple(slot.place for slot in slots)

    @asynccontextmanager
    async def _equipped(self, cloud: Cloud, metrics: Metrics) -> AsyncGenerator[Cloud]:
        """Middleware around the cloud, without writes and with a call budget of its own."""
        equipment = Equipment(budget=Budget(cloud.abilities.limits, metrics))
        async with stacked(
            read_only(cloud), metrics=metrics, fence=Open(), equipment=equipment
        ) as ready:
            yield ready

    @asynccontextmanager
    async def connected(self, choice: CloudChoice) -> AsyncGenerator[Cloud]:
        """One of several clouds, as webhooks use it. Raises CloudError, CommandFailed and Fatal."""
        async with (
            connect_cloud(self._config, self._world, choice) as cloud,
            self._equipped(cloud, self._clients.metrics) as ready,
        ):
            yield ready

    def supervised(self, name: str, work: Callable[[], Awaitable[None]]) -> Supervised:
        return Supervised(name, work, self._world.random, self._clients.metrics)


class _Slot:
    """One of several clouds: connected in the background, so that it delays no other."""

    def __init__(self, webhooks: Webhooks, choice: CloudChoice) -> None:
        self._webhooks = webhooks
        self._choice = choice
        self._cloud: Cloud | None = None
        self.place = Place(choice.name, lambda: self._cloud, self._why)
        self._keeping = webhooks.supervised(f"webhook-cloud@{choice.name}", self._keep)

    async def run(self) -> None:
        await self._keeping.run()

    def _why(self) -> str:
        return self._keeping.health() or f"cloud {self._choice.name} is not connected yet"

    async def _keep(self) -> None:
        try:
            async with self._webhooks.connected(self._choice) as cloud:
                self._cloud = cloud
                await asyncio.Event().wait()
        finally:
            self._cloud = None


def _known(find: Callable[[], Awaitable[str]]) -> Callable[[], Awaitable[str]]:
    async def cluster_id() -> str:
        try:
            return await find()
        except ClusterIdUnknown as error:
            raise Unknown(str(error)) from error

    return cluster_id
