"""`pileus explain`: the state of a node or Service, and what to do next.

Exit codes: 0 explained · 1 there is no such object, or something failed.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from pileus.app.ending import CommandFailed
from pileus.app.planning import looking
from pileus.app.stories.story import Leader, Remark, Standing, Story
from pileus.app.stories.tell import tell
from pileus.cli.ages import age
from pileus.cli.existing import check_exists
from pileus.cli.looking import CONTEXT, NAMESPACE, OUTPUT, Asked, Manual, Runs, Takes, look
from pileus.cli.plan_json import change_document, reference, written
from pileus.cli.plan_text import change_lines, command_lines, split_fix
from pileus.cli.style import Ink, Style
from pileus.cli.terminal import Terminal
from pileus.objects.preview import title
from pileus.settings.flags import Group

MANUAL = Manual(
    "Explain the state of a node or Service and what to do next. Changes nothing.\n\n"
    "Exit codes: 0 explained, 1 there is no such object or something failed.",
    Group("Explain", (CONTEXT, NAMESPACE, OUTPUT), ours=True),
    Takes.ONE,
)
VERSION = 2
INKS = {
    Standing.AS_WANTED: Ink.GREEN,
    Standing.IN_WORK: Ink.YELLOW,
    Standing.WAITING: Ink.YELLOW,
    Standing.STUCK: Ink.RED,
    Standing.NOT_OURS: Ink.DIM,
}
INDENT = len("  managed by   ")
RUN = "run: "


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(asked: Asked, run: Runs) -> int:
        story = run(_story(asked))
        now = asked.world.times.wall.now()
        text = as_json(story) if asked.as_json else as_text(story, now, Style.of(terminal))
        terminal.out.write(text)
        return 0

    return look(program, MANUAL, arguments, terminal, work)


async def _story(asked: Asked) -> Story:
    scope = asked.scope
    async with looking(asked.config, asked.world) as context:
        found = await check_exists(context, scope)
        if found is None:
            raise CommandFailed(f"there is no {scope.kind} {scope.name}")
        return await tell(context, found, scope)


def as_text(story: Story, now: datetime, style: Style) -> str:
    return "".join(f"{line.rstrip()}\n" for line in _lines(story, now, style))


def _lines(story: Story, now: datetime, style: Style) -> Iterator[str]:
    standing = style.inked(story.standing, INKS[story.standing])
    born = f" (created {age(story.created, now)} ago)" if story.created else ""
    yield f"{style.inked(title(story.about), Ink.BOLD)}: {standing}{born}"
    yield ""
    yield from _part("desired", story.wanted, style)
    yield from _part("actual", story.observed, style)
    if story.changes:
        yield "  changes"
        for change in story.changes:
            yield from change_lines(change, style, margin=4)
    yield from _part("waits for", story.waits, style)
    yield from _part("messages", _messages(story.remarks, now), style)
    yield from _part("managed by", (*story.owner, _leader(story.leader, now)), style)
    yield from _part("next", story.next_steps, style)


def _part(name: str, texts: Iterable[str], style: Style) -> Iterator[str]:
    head = name
    for text in texts:
        for line in _wrapped(text, style):
            yield f"  {head:<{INDENT - 2}}{line}"
            head = ""


def _wrapped(text: str, style: Style) -> Iterator[str]:
    """Lines that fit; those of a command can still be pasted into a shell."""
    if text.startswith(RUN):
        yield from command_lines(text.removeprefix(RUN), style, INDENT)
    else:
        yield from style.lines(text, INDENT)


def _messages(remarks: Iterable[Remark], now: datetime) -> Iterator[str]:
    """Each message once, with all its sources; fixes are left to the next steps."""
    sources: dict[tuple[str, str], list[str]] = {}
    for remark in remarks:
        message, _ = split_fix(remark.message)
        same = next((key for key in sources if key[1] and key[1] in message), None)
        sources.setdefault(same or (remark.reason, message), []).append(_source(remark, now))
    for (reason, message), found in sources.items():
        yield f"{reason} ({'; '.join(dict.fromkeys(found))}): {message}"


def _source(remark: Remark, now: datetime) -> str:
    when = f", {age(remark.at, now)} ago" if remark.at else ""
    often = f", {remark.count} times" if remark.count > 1 else ""
    return f"{remark.source}{often}{when}"


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


def as_json(story: Story) -> str:
    leader = story.leader
    return written({
        "version": VERSION,
        "object": reference(story.about),
        "created": story.created.isoformat() if story.created else "",
        "standing": story.standing.value,
        "wanted": list(story.wanted),
        "observed": list(story.observed),
        "changes": [change_document("", change) for change in story.changes],
        "waits": list(story.waits),
        "remarks": [_remark(remark) for remark in story.remarks],
        "owner": list(story.owner),
        "leader": leader
        and {
            "lease": leader.lock,
            "holder": leader.holder,
            "renewed": leader.renewed.isoformat() if leader.renewed else "",
            "alive": leader.is_alive,
            "problem": leader.problem,
        },
        "next": list(story.next_steps),
    })


def _remark(remark: Remark) -> dict[str, object]:
    return {
        "source": remark.source,
        "reason": remark.reason,
        "message": remark.message,
        "at": remark.at.isoformat() if remark.at else "",
        "count": remark.count,
        "now": remark.is_now,
    }
