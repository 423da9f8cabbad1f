"""`pileus local serve`: the cloud itself, as a process of its own, until Ctrl-C or SIGTERM."""

import asyncio
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from pileus.cli.arguments import Argument, Given, Usage
from pileus.cli.terminal import Terminal
from pileus.clock import SystemClock
from pileus.cloud.connection import read_config
from pileus_lab.local.host import LocalCloud, Surroundings
from pileus_lab.local.journal import open_journal
from pileus_lab.local.netns.prepare import check_state, claim_rights, settings_inside
from pileus_lab.local.netns.wires import namespaces
from pileus_lab.local.options import (
    ENDPOINT,
    HEALTH_INTERVAL,
    NETWORK_KIND,
    STATE,
    Network,
    behaviour_of,
    endpoint_of,
    read_file,
    settings_of,
)
from pileus_lab.local.server import serving
from pileus_lab.local.traffic.checks import Checking
from pileus_lab.local.traffic.plane import carrying

SERVE = Usage(
    "Run a cloud on this machine until Ctrl-C.",
    (
        Argument(
            name="--config",
            text="Configuration file, YAML or JSON; see docs/reference/local-cloud.md.",
        ),
        Argument(name="--state", text="SQLite file that keeps the state; default: in memory."),
        Argument(
            name="--network",
            text="How traffic is carried.",
            choices=tuple(Network),
        ),
        Argument(name="--endpoint", text="Socket to serve at; default: this user's own."),
    ),
)


def serve(given: Given, terminal: Terminal) -> int:
    """Errors: `Misconfigured` naming the file, the socket or the database at fault."""
    path = given.text("config")
    values = read_file(read_config(path).text, path)
    endpoint = endpoint_of(given.text("endpoint") or values[ENDPOINT], terminal.environment)
    network = Network(given.text("network") or values[NETWORK_KIND])
    settings = settings_of(values)
    with ExitStack() as stack:
        state = given.text("state") or values[STATE]
        journal = stack.enter_context(open_journal(Path(state))) if state else None
        surroundings = Surroundings(
            clock=SystemClock(),
            chance=SystemRandom(),
            journal=journal,
            settings=settings_inside(settings) if network is Network.NETNS else settings,
            behaviour=behaviour_of(values),
        )
        cloud = LocalCloud(surroundings)
        if network is Network.NETNS:
            check_state(cloud.state)
            claim_rights()
        checking = Checking(interval=values[HEALTH_INTERVAL])
        asyncio.run(_serve(cloud, endpoint, Carriage(network, checking), terminal))
    return 0


@dataclass(frozen=True, slots=True)
class Carriage:
    """How traffic is carried."""

    network: Network
    checking: Checking

    @asynccontextmanager
    async def of(self, cloud: LocalCloud) -> AsyncGenerator[None]:
        """Carry the cloud's traffic for as long as the block lasts."""
        async with AsyncExitStack() as stack:
            if self.network is Network.NETNS:
                wires = stack.enter_context(namespaces())
                await stack.enter_async_context(carrying(cloud, self.checking, wires))
            elif self.network is Network.LOOPBACK:
                await stack.enter_async_context(carrying(cloud, self.checking))
            yield


async def _serve(cloud: LocalCloud, endpoint: Path, carriage: Carriage, terminal: Terminal) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with carriage.of(cloud), serving(cloud, endpoint):
        terminal.out.write(f"The local cloud is served at {endpoint} (Ctrl-C stops it).\n")
        terminal.out.flush()
        await stopped.wait()
