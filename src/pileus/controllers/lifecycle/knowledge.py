"""What is known of the nodes that are not ready, and what follows from it for each. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from pileus.cloud.errors import CloudError
from pileus.cloud.model import Absent, Instance, InstanceState
from pileus.controllers.lifecycle.guard import Guard, Report, Standing, Subject
from pileus.controllers.lifecycle.plan import (
    Case,
    Delete,
    Policy,
    Step,
    counts,
    counts_late,
    is_out_of_service,
    on_absence,
    on_presence,
    subject_of,
)
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import Answer
from pileus.objects.ownership import Ownership


@dataclass(frozen=True, slots=True)
class Seen:
    """A node that is not ready, and what the cloud says of its machine."""

    node: Node
    whose: Ownership
    answer: Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Both guards, after all that was heard so far."""

    policy: Policy = Policy.GUARDED
    takes_out_of_service: bool = False
    gone: Guard = field(default_factory=Guard)
    stopped: Guard = field(default_factory=Guard)

    def heard(
        self, seen: Sequence[Seen], *, began: float, ended: float, ours: AbstractSet[str]
    ) -> "Knowledge":
        """After a look that `began` and `ended` then; `ours`: the UIDs of all nodes of ours."""
        stopped = _stopped(seen) if self.takes_out_of_service else ()
        return replace(
            self,
            gone=self.gone.heard(self._gone(seen), began=began, ended=ended, nodes=ours),
            stopped=self.stopped.heard(stopped, began=began, ended=ended, nodes=ours),
        )

    def kept(self, subjects: Iterable[Subject], now: float, ours: AbstractSet[str]) -> "Knowledge":
        """After a look at the cluster alone: `subjects` are those that are not ready now."""
        present = tuple(subjects)
        return replace(
            self,
            gone=self.gone.kept(present).reckoned(now, ours),
            stopped=self.stopped.kept(present).reckoned(now, ours),
        )

    def without(self, uid: str) -> "Knowledge":
        return replace(self, gone=self.gone.without(uid), stopped=self.stopped.without(uid))

    def deleting(self, uid: str, now: float) -> "Knowledge":
        return replace(self, gone=self.gone.acting(uid, now))

    def taking_out_of_service(self, uid: str, now: float) -> "Knowledge":
        return replace(self, stopped=self.stopped.acting(uid, now))

    @property
    def suspects(self) -> frozenset[str]:
        """The UIDs of all nodes against which there is a case."""
        return frozenset(self.gone.suspects) | frozenset(self.stopped.suspects)

    @property
    def is_blank(self) -> bool:
        """Whether no case is open: then nobody needs to be counted."""
        return self.gone.is_idle and self.stopped.is_idle

    def step(self, seen: Seen, *, confirmed: bool = False) -> Step | None:
        """What to do now about a node; None: nothing is known, so nothing is done.

        `confirmed`: what it would be if a second look had said the same.
        """
        subject = subject_of(seen.node)
        match seen.answer:
            case Absent():
                case = Case(
                    ownership=seen.whose,
                    standing=self.gone.standing(subject, confirmed=confirmed),
                    share=self.gone.share,
                    policy=self.policy,
                    is_overdue=self.gone.is_overdue(subject),
                    unidentified_grace=self.gone.rules.unidentified_grace,
                )
                return on_absence(seen.node, seen.answer, case)
            case Instance():
                wanted = self.takes_out_of_service and seen.whose is Ownership.OURS
                stopped = self.stopped.standing(subject, confirmed=confirmed)
                standing = stopped if wanted else Standing.CLEAR
                return on_presence(seen.node, seen.answer, standing, self.stopped.share)
            case CloudError():
                return None

    def foreseen(self, seen: Sequence[Seen], ours: AbstractSet[str]) -> "Knowledge":
        """Returns what will be known if the cloud says the same until every grace is over.

        Nodes that are deleted after a second look are no longer counted by then.
        """
        left = [each for each in seen if not isinstance(self.step(each, confirmed=True), Delete)]
        deleted = {each.node.metadata.uid for each in seen} - {e.node.metadata.uid for e in left}
        return replace(self, gone=self.gone.foreseen(self._gone(left), ours - deleted))

    def _gone(self, seen: Iterable[Seen]) -> Iterator[Report]:
        limited = self.policy is Policy.GUARDED
        for each in seen:
            subject = subject_of(each.node)
            match each.answer:
                case Absent():
                    yield Report(
                        subject,
                        holds=True,
                        counts=limited and counts(each.node, each.whose),
                        counts_late=limited and counts_late(each.node, each.whose),
                    )
                case Instance():
                    yield Report(subject, holds=False)
                case CloudError():
                    pass


def _stopped(seen: Iterable[Seen]) -> Iterator[Report]:
    """A state that the cloud does not know is no answer."""
    for each in seen:
        subject = subject_of(each.node)
        match each.answer:
            case Instance(state=InstanceState.STOPPED):
                counted = each.whose is Ownership.OURS and not is_out_of_service(each.node)
                yield Report(subject, holds=True, counts=counted)
            case Instance(state=InstanceState.RUNNING | InstanceState.PENDING) | Absent():
                yield Report(subject, holds=False)
            case Instance() | CloudError():
                pass
