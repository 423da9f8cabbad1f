"""`pileus providers`: which cloud providers are installed, and whether each can be used."""

from collections.abc import Sequence

from pileus.cli.terminal import Terminal
from pileus.cloud.errors import Misconfigured
from pileus.cloud.registry import PROVIDERS, Registry


def main(
    program: str, arguments: Sequence[str], terminal: Terminal, registry: Registry = PROVIDERS
) -> int:
    if arguments:
        return terminal.refuse(f'"{program}" takes no arguments, got "{arguments[0]}"')
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
