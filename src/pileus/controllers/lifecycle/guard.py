"""Decides when the cloud's answers about nodes are confirmed. Pure: values; time is a number.

    reported once ──▶ suspect ──reported again after the grace──▶ confirmed ──▶ action allowed
                         │                                            │
                         └─ reported otherwise, or the node ──────────┘─ too many nodes at once: no
                            was replaced: forgotten                      action until fewer are
                                                                         affected or a user approves

An error instead of an answer changes nothing. Nothing is stored: after a restart the grace period
starts again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from datetime import datetime
from enum import Enum, auto

from pileus.cloud.errors import CloudError
from pileus.cloud.model import Absent, Instance, InstanceState
from pileus.controllers.lifecycle.annotations import deletion_decision, invalid_annotations
from pileus.controllers.lifecycle.observation import Observed
from pileus.controllers.lifecycle.patches import is_out_of_service
from pileus.controllers.lifecycle.settings import LifecycleSettings, Policy, Rules
from pileus.dataclass import dataclass, replace
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import READY, condition_of, provider_id_of
from pileus.objects.ownership import Ownership

LONGEST_BREAK = 300.0
"""Seconds without an answer after which the grace period of unidentified nodes starts again."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One node during one period of not being ready. Evidence does not outlive that period."""

    uid: str
    provider_id: str
    not_ready_since: datetime | None


@dataclass(frozen=True, slots=True)
class Report:
    """A positive answer of the cloud: whether the subject is absent (or stopped)."""

    subject: Subject
    holds: bool
    counts: bool = True
    """Whether the limit applies to it. It does not if a user has approved the action."""
    counts_late: bool = False
    """Whether the limit applies after the grace period of unidentified nodes."""


class Standing(Enum):
    """How far the evidence about a node has come."""

    CLEAR = auto()
    WAITING = auto()
    """Reported, but not confirmed yet."""
    TOO_MANY = auto()
    """Confirmed, but too many nodes are affected at once."""
    CONFIRMED = auto()


@dataclass(frozen=True, slots=True)
class Share:
    """How many nodes are affected, of how many; and the limit."""

    affected: int = 0
    limit: int = 1
    nodes: int = 0

    @property
    def is_too_large(self) -> bool:
        return self.affected > self.limit


@dataclass(frozen=True, slots=True)
class Suspect:
    subject: Subject
    first: float
    """When the first answer arrived."""
    counts: bool
    is_confirmed: bool = False
    unbroken: float = 0.0
    """Since when the same answer was given without a break."""
    last: float = 0.0
    """When the last answer arrived."""
    is_overdue: bool = False
    """Whether the grace period of unidentified nodes is over as well."""


def _no_suspects() -> Mapping[str, Suspect]:
    return {}


