"""The provider: what this cloud can do, and the function that pileus finds by entry point."""

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from pileus.clock import Clock, SystemClock
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.threads import in_thread
from pileus.cloud.volume import VolumeNames
from pileus.providers.openstack.annotations import ANNOTATIONS
from pileus.providers.openstack.api import Api, Client, Service
from pileus.providers.openstack.balancers import ABILITIES, OpenStackBalancers, abilities_of
from pileus.providers.openstack.checks import Account, findings
from pileus.providers.openstack.cinder import Cinder
from pileus.providers.openstack.config import OpenStackConfig
from pileus.providers.openstack.connections import Connections
from pileus.providers.openstack.http_api import HttpApi
from pileus.providers.openstack.instances import OpenStackInstances
from pileus.providers.openstack.load import load
from pileus.providers.openstack.metrics import MeasuredApi, OpenStackMetrics
from pileus.providers.openstack.neutron import Neutron
from pileus.providers.openstack.nova import Nova
from pileus.providers.openstack.port_writes import PortWrites
from pileus.providers.openstack.provider_id import SCHEME
from pileus.providers.openstack.routes import NO_ROUTER, routes_of
from pileus.providers.openstack.session import Session
from pileus.providers.openstack.volumes import OpenStackVolumes
from pileus.providers.openstack.zones import OpenStackZones
from pileus.telemetry.log import Log

log = Log(__name__)

REQUIRED = frozenset({Service.COMPUTE, Service.NETWORK, Service.LOAD_BALANCER})
"""Services whose absence is logged: without them the manager does less than most users expect."""


def cloud_of(
    api: Api,
    config: OpenStackConfig,
    services: Collection[Service] = frozenset(Service),
    cluster_name: str = "kubernetes",
    clock: Clock | None = None,
) -> Cloud:
    """Returns the capabilities of an OpenStack region that has these services, over `api`.

    There are no SSH keys among them: Nova passes a key pair to a server only when it is created, so
    no key could be added to a running server or removed from it.
    """
    has_balancers = config.load_balancer.enabled and Service.LOAD_BALANCER in services
    client = Client(api)
    nova, neutron, cinder = Nova(client), Neutron(client), Cinder(client)
    instances = OpenStackInstances.of(nova, neutron, config)
    writes = PortWrites()
    balancers = OpenStackBalancers(
        client, config, cluster_name, clock or SystemClock(), writes=writes
    )
    has_volumes = Service.BLOCK_STORAGE in services
    return Cloud(
        name=SCHEME,
        instances=instances,
        balancers=balancers if has_balancers else None,
        annotations=ANNOTATIONS if has_balancers else None,
        routes=routes_of(neutron, config, writes),
        absent={} if config.route.router_id else {"routes": NO_ROUTER},
        volumes=OpenStackVolumes.of(cinder, nova, config) if has_volumes else None,
        volume_names=VolumeNames(drivers=("cinder.csi.openstack.org",), sources=("cinder",)),
        zones=OpenStackZones(config.auth.region, config.metadata),
        owns=instances.owns,
        abilities=abilities_of(config) if has_balancers else ABILITIES,
    )


@asynccontextmanager
async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
    """Raises `CloudError` if the configuration is wrong or Keystone gives no token.

    Other services may be down: what needs them fails until they are back. What needs a service
    that the catalogue does not have is left out.
    """
    async with connected_api(config) as (api, settings):
        token = await api.session.token()
        services = api.session.services(token)
        for missing in sorted(REQUIRED - services):
            log.warning("Service is not in the catalogue of the cloud", service=missing)
        account = Account(
            project_id=token.project_id,
            roles=token.roles,
            services=services,
            ahead=token.issued and (token.issued - SystemClock().now()).total_seconds(),
            uses_balancers=settings.load_balancer.enabled,
        )
        metrics = OpenStackMetrics(asyncio.get_running_loop().time)
        measured = MeasuredApi(api, metrics)
        cloud = cloud_of(measured, settings, services, config.cluster_name)
        yield replace(
            cloud,
            checks=partial(findings, Client(measured), account),
            metrics=metrics.registry.read,
            reconciled=metrics.reconciled,
        )


@asynccontextmanager
async def connected_api(config: ProviderConfig) -> AsyncGenerator[tuple[HttpApi, OpenStackConfig]]:
    """Requests to OpenStack with the credentials of `config`, while the block lasts.

    Also yields the settings, with the region that they mean. Raises `CloudError` as `connect`.
    """
    loaded = await in_thread(partial(load, config))
    for warning in loaded.warnings:
        log.warning("Configuration of OpenStack", warning=warning)
    connections = Connections(loaded, config.environ, config.user_agent)
    try:
        session = Session(config, loaded, connections)
        region = session.region(await session.token())
        auth = replace(loaded.auth, region=region)
        yield HttpApi(session, connections), replace(loaded.config, auth=auth)
    finally:
        await connections.close()
