"""`pileus providers`: lists the installed cloud providers, and whether each can be used."""

from collections.abc import Sequence

from pileus.cli.arguments import Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import Terminal, show_table
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
    rows = [(one.name, one.origin, one.problem or "ok") for one in listed]
    show_table(terminal, ("name", "installed by", "status"), rows)
    return 1 if any(one.problem for one in listed) else 0
