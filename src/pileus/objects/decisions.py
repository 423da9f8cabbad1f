"""Records decisions of controllers in the journal, from the values that plans show."""

from collections.abc import Iterable, Iterator

from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Planned, Trouble
from pileus.telemetry import passes
from pileus.telemetry.journal import Line, Subject


def record_observation(about: ObjectReference, text: str = "") -> None:
    """Record that the current pass is about this object, and what it observed."""
    passes.observed(_subject(about), text)


def record_plan(lines: Iterable[Planned | Trouble]) -> None:
    """Record the plan of the current pass, in the lines that `pileus plan` shows.

    The lines are not made if nothing is recorded.
    """
    passes.planned(_recorded(lines))


def _recorded(lines: Iterable[Planned | Trouble]) -> Iterator[tuple[Subject, Line]]:
    for line in lines:
        yield _subject(line.about), _line(line)


def _line(line: Planned | Trouble) -> Line:
    if isinstance(line, Trouble):
        return Line(summary=line.message, reason=line.reason)
    return Line(
        place=line.place.value,
        action=line.effect.name.lower(),
        summary=line.summary,
        details=line.details,
        waits_for=line.waits_for,
    )


def _subject(about: ObjectReference) -> Subject:
    return Subject(kind=about.kind, namespace=about.namespace, name=about.name, uid=about.uid)