def _no_actions() -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The evidence for one kind of action, by the nodes' UIDs, and its circuit breaker."""

    rules: Rules = field(default_factory=Rules)
    suspects: Mapping[str, Suspect] = field(default_factory=_no_suspects)
    acted: Mapping[str, float] = field(default_factory=_no_actions)
    """When nodes were acted on, within the window."""
    share: Share = field(default_factory=Share)

    @property
    def is_open(self) -> bool:
        """Whether the circuit breaker is open: no action on nodes that count."""
        return self.share.is_too_large

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to count."""
        return not (self.suspects or self.acted or self.is_open)

    @property
    def kept_back(self) -> int:
        """How many confirmed nodes the open circuit breaker protects from the action."""
        if not self.is_open:
            return 0
        return sum(each.counts and each.is_confirmed for each in self.suspects.values())

    def recorded(
        self, reports: Iterable[Report], *, began: float, ended: float, nodes: AbstractSet[str]
    ) -> "Guard":
        """Returns the guard after a lookup; `nodes`: the UIDs of all nodes of this cloud."""
        suspects = dict(self.suspects)
        for report in reports:
            uid = report.subject.uid
            if report.holds:
                suspects[uid] = self._suspected(suspects.get(uid), report, began, ended)
            else:
                suspects.pop(uid, None)
        return replace(self, suspects=suspects).recounted(ended, nodes)

    def retained(self, subjects: Iterable[Subject]) -> "Guard":
        """Returns the guard without suspects that are not among these subjects any more."""
        present = {each.uid: each for each in subjects}
        retained = {uid: s for uid, s in self.suspects.items() if present.get(uid) == s.subject}
        return replace(self, suspects=retained)

    def without(self, uid: str) -> "Guard":
        if uid not in self.suspects:
            return self
        return replace(self, suspects={k: v for k, v in self.suspects.items() if k != uid})

    def acted_on(self, uid: str, now: float) -> "Guard":
        """Call it before the action: a failed request may have taken effect."""
        return replace(self, acted={**self.acted, uid: now})

    def recounted(self, now: float, nodes: AbstractSet[str]) -> "Guard":
        """Counts again: time has passed, nodes were created and deleted.

        When the circuit breaker closes, the remaining suspects have to be confirmed again.
        """
        window = self.rules.window
        acted = {uid: when for uid, when in self.acted.items() if now - when < window}
        affected = acted.keys() | {uid for uid, each in self.suspects.items() if each.counts}
        everyone = len(nodes | affected)
        share = Share(len(affected), self.rules.limit(everyone), everyone)
        suspects = self.suspects
        if self.is_open and not share.is_too_large:
            suspects = {uid: _restarted(each, now) for uid, each in suspects.items()}
        return replace(self, suspects=suspects, acted=acted, share=share)

    def projected(self, reports: Iterable[Report], nodes: AbstractSet[str]) -> "Guard":
        """Returns the guard as it will be if the same is reported until all grace periods end."""
        overdue = self.rules.unidentified_grace > 0
        suspects = {
            report.subject.uid: Suspect(
                report.subject,
                first=0.0,
                counts=report.counts or (report.counts_late and overdue),
                is_confirmed=True,
                is_overdue=overdue,
            )
            for report in reports
            if report.holds
        }
        return Guard(rules=self.rules, suspects=suspects).recounted(0.0, nodes)

    def standing(self, subject: Subject, *, confirmed: bool = False) -> Standing:
        """Returns the standing; with `confirmed`, the one after a second, identical answer."""
        suspect = self.suspects.get(subject.uid)
        if suspect is None or suspect.subject != subject:
            return Standing.CLEAR
        if not suspect.is_confirmed and not confirmed:
            return Standing.WAITING
        return Standing.TOO_MANY if self.is_open and suspect.counts else Standing.CONFIRMED

    def is_overdue(self, subject: Subject) -> bool:
        """Whether the subject was reported absent for the grace period of unidentified nodes."""
        suspect = self.suspects.get(subject.uid)
        return suspect is not None and suspect.subject == subject and suspect.is_overdue

    def _suspected(
        self, known: Suspect | None, report: Report, began: float, ended: float
    ) -> Suspect:
        if known is None or known.subject != report.subject:
            return Suspect(report.subject, ended, report.counts, unbroken=ended, last=ended)
        unbroken = known.unbroken if began - known.last <= LONGEST_BREAK else ended
        overdue = 0 < max(self.rules.unidentified_grace, 0.0) <= began - unbroken
        return replace(
            known,
            counts=report.counts or (report.counts_late and overdue),
            is_confirmed=known.is_confirmed or began - known.first >= self.rules.grace,
            unbroken=unbroken,
            last=ended,
            is_overdue=overdue,
        )


def _restarted(suspect: Suspect, now: float) -> Suspect:
    if not suspect.counts:
        return suspect
    return replace(suspect, first=now, unbroken=now, is_confirmed=False, is_overdue=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What is remembered about nodes that are not ready: one guard per kind of action."""

    policy: Policy = Policy.GUARDED
    takes_out_of_service: bool = False
    deletion: Guard = field(default_factory=Guard)
    out_of_service: Guard = field(default_factory=Guard)

    def recorded(
        self, seen: Sequence[Observed], *, began: float, ended: float, ours: AbstractSet[str]
    ) -> "Guards":
        """Returns the guards after a lookup that began and ended then.

        `ours`: the UIDs of all nodes of this cloud.
        """
        stopped = _stopped(seen) if self.takes_out_of_service else ()
        return replace(
            self,
            deletion=self.deletion.recorded(
                self._absent(seen), began=began, ended=ended, nodes=ours
            ),
            out_of_service=self.out_of_service.recorded(
                stopped, began=began, ended=ended, nodes=ours
            ),
        )

    def retained(self, subjects: Iterable[Subject], now: float, ours: AbstractSet[str]) -> "Guards":
        """Returns the guards for the nodes that are not ready now."""
        present = tuple(subjects)
        return replace(
            self,
            deletion=self.deletion.retained(present).recounted(now, ours),
            out_of_service=self.out_of_service.retained(present).recounted(now, ours),
        )

    def without(self, uid: str) -> "Guards":
        """Returns the guards without a node that is ready again or deleted."""
        deletion, out_of_service = self.deletion.without(uid), self.out_of_service.without(uid)
        if deletion is self.deletion and out_of_service is self.out_of_service:
            return self
        return replace(self, deletion=deletion, out_of_service=out_of_service)

    def deleting(self, uid: str, now: float) -> "Guards":
        return replace(self, deletion=self.deletion.acted_on(uid, now))

    def taking_out_of_service(self, uid: str, now: float) -> "Guards":
        return replace(self, out_of_service=self.out_of_service.acted_on(uid, now))

    def projected(self, seen: Iterable[Observed], ours: AbstractSet[str]) -> "Guards":
        """Returns the guards as they will be if the cloud's answers stay the same."""
        return replace(self, deletion=self.deletion.projected(self._absent(seen), ours))

    @property
    def suspects(self) -> frozenset[str]:
        """The UIDs of all suspects."""
        return frozenset(self.deletion.suspects) | frozenset(self.out_of_service.suspects)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to count."""
        return self.deletion.is_idle and self.out_of_service.is_idle

    def _absent(self, seen: Iterable[Observed]) -> Iterator[Report]:
        limited = self.policy is Policy.GUARDED
        for each in seen:
            subject = subject_of(each.node)
            match each.answer:
                case Absent():
                    yield Report(
                        subject,
                        holds=True,
                        counts=limited and _counts(each, Ownership.OURS),
                        counts_late=limited and _counts(each, Ownership.UNPROVEN),
                    )
                case Instance():
                    yield Report(subject, holds=False)
                case CloudError() | None:
                    pass


def subject_of(node: Node) -> Subject:
    ready = condition_of(node, READY)
    since = ready.last_transition_time if ready else None
    return Subject(node.metadata.uid, provider_id_of(node), since)


def _counts(seen: Observed, whose: Ownership) -> bool:
    """Whether the limit applies: the node would be deleted, and no user has decided about it."""
    decided = deletion_decision(seen.node) or invalid_annotations(seen.node)
    return seen.whose is whose and not decided


def _stopped(seen: Iterable[Observed]) -> Iterator[Report]:
    """Yields a report for each instance whose state is known."""
    for each in seen:
        subject = subject_of(each.node)
        match each.answer:
            case Instance(state=InstanceState.STOPPED):
                counted = each.whose is Ownership.OURS and not is_out_of_service(each.node)
                yield Report(subject, holds=True, counts=counted)
            case Instance(state=InstanceState.RUNNING | InstanceState.PENDING) | Absent():
                yield Report(subject, holds=False)
            case Instance() | CloudError() | None:
                pass


def initial_guards(settings: LifecycleSettings) -> Guards:
    """Returns the guards at the start of the process."""
    return Guards(
        policy=settings.policy,
        takes_out_of_service=settings.takes_out_of_service,
        deletion=Guard(rules=settings.rules),
        out_of_service=Guard(rules=settings.rules),
    )
