"""`pileus providers`: which cloud providers are installed, and whether each can be used."""

from collections.abc import Sequence

from pileus.cli.arguments import Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import Terminal
from pileus.cloud.errors import Misconfigured
from pileus.cloud.registry import PROVIDERS, Registry

USAGE = Usage("List the installed cloud providers. Exits with 1 if one of them cannot be used.")


def main(
    program: str, arguments: Sequence[str], terminal: Terminal, registry: Registry = PROVIDERS
) -> int:
    try:
        parse(program, USAGE, arguments)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    try:
        listed = registry.listing()
    except Misconfigured as error:
        return terminal.refuse(str(error))
    if not listed:
        terminal.out.write("No cloud provider is installed.\n")
        return 0
    wide = max(len(one.name) for one in listed) + 2
    for one in listed:
        terminal.out.write(f"{one.name:<{wide}}{one.origin}\n")
        if one.problem:
            terminal.out.write(f"{'':<{wide}}cannot be used: {one.problem}\n")
    return 1 if any(one.problem for one in listed) else 0
