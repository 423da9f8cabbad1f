"""Checks of an OpenStack project for `pileus doctor`: services, roles, quotas, clock.

Each part is checked on its own. A service that refuses or does not answer is a finding.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterator, Sequence
from functools import partial

import msgspec

from pileus.cloud.errors import CloudError, NotFound, Unauthorized
from pileus.cloud.finding import Finding, Severity, quota_finding
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Client, Service, decoded, field_of
from pileus.providers.openstack.errors import NotOfService
from pileus.providers.openstack.failed_creations import is_missing, vip_ports
from pileus.providers.openstack.features import OctaviaFeatures, octavia_version
from pileus.providers.openstack.neutron import Neutron
from pileus.providers.openstack.octavia import ROOT, LoadBalancer, Octavia

CLOCK_WARNING = 30.0
WRITING = frozenset({
    "admin",
    "manager",
    "member",
    "_member_",
    "load-balancer_admin",
    "load-balancer_member",
})
"""Roles with which services let a user write, by their default policies."""
NEEDED = {
    Service.COMPUTE: "nodes are not initialized or deleted",
    Service.NETWORK: "addresses, routes, floating IPs and security groups are not managed",
    Service.LOAD_BALANCER: "Services of type LoadBalancer get no load balancer",
}
NEUTRON_QUOTAS = {
    "port": "ports",
    "floatingip": "floating IPs",
    "security_group": "security groups",
    "security_group_rule": "security group rules",
}
RAISE = (
    "openstack quota set --{flag} {limit} {project}   # as an administrator, or delete unused ones"
)
RAISE_BALANCERS = (
    "openstack loadbalancer quota set --loadbalancer {limit} {project}   # as an administrator, "
    "or: pileus orphans"
)
BALANCERS = "load balancers"
FLAGS = {
    "ports": "ports",
    "floating IPs": "floating-ips",
    "security groups": "secgroups",
    "security group rules": "secgroup-rules",
    "servers": "instances",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the token says about the project."""

    project_id: str
    roles: tuple[str, ...] = ()
    services: frozenset[Service] = frozenset(Service)
    ahead: float | None = None
    """Seconds by which Keystone's clock is ahead of the local one."""
    uses_balancers: bool = True
    """Whether load balancers are enabled in cloud.conf."""


class _Usage(msgspec.Struct):
    limit: int = -1
    used: int = 0


class _Absolute(msgspec.Struct, rename="camel"):
    max_total_instances: int = -1
    total_instances_used: int = 0


class _Limits(msgspec.Struct):
    absolute: _Absolute


class _BalancerQuota(msgspec.Struct):
    loadbalancer: int = -1


Check = Callable[[Client, Account], Awaitable[Sequence[Finding]]]


async def findings(client: Client, account: Account) -> tuple[Finding, ...]:
    """Returns the problems of a project. Sends reads only."""
    checks: dict[Service, Check] = {
        Service.COMPUTE: _compute,
        Service.NETWORK: _network,
        Service.LOAD_BALANCER: _load_balancer,
    }
    if not account.uses_balancers:
        del checks[Service.LOAD_BALANCER]
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(_checked(service, partial(check, client, account)))
            for service, check in checks.items()
            if service in account.services
        ]
    found = (finding for task in asked for finding in task.result())
    return (*_token(account), *_missing(account, frozenset(checks)), *found)


def _token(account: Account) -> Iterator[Finding]:
    if account.roles and not WRITING & set(account.roles):
        yield Finding(
            id="role-missing",
            severity=Severity.ERROR,
            subject=f"roles in project {account.project_id}",
            what=f"the credentials have only {', '.join(account.roles)}",
            reason="services refuse changes without the role member (Octavia: load-balancer_member "
            "or member)",
            fix=f"openstack role add --user USER --project {account.project_id} member",
        )
    if account.ahead is not None and abs(account.ahead) >= CLOCK_WARNING:
        word = "ahead of" if account.ahead > 0 else "behind"
        yield Finding(
            id="cloud-clock-skew",
            severity=Severity.WARNING,
            subject="Keystone",
            what=f"its clock is {abs(account.ahead):.0f} s {word} the clock of this machine",
            reason="certificates and times in logs are misleading; tokens are not affected",
            fix="timedatectl set-ntp true   # on the machine whose clock is wrong",
        )


