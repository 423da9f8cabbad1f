"""Whether what the cloud says of nodes may be acted upon. Pure: a value; time is a number.

    said once ──▶ suspect ──said again, a grace later──▶ confirmed ──not too many──▶ may be acted on
                     │                                       │
                     └── the cloud says otherwise, or the ───┘── too many at once: held, until
                         node is another one: forgotten          others come back or a human says so

An answer that is no answer changes nothing. Nothing is kept when the process ends: the grace then
begins anew.
"""

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto

LONGEST_BREAK = 300.0
"""Seconds without an answer after which the grace for unidentified nodes begins again."""
ROUNDING = 1e-9
"""What a product of floats may lack of a whole number that is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    grace: float = 30.0
    """Seconds between the first answer and the beginning of the look that confirms it."""
    fraction: float = 0.2
    """The part of all nodes that may be acted on within a window; one always may."""
    window: float = 600.0
    """Seconds."""
    unidentified_grace: float = 1800.0
    """Seconds for which a node that nothing identifies as ours must be denied without a break
    before it counts as ours; 0: it never does."""

    def limit(self, nodes: int) -> int:
        return max(1, math.floor(self.fraction * nodes + ROUNDING))


@dataclass(frozen=True, slots=True)
class Subject:
    """A node in one spell of being not ready. Another one is about something else."""

    uid: str
    provider_id: str
    not_ready_since: datetime | None


@dataclass(frozen=True, slots=True)
class Report:
    """What the cloud positively says of a subject: whether that which is guarded against holds."""

    subject: Subject
    holds: bool
    counts: bool = True
    """Whether acting on it is limited; a human's word is not."""
    counts_late: bool = False
    """Whether it is limited once the grace for unidentified nodes is over."""


class Standing(Enum):
    """How far the case against a node has come."""

    CLEAR = auto()
    WAITING = auto()
    """Said, but not confirmed yet."""
    HELD = auto()
    """Confirmed, but too many others are as well."""
    CONFIRMED = auto()


@dataclass(frozen=True, slots=True)
class Share:
    """How many nodes are acted on, or would be, of how many; and how many may be."""

    going: int = 0
    limit: int = 1
    nodes: int = 0

    @property
    def is_too_large(self) -> bool:
        return self.going > self.limit


@dataclass(frozen=True, slots=True)
class Suspect:
    subject: Subject
    first: float
    """When the first answer had come."""
    counts: bool
    is_confirmed: bool = False
    unbroken: float = 0.0
    """Since when the same was said without a break."""
    last: float = 0.0
    """When it was said last."""
    is_overdue: bool = False
    """Whether the grace for unidentified nodes is over as well."""


def _nobody() -> Mapping[str, Suspect]:
    return {}


def _nothing() -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """All cases of one sort, by the nodes' UIDs."""

    rules: Rules = field(default_factory=Rules)
    suspects: Mapping[str, Suspect] = field(default_factory=_nobody)
    acted: Mapping[str, float] = field(default_factory=_nothing)
    """When nodes were acted on, for as long as the window lasts."""
    share: Share = field(default_factory=Share)

    @property
    def is_open(self) -> bool:
        """Whether the breaker is: nothing that counts is acted on."""
        return self.share.is_too_large

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to count."""
        return not (self.suspects or self.acted or self.is_open)

    @property
    def held(self) -> int:
        """How many would be acted on if the breaker were closed."""
        if not self.is_open:
            return 0
        return sum(each.counts and each.is_confirmed for each in self.suspects.values())

    def heard(
        self, reports: Iterable[Report], *, began: float, ended: float, nodes: AbstractSet[str]
    ) -> "Guard":
        """The guard after a look at some nodes; `nodes`: the UIDs of all that count."""
        suspects = dict(self.suspects)
        for report in reports:
            uid = report.subject.uid
            if report.holds:
                suspects[uid] = self._suspected(suspects.get(uid), report, began, ended)
            else:
                suspects.pop(uid, None)
        return replace(self, suspects=suspects).reckoned(ended, nodes)

    def kept(self, subjects: Iterable[Subject]) -> "Guard":
        """Without those that are not (or no longer the same) among the nodes that are not ready."""
        present = {each.uid: each for each in subjects}
        kept = {uid: s for uid, s in self.suspects.items() if present.get(uid) == s.subject}
        return replace(self, suspects=kept)

    def without(self, uid: str) -> "Guard":
        if uid not in self.suspects:
            return self
        return replace(self, suspects={k: v for k, v in self.suspects.items() if k != uid})

    def acting(self, uid: str, now: float) -> "Guard":
        """To be noted before acting: what fails may have taken effect all the same."""
        return replace(self, acted={**self.acted, uid: now})

    def reckoned(self, now: float, nodes: AbstractSet[str]) -> "Guard":
        """Count again: time passes, nodes come and go.

        When the breaker closes, the cloud has been wrong, or many were lost: whoever is left has
        to be confirmed anew.
        """
        window = self.rules.window
        acted = {uid: when for uid, when in self.acted.items() if now - when < window}
        going = acted.keys() | {uid for uid, each in self.suspects.items() if each.counts}
        everyone = len(nodes | going)
        share = Share(len(going), self.rules.limit(everyone), everyone)
        suspects = self.suspects
        if self.is_open and not share.is_too_large:
            suspects = {uid: _anew(each, now) for uid, each in suspects.items()}
        return replace(self, suspects=suspects, acted=acted, share=share)

    def foreseen(self, reports: Iterable[Report], nodes: AbstractSet[str]) -> "Guard":
        """Returns the guard as it will be if the same is reported until every grace is over."""
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
        return Guard(rules=self.rules, suspects=suspects).reckoned(0.0, nodes)

    def standing(self, subject: Subject, *, confirmed: bool = False) -> Standing:
        """How far it has come; with `confirmed`, how far after a second look like the first."""
        suspect = self.suspects.get(subject.uid)
        if suspect is None or suspect.subject != subject:
            return Standing.CLEAR
        if not suspect.is_confirmed and not confirmed:
            return Standing.WAITING
        return Standing.HELD if self.is_open and suspect.counts else Standing.CONFIRMED

    def is_overdue(self, subject: Subject) -> bool:
        """Whether the subject was denied for so long that nothing else has to identify it."""
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


def _anew(suspect: Suspect, now: float) -> Suspect:
    if not suspect.counts:
        return suspect
    return replace(suspect, first=now, unbroken=now, is_confirmed=False, is_overdue=False)
