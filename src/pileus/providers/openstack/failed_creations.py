"""Ports that Octavia leaves in Neutron when it refuses to create a load balancer.

Octavia creates the port of the VIP first. If it refuses a listener, a pool or a member afterwards,
it forgets the load balancer and leaves the port, which has no tags: only its name, `device_id` and
time of creation say where it comes from. A port is left over if

- it was created while this process waited for the answer to a creation that failed,
- its name and `device_id` are those of a load balancer, and
- Octavia has no such load balancer a minute later. Until then it may be that of a load balancer
  which something else is creating at the same time.

A restart forgets failed creations: `pileus doctor` reports what is left then.
"""

import re
from collections.abc import Container, Iterator
from dataclasses import field
from datetime import datetime, timedelta

from pileus.clock import Clock
from pileus.cloud.balancer import Owner
from pileus.cloud.errors import NotFound
from pileus.dataclass import dataclass
from pileus.providers.openstack.neutron import Neutron, VipPort
from pileus.providers.openstack.octavia import Octavia
from pileus.providers.openstack.recent import UNLISTED

SKEW = 15.0
"""Seconds by which the clocks of Neutron and of this machine may differ."""
WAIT = UNLISTED + SKEW
"""Seconds after which no creation that began at the same time can be under way any more."""
_NAME = re.compile(r"(?:octavia-lb|ovn-lb-vip)-([0-9a-f-]{36})")


@dataclass(frozen=True, slots=True)
class Failed:
    """One creation that failed."""

    began: datetime
    ended: datetime

    def may_have_made(self, port: VipPort) -> bool:
        made, skew = port.created, timedelta(seconds=SKEW)
        return made is not None and self.began - skew <= made <= self.ended + skew

    def is_due(self, now: datetime) -> bool:
        return abs((now - self.ended).total_seconds()) >= WAIT


@dataclass(frozen=True, slots=True)
class FailedCreations:
    """Creations of load balancers that failed in this process, until their ports are deleted."""

    clock: Clock
    _failed: dict[Owner, tuple[Failed, ...]] = field(
        default_factory=dict[Owner, tuple[Failed, ...]]
    )

    def add(self, owner: Owner, began: datetime) -> None:
        failed = Failed(began, self.clock.now())
        self._failed[owner] = (*self._failed.get(owner, ()), failed)

    def are_open(self, owner: Owner) -> bool:
        """Whether a port may be left over that cannot be identified yet."""
        now = self.clock.now()
        return any(not one.is_due(now) for one in self._failed.get(owner, ()))

    async def leftovers(
        self, owner: Owner, neutron: Neutron, octavia: Octavia, existing: Container[str]
    ) -> tuple[VipPort, ...]:
        """Returns the ports that are left over of this owner's creations. Without any, no request.

        `existing` are IDs of load balancers that are known to exist.
        """
        now = self.clock.now()
        failed = self._failed.get(owner, ())
        due = [one for one in failed if one.is_due(now)]
        if not due:
            return ()
        candidates = [
            (port, balancer)
            for port, balancer in vip_ports(await neutron.vip_ports())
            if balancer not in existing and any(one.may_have_made(port) for one in due)
        ]
        listed = {one.id for one in await octavia.balancers()} if candidates else set[str]()
        found = [
            port
            for port, balancer in candidates
            if balancer not in listed and await is_missing(octavia, balancer)
        ]
        if not found:
            self._keep(owner, tuple(one for one in failed if one not in due))
        return tuple(found)

    def _keep(self, owner: Owner, failed: tuple[Failed, ...]) -> None:
        if failed:
            self._failed[owner] = failed
        else:
            self._failed.pop(owner, None)


def vip_ports(ports: tuple[VipPort, ...]) -> Iterator[tuple[VipPort, str]]:
    """Yields the ports that Octavia created, and the IDs of their load balancers."""
    for port in ports:
        balancer = balancer_of(port)
        if balancer:
            yield port, balancer


def balancer_of(port: VipPort) -> str:
    """Returns the ID of the load balancer for which Octavia created the port; empty if for none."""
    named = _NAME.fullmatch(port.name)
    return named[1] if named and port.device_id == f"lb-{named[1]}" else ""


async def is_missing(octavia: Octavia, balancer: str) -> bool:
    try:
        await octavia.balancer(balancer)
    except NotFound:
        return True
    return False
