"""Changes of load balancers: one line of a plan each, and at most one write to Octavia each."""

from dataclasses import field
from typing import TypeAlias

from pileus.cloud.balancer import Effect, Part
from pileus.dataclass import dataclass
from pileus.providers.openstack.floating_ip import FloatingIpChange
from pileus.providers.openstack.neutron import VipPort
from pileus.providers.openstack.ports import Body
from pileus.providers.openstack.security_group import SecurityGroupChange


@dataclass(frozen=True, slots=True)
class CreateBalancer:
    body: Body = field(hash=False)


@dataclass(frozen=True, slots=True)
class TagBalancer:
    """Add and remove tags; all others stay."""

    balancer: str
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteBalancer:
    balancer: str
    with_parts: bool = True


@dataclass(frozen=True, slots=True)
class CreatePart:
    kind: str
    """`listener`, `pool` or `healthmonitor`."""
    body: Body = field(hash=False)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is planned of a part that does not exist yet, and made once it does."""


@dataclass(frozen=True, slots=True)
class UpdatePart:
    """Change a part in place: it keeps its ID, so the load balancer loses its stamp first."""

    kind: str
    id: str
    body: Body = field(hash=False)


@dataclass(frozen=True, slots=True)
class DeletePart:
    kind: str
    id: str


@dataclass(frozen=True, slots=True)
class SetMembers:
    pool: str
    members: tuple[Body, ...] = field(hash=False)
    is_in_place: bool = False
    """Whether a member that stays is changed."""


@dataclass(frozen=True, slots=True)
class CreateMember:
    """One member, for providers that refuse batches."""

    pool: str
    body: Body = field(hash=False)


@dataclass(frozen=True, slots=True)
class DeleteMember:
    pool: str
    id: str


@dataclass(frozen=True, slots=True)
class DeletePort:
    """The port of a load balancer that Octavia refused to create."""

    port: VipPort


Step: TypeAlias = (
    CreateBalancer
    | TagBalancer
    | DeleteBalancer
    | CreatePart
    | Foreseen
    | UpdatePart
    | DeletePart
    | SetMembers
    | CreateMember
    | DeleteMember
    | DeletePort
    | FloatingIpChange
    | SecurityGroupChange
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A load balancer that is up to date."""

    fingerprint: str
    members: tuple[int, ...]
    """The number of members of each pool, in ascending order."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a plan."""

    effect: Effect
    summary: str
    step: Step
    part: Part = Part.WHOLE
    completes: Outcome | None = None
    """What the load balancer is after this change, if no other one is needed; None: not known."""
    is_final: bool = False
    """Whether it belongs to a deletion: then it does not matter what the stamp says."""

    @property
    def invalidates(self) -> bool:
        """Whether the load balancer must lose its stamp before this change."""
        match self.step:
            case UpdatePart():
                return True
            case SetMembers(is_in_place=is_in_place):
                return is_in_place
            case _:
                return isinstance(self.step, SecurityGroupChange) and not self.is_final
