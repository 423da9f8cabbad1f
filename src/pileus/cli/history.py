"""`pileus history`: prints the decisions of the manager about one object, or about all objects.

Exit codes: 0 printed · 1 no such object, no leader, missing rights, or another error.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from pileus.app.errors import CommandFailed
from pileus.app.history import HistoryReader, Reach, history_reader
from pileus.cli.cluster_command import (
    CONTEXT,
    NAMESPACE,
    Command,
    Request,
    Runner,
    Takes,
    json_text,
    run_cluster_command,
    shown_name,
    yaml_text,
)
from pileus.cli.explain import age
from pileus.cli.object_names import RESOURCES
from pileus.cli.terminal import Ink, Style, Terminal, table_lines
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.settings import ClientSettings
from pileus.objects.preview import Scope
from pileus.settings.flags import Flag, Group, switch
from pileus.settings.kinds import INT, STRING
from pileus.settings.values import Values
from pileus.suggest import did_you_mean
from pileus.telemetry.journal import Call, Entry, History, Line, Question, Write, decoded
from pileus.telemetry.metrics import new_metrics

OUTPUTS = ("text", "wide", "json", "yaml")
OUTPUT = Flag(
    "output", STRING, "text", "Output format: text, wide, json or yaml.", short="o", only_flag=True
)
SERVER = Flag(
    "server",
    STRING,
    "",
    "URL of the leader's secure port, such as https://HOST:10258; empty: found by its Lease and "
    "reached through the API server.",
    only_flag=True,
)
SERVER_CA = Flag(
    "server-ca", STRING, "", "CA file for the certificate of --server.", only_flag=True
)
INSECURE = switch(
    "insecure-skip-tls-verify", "Accept any certificate of --server: it can read your token."
)
TOKEN_FILE = Flag(
    "token-file",
    STRING,
    "",
    "File with the bearer token for the manager; empty: the token of the kubeconfig.",
    only_flag=True,
)
LIMIT = Flag("limit", INT, 50, "Number of decisions, the newest ones.", only_flag=True)
REACH_FLAGS = (CONTEXT, SERVER, SERVER_CA, INSECURE, TOKEN_FILE)
COMMAND = Command(
    "Print the decisions of the manager about one object (a node, Service, claim, PersistentVolume "
    "or VolumeAttachment), or about all objects: what it observed, planned, called and wrote, and "
    "the result. Read from the leader with your own token; no cloud credentials are needed. Passes "
    "that found nothing to do are not kept.\n\n"
    "Exit codes: 0 printed, 1 an error.",
    Group("History", (*REACH_FLAGS, NAMESPACE, LIMIT, OUTPUT), ours=True),
    Takes.OPTIONAL,
    needs_cloud=False,
    cloud_flag=None,
    outputs=OUTPUTS,
)
SIGNS = {
    "create": ("+", Ink.GREEN),
    "update": ("~", Ink.YELLOW),
    "replace": ("±", Ink.MAGENTA),
    "delete": ("-", Ink.RED),
}
RESULTS = {"done": Ink.GREEN, "failed": Ink.RED, "stopped": Ink.YELLOW, "cancelled": Ink.YELLOW}
INDENT = len("  observed  ")
WIDEST = 100
"""Characters of a decision in the table."""
_MINUTE = 60


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(request: Request, run: Runner) -> int:
        history = run(_history(request))
        style = Style.of(terminal)
        terminal.show(shown(history, request.scope, request.values[OUTPUT], style))
        return 0

    return run_cluster_command(program, COMMAND, arguments, terminal, work)


def reach_of(values: Values) -> Reach:
    return Reach(
        server=values[SERVER],
        ca_file=values[SERVER_CA],
        insecure=values[INSECURE],
        token_file=values[TOKEN_FILE],
    )


async def _history(request: Request) -> History:
    scope, world = request.scope, request.world
    if request.values[LIMIT] < 1:
        raise CommandFailed(f"--limit={request.values[LIMIT]}: must be at least 1")
    access = world.access(request.config[ClientSettings], world.environ)
    reach, clock = reach_of(request.values), world.times.wall
    question = Question(
        kind=scope.kind,
        namespace=scope.namespace,
        name=scope.name,
        limit=request.values[LIMIT],
    )
    async with history_reader(access, reach, request.config, clock, new_metrics()) as reader:
        found = await reader.read(question)
        if scope.kind and not found.entries:
            await _check_exists(reader, scope)
        return found


async def _check_exists(reader: HistoryReader, scope: Scope) -> None:
    """Raises CommandFailed if the object does not exist, with the closest name in the journal."""
    try:
        resource = RESOURCES[scope.kind]
        await reader.client.get(resource, scope.name, namespace=scope.namespace)
    except NotFound as error:
        known = await reader.read(Question(kind=scope.kind))
        names = {shown_name(e.object.namespace, e.object.name) for e in decoded(known)}
        name = shown_name(scope.namespace, scope.name)
        raise CommandFailed(
            f'there is no {scope.kind} "{name}", and no decision about it is recorded'
            f"{did_you_mean(name, sorted(names))}"
        ) from error
    except KubeError:
        return  # whether it exists is not ours to know: no decision about it is recorded


def shown(history: History, scope: Scope, form: str, style: Style) -> str:
    if form in {"json", "yaml"}:
        document = msgspec.to_builtins({
            **msgspec.structs.asdict(history),
            "entries": decoded(history),
        })
        if form == "json":
            return json_text(document)
        return yaml_text(document)
    entries = decoded(history)
    if not entries:
        return _nothing(history, scope)
    if scope.kind:
        lines = _timeline(history, entries, style, is_wide=form == "wide")
    else:
        lines = _table(history, entries, style, is_wide=form == "wide")
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _nothing(history: History, scope: Scope) -> str:
    name = f"{scope.kind} {shown_name(scope.namespace, scope.name)}" if scope.kind else ""
    about = f" about {name}" if name else ""
    since = age(history.since, history.now)
    return (
        f"No decisions{about}: the manager found nothing to do since it started {since} ago "
        f"({history.identity}).\n"
    )


def _table(
    history: History, entries: Sequence[Entry], style: Style, *, is_wide: bool
) -> Iterator[str]:
    heads = ["AGE", "OBJECT", "CONTROLLER", "RESULT", "DECISION"]
    if is_wide:
        heads += ["SECONDS", "REQUEST IDS"]
    rows = [_row(history.now, entry, is_wide=is_wide) for entry in entries]
    yield from table_lines(heads, rows, style.width)


def _row(now: datetime, entry: Entry, *, is_wide: bool) -> Sequence[str]:
    often = f" (x{entry.count})" if entry.count > 1 else ""
    row = [age(entry.at, now), entry.object.title, entry.controller, entry.result]
    row.append(shortened(headline(entry)) + often)
    if is_wide:
        row += [f"{entry.seconds:g}", " ".join(request_ids(entry))]
    return row


def shortened(text: str) -> str:
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def headline(entry: Entry) -> str:
    """Returns the decision in one line: what went wrong, else the first planned change."""
    if entry.message:
        return entry.message
    if not entry.plan:
        return ", ".join(call.method for call in entry.calls if call.is_write) or "-"
    first, rest = entry.plan[0], len(entry.plan) - 1
    sign = SIGNS.get(first.action, ("!", Ink.RED))[0]
    more = f" and {rest} more" if rest else ""
    return f"{sign} {first.reason or first.place}: {first.summary}{more}"


def request_ids(entry: Entry) -> Sequence[str]:
    """Returns the request IDs of the clouds' answers."""
    found = (one.id for call in entry.calls for one in call.requests)
    return list(dict.fromkeys(filter(None, found)))


