"""The provider `local`: a cloud that `pileus local serve` runs on this machine."""

import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

from pileus.cloud.abilities import Abilities, Requests
from pileus.cloud.errors import Misconfigured
from pileus.cloud.finding import Finding, quota_finding
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.suggest import did_you_mean
from pileus_lab.local.api import SCHEME, Api, Permitted, owns
from pileus_lab.local.capabilities import (
    LocalBalancers,
    LocalClusters,
    LocalInstances,
    LocalRoutes,
    LocalSshKeys,
    LocalZones,
)
from pileus_lab.local.http_api import reaching
from pileus_lab.local.model.account import Describe, ShowQuota
from pileus_lab.local.options import ANNOTATIONS, ENDPOINT, ZONE, endpoint_of, read_file
from pileus_lab.local.volume_capability import LocalVolumes

ABILITIES = Abilities(marks_routes=True, requests=Requests(per_balancer=1, per_change=1))
"""An observation is one list of outlines, plus one list of whole balancers if parts are needed. A
change is one request."""


@asynccontextmanager
async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
    """Raises `Misconfigured` with the mistake in the file, `Unavailable` if no cloud runs."""
    values = read_file(config.text, config.path or "the cloud configuration")
    endpoint = endpoint_of(values[ENDPOINT], config.environ)
    async with reaching(endpoint) as api:
        yield await cloud_of(api, zone=values[ZONE], named=values[ENDPOINT])


async def cloud_of(api: Api, *, zone: str = "", named: str = "") -> Cloud:
    """Returns a local cloud, in this process or behind a socket, as the provider contract has it.

    `named`: its socket, if commands have to name it. Raises `Misconfigured` if the zone is unknown,
    `Unavailable` if no cloud answers.
    """
    api = Permitted(api)
    described = await api.call(Describe())
    if zone and zone not in described.zones:
        known = ", ".join(described.zones)
        hint = did_you_mean(zone, described.zones)
        raise Misconfigured(f'zone: the local cloud has no "{zone}" (it has: {known}){hint}')
    return Cloud(
        name=SCHEME,
        instances=LocalInstances(api, described.region),
        balancers=LocalBalancers(api),
        annotations=ANNOTATIONS,
        routes=LocalRoutes(api),
        volumes=LocalVolumes(api, described.region),
        clusters=LocalClusters(api),
        ssh_keys=LocalSshKeys(api),
        zones=LocalZones(zone, described),
        owns=owns,
        abilities=ABILITIES,
        checks=partial(quota_findings, api, named),
    )


async def quota_findings(api: Api, named: str) -> tuple[Finding, ...]:
    """Returns the quotas that are used up or nearly so."""
    quotas = (await api.call(ShowQuota())).items
    where = f" --endpoint={shlex.quote(named)}" if named else ""
    found = (
        quota_finding(
            each.name,
            each.used,
            each.limit,
            fix=f"pileus local quota set {each.name}={2 * each.limit}{where}",
        )
        for each in quotas
    )
    return tuple(finding for finding in found if finding)
