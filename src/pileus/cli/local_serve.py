"""`pileus local serve`: the cloud itself, as a process of its own, until Ctrl-C or SIGTERM."""

import asyncio
import signal
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from random import SystemRandom

from pileus.cli.arguments import Argument, Given, Usage
from pileus.cli.terminal import Terminal
from pileus.clock import SystemClock
from pileus.cloud.connection import read_config
from pileus.providers.local.host import LocalCloud, Surroundings
from pileus.providers.local.journal import open_journal
from pileus.providers.local.options import (
    ENDPOINT,
    HEALTH_INTERVAL,
    NETWORK_KIND,
    STATE,
    behaviour_of,
    endpoint_of,
    read_file,
    settings_of,
)
from pileus.providers.local.server import serving
from pileus.providers.local.traffic.checks import Checking
from pileus.providers.local.traffic.plane import carrying

SERVE = Usage(
    "Run a whole cloud on this machine until Ctrl-C.",
    (
        Argument(name="--config", text="YAML or JSON file; docs/reference/local-cloud.md"),
        Argument(name="--state", text="SQLite file that keeps the state; default: memory alone"),
        Argument(name="--network", text="whether traffic is real", choices=("loopback", "none")),
        Argument(name="--endpoint", text="socket to serve at; default: the one of this user"),
    ),
)


def serve(given: Given, terminal: Terminal) -> int:
    """Errors: `Misconfigured` naming the file, the socket or the database at fault."""
    path = given.text("config")
    values = read_file(read_config(path).text, path)
    endpoint = endpoint_of(given.text("endpoint") or values[ENDPOINT], terminal.environment)
    with ExitStack() as stack:
        state = given.text("state") or values[STATE]
        journal = stack.enter_context(open_journal(Path(state))) if state else None
        surroundings = Surroundings(
            clock=SystemClock(),
            chance=SystemRandom(),
            journal=journal,
            settings=settings_of(values),
            behaviour=behaviour_of(values),
        )
        network = given.text("network") or values[NETWORK_KIND]
        checking = Checking(interval=values[HEALTH_INTERVAL]) if network == "loopback" else None
        asyncio.run(_serve(LocalCloud(surroundings), endpoint, checking, terminal))
    return 0


async def _serve(
    cloud: LocalCloud, endpoint: Path, checking: Checking | None, terminal: Terminal
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with AsyncExitStack() as stack:
        if checking:
            await stack.enter_async_context(carrying(cloud, checking))
        await stack.enter_async_context(serving(cloud, endpoint))
        terminal.out.write(f"The local cloud is served at {endpoint} (Ctrl-C stops it).\n")
        terminal.out.flush()
        await stopped.wait()
