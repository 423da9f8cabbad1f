"""`pileus providers`: lists the installed cloud providers, and whether each can be used."""

import asyncio
from collections.abc import Sequence

from pileus.cli.arguments import Argument, Given, Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import Terminal, show_table
from pileus.cloud.connection import CAPABILITIES, connected, read_config
from pileus.cloud.errors import CloudError, Misconfigured
from pileus.cloud.interface import Cloud, Connect, ProviderConfig
from pileus.cloud.registry import PROVIDERS, Registry

USAGE = Usage(
    "List the installed cloud providers. Exits with 1 if one of them cannot be used.",
    (
        Argument(
            name="--connect",
            text="Connect to this provider instead, and check the methods and abilities of its "
            "cloud. Nothing is changed.",
        ),
        Argument(name="--cloud-config", text="Configuration file of the provider, for --connect."),
    ),
)


def main(
    program: str, arguments: Sequence[str], terminal: Terminal, registry: Registry = PROVIDERS
) -> int:
    try:
        given = _given(program, arguments)
    except (Help, UsageError) as error:
        return answered(error, program, terminal)
    if given.text("connect"):
        return _check(given, terminal, registry)
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


def _given(program: str, arguments: Sequence[str]) -> Given:
    given = parse(program, USAGE, arguments)
    if given.text("cloud-config") and not given.text("connect"):
        raise UsageError("--cloud-config needs --connect=NAME")
    return given


def _check(given: Given, terminal: Terminal, registry: Registry) -> int:
    """Connects to one provider, and reports what its cloud offers or lacks."""
    name = given.text("connect")
    try:
        connect = registry.get(name)
        if connect is None:
            return terminal.refuse(f'"{name}" is the name of no provider')
        config = read_config(given.text("cloud-config"), environ=terminal.environment)
        cloud = asyncio.run(_cloud_of(name, connect, config))
    except CloudError as error:
        notes = "".join(f"{note}: " for note in getattr(error, "__notes__", ()))
        return terminal.refuse(f"{notes}{error}")
    offered = [each for each in CAPABILITIES if getattr(cloud, each) is not None]
    terminal.out.write(f"{name}: ok ({', '.join(offered) or 'no capabilities'})\n")
    return 0


async def _cloud_of(name: str, connect: Connect, config: ProviderConfig) -> Cloud:
    async with connected(name, connect, config) as cloud:
        return cloud