def _timeline(
    history: History, entries: Sequence[Entry], style: Style, *, is_wide: bool
) -> Iterator[str]:
    title = style.inked(entries[-1].object.title, Ink.BOLD)
    many = f"{len(entries)} decision{'s' if len(entries) > 1 else ''}"
    leader = f"leader {history.identity}"
    line = f"{many}, the newest last"
    if style.width and len(entries[-1].object.title) + len(line) + len(leader) + 5 > style.width:
        yield f"{title}: {line}"
        yield leader
    else:
        yield f"{title}: {line} ({leader})"
    for entry in entries:
        yield ""
        yield from _entry_lines(history.now, entry, style, is_wide=is_wide)


def _entry_lines(now: datetime, entry: Entry, style: Style, *, is_wide: bool) -> Iterator[str]:
    result = style.inked(entry.result, RESULTS.get(entry.result, Ink.DIM))
    often = f", {entry.count} times since {entry.first:%H:%M:%S}" if entry.count > 1 else ""
    when = f"{entry.at:%Y-%m-%d %H:%M:%S} ({age(entry.at, now)} ago)"
    took = f"{result} in {entry.seconds:g} s{often}"
    yield f"{style.inked(when, Ink.BOLD)}  {entry.controller}  {took}"
    yield from _part("observed", [entry.observed] if entry.observed else [], style)
    planned = [text for line in entry.plan for text in _plan(line, is_wide=is_wide)]
    yield from _part("plan", planned, style)
    called = [text for call in entry.calls for text in _call(call, is_wide=is_wide)]
    yield from _part("calls", called, style)
    yield from _part("writes", [_write(write) for write in entry.writes], style)
    yield from _part("result", [entry.message] if entry.message else [], style)
    if entry.next_in is not None:
        yield from _part("next", [f"pass in {_seconds(entry.next_in)}"], style)


def _part(name: str, texts: Sequence[str], style: Style) -> Iterator[str]:
    head = name
    for text in texts:
        for line in style.message_lines(text, INDENT):
            yield f"  {head:<{INDENT - 2}}{line}"
            head = ""


def _plan(line: Line, *, is_wide: bool) -> Iterator[str]:
    if line.reason:
        yield f"! {line.reason}: {line.summary}"
        return
    sign = SIGNS.get(line.action, ("?", Ink.DIM))[0]
    waits = f" (waits for {line.waits_for})" if line.waits_for else ""
    yield f"{sign} {line.place}: {line.summary}{waits}"
    if is_wide:
        yield from (f"  {detail}" for detail in line.details)


def _call(call: Call, *, is_wide: bool) -> Iterator[str]:
    items = f" ({call.items} items)" if call.items > 1 else ""
    failed = f": {call.message}" if call.message else ""
    ids = list(dict.fromkeys(filter(None, (one.id for one in call.requests))))
    shown_ids = f"  request {', '.join(ids)}" if ids and not is_wide else ""
    yield f"{call.method}{items} {call.result} in {call.seconds:g} s{failed}{shown_ids}"
    if is_wide:
        for one in call.requests:
            number = f"  request {one.id}" if one.id else ""
            yield f"  {one.request} {one.status} in {one.seconds:g} s{number}"


def _write(write: Write) -> str:
    number = f"  audit {write.id}" if write.id else ""
    failed = f": {write.message}" if write.message else ""
    return f"{write.request} {write.status or 'no answer'} in {write.seconds:g} s{failed}{number}"


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"
