"""`pileus local`: a whole cloud on this machine, served, shown and changed from the shell."""

import asyncio
from collections.abc import Sequence

import msgspec

from pileus.cli.arguments import Help, UsageError, parse
from pileus.cli.local_commands import COMMANDS, Shown
from pileus.cli.local_nodes import NODES, nodes
from pileus.cli.local_serve import SERVE, serve
from pileus.cli.table import show_table
from pileus.cli.terminal import Terminal
from pileus.cloud.errors import CloudError
from pileus.kube.config.errors import InvalidConfiguration
from pileus.providers.local.client import reaching
from pileus.providers.local.options import endpoint_of
from pileus.suggest import closest


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    noun, rest = (arguments[0], arguments[1:]) if arguments else ("", ())
    try:
        if noun == "serve":
            return serve(parse(f"{program} serve", SERVE, rest), terminal)
        if noun == "nodes":
            return nodes(parse(f"{program} nodes", NODES, rest), terminal)
        return _operate(program, noun, rest, terminal)
    except Help as help_text:
        terminal.out.write(str(help_text))
        return 0
    except UsageError as error:
        return terminal.refuse(str(error), error.hint)
    except (CloudError, InvalidConfiguration) as error:
        return terminal.refuse(str(error))


def _operate(program: str, noun: str, rest: Sequence[str], terminal: Terminal) -> int:
    if noun in {"", "-h", "--help", "help"}:
        raise Help(_usage(program))
    if noun not in COMMANDS:
        raise _unknown(f"{program} {noun}", noun, (*COMMANDS, "serve", "nodes"))
    verb, rest = (rest[0], rest[1:]) if rest and not rest[0].startswith("-") else ("list", rest)
    verbs = COMMANDS[noun]
    if verb not in verbs:
        raise _unknown(f"{program} {noun} {verb}", verb, tuple(verbs))
    command = verbs[verb]
    given = parse(f"{program} {noun} {verb}", command.usage, rest)
    endpoint = endpoint_of(given.text("endpoint"), terminal.environment)

    async def run() -> Shown:
        async with reaching(endpoint, operator=True) as api:
            return await command.run(given, api)

    _show(asyncio.run(run()), given.text("output"), terminal)
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
    hint = f"did you mean {command.rsplit(' ', 1)[0]} {meant}?" if meant else ""
    return UsageError(f'unknown command "{command}" (known: {", ".join(known)})', hint)


def _usage(program: str) -> str:
    nouns = "".join(f"  {noun:<12}{' | '.join(verbs)}\n" for noun, verbs in COMMANDS.items())
    return (
        "A whole cloud on this machine: instances, balancers that carry traffic, routes, volumes."
        f"\n\nUsage:\n  {program} serve [flags]           run the cloud until Ctrl-C\n"
        f"  {program} nodes [flags]           let its instances be nodes of a cluster\n"
        f"  {program} <what> <verb> [flags]   show or change it\n\nWhat, and its verbs:\n{nouns}\n"
        f"`{program} <what> <verb> --help` says more. With -o json, output is for programs.\n"
    )
