"""`pileus local`: a whole cloud on this machine, served, shown and changed from the shell."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from pileus.app import help as help_text
from pileus.cli.arguments import Help, UsageError, answered, parse
from pileus.cli.table import show_table
from pileus.cli.terminal import Terminal
from pileus.cloud.errors import CloudError
from pileus.kube.config.errors import InvalidConfiguration
from pileus.suggest import closest
from pileus_lab.cli.local_commands import COMMANDS, Shown
from pileus_lab.cli.local_commands.command import Command
from pileus_lab.cli.local_nodes import NODES, nodes
from pileus_lab.cli.local_serve import SERVE, serve
from pileus_lab.local.client import reaching
from pileus_lab.local.options import endpoint_of

HELP_WORDS = ("-h", "--help", "help")


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    noun, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    try:
        if noun == "serve":
            return serve(parse(f"{program} serve", SERVE, rest), terminal)
        if noun == "nodes":
            return nodes(parse(f"{program} nodes", NODES, rest), terminal)
        return _operate(program, noun, rest, terminal)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    except (CloudError, InvalidConfiguration) as error:
        return terminal.refuse(str(error))


def _operate(program: str, noun: str, rest: Sequence[str], terminal: Terminal) -> int:
    if noun in {"", *HELP_WORDS}:
        terminal.out.write(_usage(program, terminal))
        return 0
    if noun not in COMMANDS:
        raise _unknown(program, noun, (*COMMANDS, "serve", "nodes"))
    verbs = COMMANDS[noun]
    if rest and rest[0] in HELP_WORDS:
        terminal.out.write(_verbs(f"{program} {noun}", verbs, terminal))
        return 0
    verb, rest = (rest[0], rest[1:]) if rest and not rest[0].startswith("-") else ("list", rest)
    if verb not in verbs:
        raise _unknown(f"{program} {noun}", verb, tuple(verbs))
    command = verbs[verb]
    given = parse(f"{program} {noun} {verb}", command.usage, rest)
    endpoint = endpoint_of(given.text("endpoint"), terminal.environment)

    async def run() -> Shown:
        async with reaching(endpoint, operator=True) as api:
            return await command.run(given, api)

    try:
        shown = asyncio.run(run())
    except UsageError as error:
        usage = command.usage.line(f"{program} {noun} {verb}")
        raise UsageError(str(error), error.hint, error.usage or usage) from None
    _show(shown, given.text("output"), terminal)
    return 0


def _show(shown: Shown, output: str, terminal: Terminal) -> None:
    if output == "json":
        text = msgspec.json.format(msgspec.json.encode(shown.value), indent=2).decode()
        terminal.out.write(f"{text}\n")
    elif shown.rows:
        show_table(terminal, shown.columns, shown.rows)
    elif shown.text:
        terminal.out.write(f"{shown.text}\n")


def _unknown(command: str, word: str, known: Sequence[str]) -> UsageError:
    meant = closest(word, known)
    hint = f"did you mean {command} {meant}?" if meant else f"known: {', '.join(known)}"
    return UsageError(f'unknown command "{command} {word}"', hint, f"{command} [command] [flags]")


def _usage(program: str, terminal: Terminal) -> str:
    commands = [
        ("  serve", "Run the cloud until Ctrl-C."),
        ("  nodes", "Register its instances as nodes of a cluster."),
        *((f"  {noun}", f"{', '.join(verbs)}.") for noun, verbs in COMMANDS.items()),
    ]
    about = (
        "Run and operate a cloud on this machine: instances, load balancers that carry traffic, "
        "routes and volumes."
    )
    return _listed(program, about, commands, "With -o json, output is JSON.", terminal)


def _verbs(program: str, verbs: Mapping[str, Command], terminal: Terminal) -> str:
    commands = [(f"  {verb}", command.usage.text) for verb, command in verbs.items()]
    about = f"Operate the {program.rpartition(' ')[2]} of the cloud on this machine."
    return _listed(program, about, commands, "Without a command: list.", terminal)


def _listed(
    program: str, about: str, commands: Sequence[tuple[str, str]], note: str, terminal: Terminal
) -> str:
    width = help_text.width_of(terminal.width(terminal.out))
    more = f'{note} Run "{program} <command> --help" for more information.'
    return (
        f"{help_text.wrapped(about, width)}\nUsage:\n  {program} <command> [flags]\n"
        f"{help_text.listing('Commands', commands, width)}\n{help_text.wrapped(more, width)}"
    )
