"""The text form of a plan: changes by object, then what is blocked, then a summary line."""

from collections.abc import Iterator, Mapping, Sequence

from pileus.app.plan import Plan
from pileus.cli.style import Ink, Style
from pileus.cloud.balancer import Effect
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Planned, Scope, title

INKS = {
    Effect.CREATE: Ink.GREEN,
    Effect.UPDATE: Ink.YELLOW,
    Effect.REPLACE: Ink.MAGENTA,
    Effect.DELETE: Ink.RED,
}
WORDS = {
    Effect.CREATE: "to add",
    Effect.UPDATE: "to change",
    Effect.REPLACE: "to replace",
    Effect.DELETE: "to delete",
}
FEW, MANY = 3, 10
"""If more than MANY objects share a reason, only the first FEW are listed."""


def as_text(plan: Plan, scope: Scope, style: Style) -> str:
    lines = [*_changes(plan, style), *_problems(plan, style), *_skipped(plan, style)]
    lines.append(_summary(plan, scope, style))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def split_fix(text: str) -> tuple[str, str]:
    """A message, and the command that it ends with: `… Fix: kubectl …`; "" if it has none."""
    said, _, fix = text.partition(" Fix: ")
    command = fix.partition(" (")[0]
    return (said, command) if command.startswith(("kubectl ", "pileus ")) else (text, "")


def command_lines(command: str, style: Style, indent: int) -> Iterator[str]:
    """A command in lines that fit and can be pasted into a shell; nothing for no command."""
    if command:
        *lines, last = style.lines(f"run: {command}", indent + len(" \\"))
        yield from (f"{line} \\" for line in lines)
        yield last


def change_lines(change: Planned, style: Style, margin: int = 2) -> Iterator[str]:
    """Yields one change, indented by `margin`: sign, place and summary, then its details."""
    ink, head = INKS[change.effect], margin + len("± cluster  ")
    first, *rest = style.lines(change.summary, head)
    sign = style.inked(change.effect, ink)
    yield f"{' ' * margin}{sign} {change.place:<8} {style.inked(first, ink)}"
    yield from (f"{' ' * head}{style.inked(line, ink)}" for line in rest)
    for detail in change.details:
        yield from (f"{' ' * head}{line}" for line in style.lines(detail, head))
    if change.waits_for:
        for line in style.lines(f"waits for {change.waits_for}", head):
            yield f"{' ' * head}{style.inked(line, Ink.DIM)}"


def _changes(plan: Plan, style: Style) -> Iterator[str]:
    for about, changes in _by_object(plan).items():
        yield style.inked(about, Ink.BOLD)
        for change in changes:
            yield from change_lines(change, style)
        yield ""
    if plan.count(Effect.REPLACE):
        yield style.inked("± is replaced: existing connections break.", INKS[Effect.REPLACE])
        yield ""


def _by_object(plan: Plan) -> Mapping[str, Sequence[Planned]]:
    found: dict[str, list[Planned]] = {}
    for _, change in plan.changes:
        found.setdefault(title(change.about), []).append(change)
    return dict(sorted(found.items()))


def _problems(plan: Plan, style: Style) -> Iterator[str]:
    texts = [
        *_troubles(plan),
        *(f"{name}: no plan: {why}" for name, why in plan.failures.items()),
    ]
    if not texts:
        return
    yield style.inked("Blocked", Ink.BOLD)
    for text in texts:
        said, fix = split_fix(text)
        first, *rest = style.lines(said, 4)
        yield f"  {style.inked('!', Ink.RED)} {first}"
        yield from (f"    {line}" for line in rest)
        yield from (f"    {line}" for line in command_lines(fix, style, 4))
    yield ""


def _troubles(plan: Plan) -> Iterator[str]:
    """Yields the blocked objects by reason; a reason that many share is shortened."""
    by_reason: dict[str, dict[str, None]] = {}
    for _, trouble in plan.troubles:
        text = f"{title(trouble.about)}: {trouble.reason}: {trouble.message}"
        by_reason.setdefault(trouble.reason, {})[text] = None
    for reason, texts in by_reason.items():
        shown = list(texts) if len(texts) <= MANY else list(texts)[:FEW]
        yield from shown
        if len(texts) > MANY:
            yield f"{len(texts) - FEW} more: {reason} (-o json lists all)"


def _skipped(plan: Plan, style: Style) -> Iterator[str]:
    for name, why in plan.skipped.items():
        yield from (style.inked(each, Ink.DIM) for each in style.lines(f"Skipped {name}: {why}", 0))
    if plan.skipped:
        yield ""


def _summary(plan: Plan, scope: Scope, style: Style) -> str:
    if not plan.changes:
        return style.inked(_nothing(plan, scope), Ink.BOLD)
    counted = ", ".join(f"{plan.count(effect)} {word}" for effect, word in WORDS.items())
    waiting = f"; {plan.waiting} waiting" if plan.waiting else ""
    return style.inked(f"Plan: {counted}{waiting}", Ink.BOLD)


def _nothing(plan: Plan, scope: Scope) -> str:
    if not plan.is_whole:
        return "No known changes, but the plan is incomplete: see Blocked above."
    if scope.kind:
        about = ObjectReference(kind=scope.kind, namespace=scope.namespace, name=scope.name)
        return f"No changes. {title(about)} matches the desired state."
    return "No changes. Cluster and cloud match the desired state."
