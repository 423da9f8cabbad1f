"""`pileus explain`: explains the state of one object and what to do next.

Exit codes: 0 explained · 1 the object does not exist, or an error.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from pileus.app.errors import CommandFailed
from pileus.app.explain.explain import explain
from pileus.app.explain.explanation import Explanation, Leader, Message, State
from pileus.app.plan import read_only_context
from pileus.cli.cluster_command import (
    CONTEXT,
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
from pileus.cli.plan import RUN, change_document, change_lines, reference, split_fix
from pileus.cli.printed_commands import NOWHERE, Target, target_of
from pileus.cli.terminal import Ink, Style, Terminal
from pileus.objects.preview import title
from pileus.settings.flags import Group

COMMAND = Command(
    "Explain the state of a node, Service, claim, PersistentVolume or VolumeAttachment, and what "
    "to do next. Changes nothing.\n\n"
    "Exit codes: 0 explained, 1 the object does not exist or an error.",
    Group("Explain", (CONTEXT, NAMESPACE, OUTPUT), ours=True),
    Takes.ONE,
)
VERSION = 3
"""Version of the JSON form: raised when a field changes its meaning or is removed."""
INKS = {
    State.UP_TO_DATE: Ink.GREEN,
    State.IN_PROGRESS: Ink.YELLOW,
    State.WAITING: Ink.YELLOW,
    State.BLOCKED: Ink.RED,
    State.NOT_MANAGED: Ink.DIM,
}
INDENT = len("  managed by   ")
_STEPS = ((120, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))
_DAY = 86400


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(request: Request, run: Runner) -> int:
        explanation = run(_explanation(request))
        now = request.world.times.wall.now()
        target = target_of(request.values)
        text = (
            request.data(as_json(explanation, target))
            if request.as_data
            else as_text(explanation, now, Style.of(terminal), target)
        )
        terminal.show(text)
        return 0

    return run_cluster_command(program, COMMAND, arguments, terminal, work)


async def _explanation(request: Request) -> Explanation:
    scope = request.scope
    async with read_only_context(request.config, request.world) as context:
        found = await check_exists(context, scope)
        if found is None:
            raise CommandFailed(f"there is no {scope.kind} {scope.name}")
        return await explain(context, found, scope)


def as_text(explanation: Explanation, now: datetime, style: Style, target: Target = NOWHERE) -> str:
    return "".join(f"{line.rstrip()}\n" for line in _lines(explanation, now, style, target))


def _lines(explanation: Explanation, now: datetime, style: Style, target: Target) -> Iterator[str]:
    state = style.inked(explanation.state, INKS[explanation.state])
    born = f" (created {age(explanation.created, now)} ago)" if explanation.created else ""
    yield f"{style.inked(title(explanation.about), Ink.BOLD)}: {state}{born}"
    yield ""
    yield from _part("desired", explanation.desired, style)
    yield from _part("actual", explanation.actual, style)
    if explanation.changes:
        yield "  changes"
        for change in explanation.changes:
            yield from change_lines(change, style, margin=4)
    yield from _part("waits for", explanation.waits, style)
    yield from _part("messages", _messages(explanation.messages, now), style)
    yield from _part("managed by", (*explanation.owner, _leader(explanation.leader, now)), style)
    yield from _part("next", map(target.aimed, explanation.next_steps), style)


def _part(name: str, texts: Iterable[str], style: Style) -> Iterator[str]:
    head = name
    for text in texts:
        for line in _wrapped(text, style):
            yield f"  {head:<{INDENT - 2}}{line}"
            head = ""


def _wrapped(text: str, style: Style) -> Iterator[str]:
    """Yields lines that fit; the lines of a command can be pasted into a shell."""
    if text.startswith(RUN):
        yield from style.command_lines(RUN, text.removeprefix(RUN), INDENT)
    else:
        yield from style.message_lines(text, INDENT)


def _messages(messages: Iterable[Message], now: datetime) -> Iterator[str]:
    """Yields each message once, with all its sources.

    The fix of a current message is left out: it is the next step.
    """
    sources: dict[tuple[str, str], list[str]] = {}
    for each in messages:
        text = split_fix(each.message)[0] if each.is_now else each.message
        same = next((key for key in sources if key[1] and key[1] in text), None)
        sources.setdefault(same or (each.reason, text), []).append(_source(each, now))
    for (reason, text), found in sources.items():
        yield f"{reason} ({'; '.join(dict.fromkeys(found))}): {text}"


def _source(message: Message, now: datetime) -> str:
    when = f", {age(message.at, now)} ago" if message.at else ""
    often = f", {message.count} times" if message.count > 1 else ""
    return f"{message.source}{often}{when}"


def _leader(leader: Leader | None, now: datetime) -> str:
    if leader is None:
        return "leader: unknown, leader election is disabled"
    if leader.problem:
        return f"leader: unknown: {leader.problem}"
    if not leader.holder:
        return f"leader: none, Lease {leader.lock} is not held"
    renewed = f"{age(leader.renewed, now)} ago" if leader.renewed else "never"
    if not leader.is_alive:
        return f"leader: none, Lease {leader.lock} of {leader.holder} expired (renewed {renewed})"
    return f"leader: {leader.holder} (Lease {leader.lock}, renewed {renewed})"


def age(at: datetime, now: datetime) -> str:
    """Returns how long ago `at` was, as kubectl prints ages: 42s, 5m, 3h, 2d."""
    seconds = max(int((now - at).total_seconds()), 0)
    for limit, unit, letter in _STEPS:
        if seconds < limit:
            return f"{seconds // unit}{letter}"
    return f"{seconds // _DAY}d"


def as_json(explanation: Explanation, target: Target = NOWHERE) -> str:
    leader = explanation.leader
    return json_text({
        "version": VERSION,
        "object": reference(explanation.about),
        "created": explanation.created.isoformat() if explanation.created else "",
        "state": explanation.state.value,
        "desired": list(explanation.desired),
        "actual": list(explanation.actual),
        "changes": [change_document("", change) for change in explanation.changes],
        "waitsFor": list(explanation.waits),
        "messages": [_message(message) for message in explanation.messages],
        "owner": list(explanation.owner),
        "leader": leader
        and {
            "lease": leader.lock,
            "holder": leader.holder,
            "renewed": leader.renewed.isoformat() if leader.renewed else "",
            "alive": leader.is_alive,
            "problem": leader.problem,
        },
        "next": [*map(target.aimed, explanation.next_steps)],
    })


def _message(message: Message) -> dict[str, object]:
    return {
        "source": message.source,
        "reason": message.reason,
        "message": message.message,
        "at": message.at.isoformat() if message.at else "",
        "count": message.count,
        "now": message.is_now,
    }