def _missing(account: Account, wanted: frozenset[Service]) -> Iterator[Finding]:
    for service in sorted(wanted - account.services):
        yield Finding(
            id="service-missing",
            severity=Severity.ERROR,
            subject=f"service {service}",
            what="is not in the catalogue of the region",
            reason=NEEDED[service],
            fix="openstack catalog list   # check region and os-endpoint-type in cloud.conf",
        )


async def _checked(
    service: Service, check: Callable[[], Awaitable[Sequence[Finding]]]
) -> Sequence[Finding]:
    """Makes a check. A service that cannot be asked is a finding."""
    try:
        return await check()
    except CloudError as error:
        is_role = isinstance(error, Unauthorized)
        fix = (
            "openstack role assignment list --names   # add the role that the message names"
            if is_role
            else "openstack endpoint list   # then check the service"
        )
        return [
            Finding(
                id="service-refuses" if is_role else "service-unavailable",
                severity=Severity.ERROR,
                subject=f"service {service}",
                what=str(error),
                reason=NEEDED[service],
                fix=fix,
            )
        ]


def _full(*found: Finding | None) -> list[Finding]:
    return [each for each in found if each]


def _quota(account: Account, what: str, used: int, limit: int) -> Finding | None:
    fix = RAISE_BALANCERS if what == BALANCERS else RAISE
    filled = fix.format(flag=FLAGS.get(what), limit=2 * used, project=account.project_id)
    return quota_finding(what, used, limit, filled)


async def _compute(client: Client, account: Account) -> Sequence[Finding]:
    await client.send("GET", Service.COMPUTE, "/servers", query=(("limit", "1"),))
    limits = await client.get(Service.COMPUTE, "/limits", "limits", _Limits)
    usage = limits.absolute
    return _full(_quota(account, "servers", usage.total_instances_used, usage.max_total_instances))


async def _network(client: Client, account: Account) -> Sequence[Finding]:
    await client.send("GET", Service.NETWORK, "/v2.0/networks", query=(("limit", "1"),))
    path = f"/v2.0/quotas/{account.project_id}/details.json"
    try:
        answer = await client.send("GET", Service.NETWORK, path)
    except (NotFound, NotOfService):  # without the extension quota_details
        return []
    usage = decoded(field_of(answer, "quota", path), dict[str, _Usage], path)
    return _full(
        *(
            _quota(account, what, usage[name].used, usage[name].limit)
            for name, what in NEUTRON_QUOTAS.items()
            if name in usage
        )
    )


async def _load_balancer(client: Client, account: Account) -> Sequence[Finding]:
    version = octavia_version(await client.send("GET", Service.LOAD_BALANCER, "/"))
    query = (("fields", "id"), ("project_id", account.project_id))
    balancers = await client.all_pages(
        Service.LOAD_BALANCER, f"{ROOT}/loadbalancers", "loadbalancers", LoadBalancer, query=query
    )
    path = f"{ROOT}/quotas/{account.project_id}"
    quota = await client.get(Service.LOAD_BALANCER, path, "quota", _BalancerQuota)
    used_up = _quota(account, BALANCERS, len(balancers), quota.loadbalancer)
    known = {one.id for one in balancers}
    return _full(*_old(version), used_up, await _left_ports(client, account, known))


async def _left_ports(
    client: Client, account: Account, balancers: Container[str]
) -> Finding | None:
    """Ports that a creation left which failed in a process that has ended since."""
    if Service.NETWORK not in account.services:
        return None
    octavia = Octavia(client)
    left = [
        port.id
        for port, balancer in vip_ports(await Neutron(client).vip_ports())
        if port.project_id == account.project_id
        and balancer not in balancers
        and await is_missing(octavia, balancer)
    ]
    if not left:
        return None
    return Finding(
        id="vip-ports-left",
        severity=Severity.WARNING,
        subject=f"ports in project {account.project_id}",
        what=f"{len(left)} ports belong to load balancers that do not exist",
        reason="Octavia leaves the port of a load balancer that it refuses to create; it uses an "
        "address and counts toward the quota. A load balancer that is being created looks the same "
        "for a moment",
        fix=f"openstack port delete {' '.join(left)}   # if a second run names the same ports",
    )


def _old(version: tuple[int, int]) -> Iterator[Finding]:
    if not OctaviaFeatures(version).has_tags:
        yield Finding(
            id="octavia-too-old",
            severity=Severity.ERROR,
            subject="service load-balancer",
            what=f"Octavia API v{version[0]}.{version[1]} has no tags",
            reason="Pileus identifies its load balancers by tags, which need API v2.5 (Stein)",
            fix="upgrade Octavia",
        )
