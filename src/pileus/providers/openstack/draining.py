"""Members that leave: they keep their connections for a while, and get no new ones.

With `member-drain-time`, a member whose node left gets weight 0 and the tag `pileus.dev/draining`,
and is removed when that time has passed since. Members that fail their health check, such as those
of deleted machines, have no connections to keep and are removed at once. If the node comes back
meanwhile, the member gets its weight back. A weight of 0 without the tag was set by an
administrator, and stays.
"""

from collections.abc import Iterable
from dataclasses import field
from datetime import UTC, datetime

from pileus.cloud.balancer import Owner
from pileus.dataclass import dataclass
from pileus.providers.openstack.desired import Desired
from pileus.providers.openstack.octavia import Member
from pileus.providers.openstack.ports import Body

TAG = "pileus.dev/draining"
GRACE = 600.0
"""Seconds for which members that leave serve at most until a node that joins has an address: their
addresses may get other machines."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEAD = "ERROR"
"""Operating status of a member that fails its health check."""


@dataclass(frozen=True, slots=True)
class Draining:
    """How long members are drained, and what time it is."""

    seconds: float = 0.0
    """0: members are removed at once."""
    now: datetime = EPOCH
    grace: float = 0.0
    """Seconds for which members that leave are kept because no node that joins has an address."""

    def left(self, member: Member) -> float:
        """Returns the seconds until a member that leaves is removed; 0: now."""
        if self.seconds <= 0 or member.operating_status == DEAD:
            return 0.0
        if not is_draining(member) or member.updated_at is None:
            return self.seconds
        began = datetime.fromisoformat(member.updated_at).replace(tzinfo=UTC)
        passed = (self.now - began).total_seconds()
        return min(self.seconds, max(0.0, self.seconds - passed))

    def soonest(self, members: Iterable[Member]) -> float | None:
        """Returns the seconds until the first draining member is removed; None: none drains."""
        return min((self.left(one) for one in members if is_draining(one)), default=None)


@dataclass(frozen=True, slots=True)
class Leaving:
    """Since when all members are of nodes that left, and no node that joins has an address."""

    _since: dict[Owner, datetime] = field(default_factory=dict[Owner, datetime])

    def grace(self, desired: Desired, names: frozenset[str], now: datetime) -> float:
        """Returns for how many seconds all members serve although their nodes left.

        `names` are those of the members. A restart starts it over.
        """
        joining = {one.name for port in desired.ports for one in port.unaddressed}
        has_others = any(port.members for port in desired.ports)
        if has_others or not joining or not names or joining & names:
            self.forget(desired.owner)
            return 0.0
        passed = abs((now - self._since.setdefault(desired.owner, now)).total_seconds())
        return max(0.0, GRACE - passed)

    def forget(self, owner: Owner) -> None:
        self._since.pop(owner, None)


def is_draining(member: Member) -> bool:
    return TAG in member.tags


def drained(member: Member) -> Body:
    """Returns the member as it is, without new connections."""
    return {
        "name": member.name or "",
        "address": member.address,
        "protocol_port": member.protocol_port,
        "monitor_port": member.monitor_port,
        "backup": member.backup,
        "weight": 0,
        "tags": sorted({*member.tags, TAG}),
        **({"subnet_id": member.subnet_id} if member.subnet_id else {}),
    }


def returned(member: Member) -> Body:
    """Returns weight and tags of a member whose node stays, or came back."""
    kept = [tag for tag in member.tags if tag != TAG]
    weight = 1 if is_draining(member) else member.weight
    return {"weight": weight, "backup": member.backup, "tags": kept}
