"""The history of Services and their balancers: desired, kept, lost, cleaned up."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from pileus_lab.apiserver.tree import Obj, text, texts, words
from pileus_lab.simulation.environment.steps import CloudStep, ObjectStep
from pileus_lab.simulation.environment.users import ADOPT, MANAGE

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
Version = tuple[str, str]
"""UID and resource version of an object."""
UNMANAGED = frozenset({"none", "observe", "members"})
"""Values of `pileus.dev/manage` with which a balancer is not fully managed."""


@dataclass(frozen=True, slots=True)
class Vanished:
    """A Service that was deleted by force."""

    at: float
    leader: str
    """The leader at that time."""
    was_known: bool
    """Whether it had received the Service."""
    is_protected: bool
    """Whether `pileus.dev/manage` was anything but full; misspelt values protect, too."""


@dataclass(slots=True)
class ServiceHistory:
    wanted_since: dict[str, float] = field(default_factory=dict[str, float])
    """Since when a Service needs a balancer of ours without naming an existing one, by UID."""
    unmanaged: dict[str, tuple[str, Version]] = field(
        default_factory=dict[str, tuple[str, Version]]
    )
    """By UID of a Service: its `pileus.dev/manage`, and the version that set it."""
    cleaned_up: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])
    """Which leader deleted a balancer of which deleted Service, and when. A deletion that fails in
    the cloud is repeated."""
    vanished: dict[str, Vanished] = field(default_factory=dict[str, Vanished])
    """By UID: Services that were deleted while they had the finalizer or a balancer."""
    kept_on_purpose: set[str] = field(default_factory=set[str])
    """UIDs of Services whose finalizer was removed while `pileus.dev/manage` kept their
    balancers, and that have not had the finalizer, or needed a managed balancer, since."""
    stripped: dict[str, str] = field(default_factory=dict[str, str])
    """By UID: Services whose finalizer was removed by others, and the leader at that time."""
    born: dict[str, float] = field(default_factory=dict[str, float])
    """When a balancer was created, by ID."""

    def learn(
        self, step: ObjectStep, service: Obj, now: float, *, wants: bool, leader: str
    ) -> None:
        """A Service was created or changed; `wants`: whether it needs a balancer of ours now."""
        uid = text(service, "metadata", "uid")
        if wants and not {MANAGE, ADOPT} & words(service, "metadata", "annotations").keys():
            self.wanted_since.setdefault(uid, now)
        else:
            self.wanted_since.pop(uid, None)
        released = step.before and has_finalizer(step.before) and not has_finalizer(service)
        if released and not is_manager(step.who):
            self.stripped[uid] = leader
        if released and is_manager(step.who) and is_left_to_others(service):
            self.kept_on_purpose.add(uid)
        elif has_finalizer(service) or (wants and not is_left_to_others(service)):
            self.kept_on_purpose.discard(uid)
        self._learn_of_mode(service, uid)

    def forget(self, uid: str, lost: Vanished | None) -> None:
        """A Service was deleted; `lost`: how, if no manager had removed the finalizer."""
        self.wanted_since.pop(uid, None)
        self.unmanaged.pop(uid, None)
        if lost is not None:
            self.vanished[uid] = lost

    def learn_of_cloud(
        self, step: CloudStep, there: Iterable[str], leader: str, now: float
    ) -> None:
        """A manager changed the cloud; `there`: the UIDs of all Services."""
        before, after = step.before.balancers, step.after.balancers
        if before is after:
            return
        self.born |= {key: now for key in after if key not in before}
        lost = (one.twin_of or one.owner for key, one in before.items() if key not in after)
        owners = [owner.uid for owner in lost if owner]
        gone = set(owners).difference(there)
        self.cleaned_up += [(leader, uid, now) for uid in owners if uid in gone]

    def _learn_of_mode(self, service: Obj, uid: str) -> None:
        mode = words(service, "metadata", "annotations").get(MANAGE, "")
        if mode not in UNMANAGED:
            self.unmanaged.pop(uid, None)
        elif self.unmanaged.get(uid, ("",))[0] != mode:
            version = text(service, "metadata", "resourceVersion")
            self.unmanaged[uid] = mode, (uid, version)


def is_manager(who: str) -> bool:
    return who.startswith("manager")


def has_finalizer(service: Obj) -> bool:
    return FINALIZER in texts(service, "metadata", "finalizers")


def is_left_to_others(service: Obj) -> bool:
    """Whether users want to keep its balancer after the Service is deleted."""
    return words(service, "metadata", "annotations").get(MANAGE) in {"none", "observe", "members"}
