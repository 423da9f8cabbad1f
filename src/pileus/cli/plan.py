"""`pileus plan`: prints what the manager would change in cluster and cloud. Changes nothing.

Exit codes: 0 no changes · 2 changes · 1 the plan is incomplete, or an error. The text form lists
changes by object, then what is blocked, then a summary line. docs/reference/plan.md describes the
fields of the JSON form.
"""

from collections.abc import Iterator, Mapping, Sequence

from pileus.app.plan import Plan, Planner, read_only_context
from pileus.cli.cluster_command import (
    CONTEXT,
    FAILED,
    NAMESPACE,
    OUTPUT,
    Command,
    Request,
    Runner,
    Takes,
    check_exists,
    json_text,
    run_cluster_command,
)
from pileus.cli.printed_commands import NOWHERE, Target, target_of
from pileus.cli.terminal import Ink, Style, Terminal
from pileus.cloud.balancer import Effect
from pileus.fix import FIX, fix_in
from pileus.kube.model.core_v1 import ObjectReference
from pileus.objects.preview import Planned, Scope, Trouble, title
from pileus.settings.flags import Group

CHANGES = 2
VERSION = 1
"""Version of the JSON form: raised when a field changes its meaning or is removed."""
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
RUN = "run: "
FEW, MANY = 3, 10
"""If more than MANY objects share a reason, only the first FEW are listed."""
COMMAND = Command(
    "Print what the manager would change in the cluster and the cloud. Changes nothing.\n\n"
    "Exit codes: 0 no changes, 2 changes, 1 the plan is incomplete or failed.",
    Group("Plan", (CONTEXT, NAMESPACE, OUTPUT), ours=True),
    Takes.OPTIONAL,
)


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(request: Request, run: Runner) -> int:
        plan = run(_plan(request))
        text = (
            request.data(as_json(plan))
            if request.as_data
            else as_text(plan, request.scope, Style.of(terminal), target_of(request.values))
        )
        terminal.show(text)
        return exit_code(plan)

    return run_cluster_command(program, COMMAND, arguments, terminal, work)


async def _plan(request: Request) -> Plan:
    async with read_only_context(request.config, request.world) as context:
        await check_exists(context, request.scope)
        return await Planner(context).plan(request.scope)


def exit_code(plan: Plan) -> int:
    if not plan.is_whole:
        return FAILED
    return CHANGES if plan.changes else 0


def as_text(plan: Plan, scope: Scope, style: Style, target: Target = NOWHERE) -> str:
    lines = [*_changes(plan, style), *_problems(plan, style, target), *_skipped(plan, style)]
    lines.append(_summary(plan, scope, style))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def split_fix(text: str) -> tuple[str, str]:
    """Returns a message and the command that it ends with (`… Fix: kubectl …`), or ""."""
    fix = fix_in(text)
    return (text.partition(FIX)[0], fix) if fix else (text, "")


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


def _problems(plan: Plan, style: Style, target: Target) -> Iterator[str]:
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
        if fix:
            command = style.command_lines(RUN, target.aimed(fix), 4)
            yield from (f"    {line}" for line in command)
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


def as_json(plan: Plan) -> str:
    document = {
        "version": VERSION,
        "summary": {
            **{effect.name.lower(): plan.count(effect) for effect in Effect},
            "waiting": plan.waiting,
            "whole": plan.is_whole,
        },
        "changes": [change_document(name, change) for name, change in plan.changes],
        "troubles": [trouble_document(name, trouble) for name, trouble in plan.troubles],
        "failures": [{"controller": name, "message": it} for name, it in plan.failures.items()],
        "skipped": [{"controller": name, "why": why} for name, why in plan.skipped.items()],
    }
    return json_text(document)


def change_document(controller: str, change: Planned) -> dict[str, object]:
    return {
        "controller": controller,
        "object": reference(change.about),
        "place": change.place.value,
        "action": change.effect.name.lower(),
        "summary": change.summary,
        "details": list(change.details),
        "waitsFor": change.waits_for,
    }


def trouble_document(controller: str, trouble: Trouble) -> dict[str, object]:
    return {
        "controller": controller,
        "object": reference(trouble.about),
        "reason": trouble.reason,
        "message": trouble.message,
    }


def reference(about: ObjectReference) -> dict[str, str]:
    return {
        "kind": about.kind,
        "namespace": about.namespace,
        "name": about.name,
        "uid": about.uid,
    }
