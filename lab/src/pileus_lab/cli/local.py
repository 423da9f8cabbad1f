"""`pileus local`: run a cloud on this machine, and show and change what is in it."""

import asyncio
import signal
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import SystemRandom

import msgspec

from pileus.app import help as help_text
from pileus.cli.arguments import Argument, Given, Help, Usage, UsageError, answered, parse
from pileus.cli.terminal import Terminal, show_table
from pileus.clock import SystemClock
from pileus.cloud.connection import read_config
from pileus.cloud.errors import CloudError
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.config.choose import load_user_access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.http import HttpTransport
from pileus.suggest import closest
from pileus.telemetry.metrics import new_metrics
from pileus_lab.cli.local_commands import COMMANDS, Shown
from pileus_lab.cli.local_commands.command import Command
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.http_api import reaching, serving
from pileus_lab.local.journal import Journal, open_journal
from pileus_lab.local.loopback import KEPT, NETWORKS, claimed_pools, filled, kept_pools
from pileus_lab.local.model.records import Pools
from pileus_lab.local.model.state import State
from pileus_lab.local.netns.namespaces import check_state, claim_rights, pools_inside
from pileus_lab.local.netns.sockets import namespaces
from pileus_lab.local.options import (
    ENDPOINT,
    HEALTH_INTERVAL,
    NETWORK_KIND,
    STATE,
    Network,
    behaviour_of,
    disks_of,
    endpoint_of,
    given_pools,
    read_file,
    settings_of,
)
from pileus_lab.local.traffic.data_plane import carrying
from pileus_lab.local.traffic.health_checks import Checking
from pileus_lab.node_agents.agents import Cluster, Pace, run_agents
from pileus_lab.node_agents.node import Registration

NODES = Usage(
    "Register the running instances as nodes of a cluster, until Ctrl-C.",
    (
        Argument(
            name="--kubeconfig",
            text="Kubeconfig file; default: $KUBECONFIG, else ~/.kube/config, else the pod's own.",
        ),
        Argument(name="--context", text="Context of the kubeconfig; default: its current one."),
        Argument(name="--master", text="URL of the API server; overrides the kubeconfig."),
        Argument(name="--provider-id", text="Register nodes with their provider ID.", kind=bool),
        Argument(
            name="--no-silence",
            text="Do not mark silent nodes as not ready; kube-controller-manager does.",
            kind=bool,
        ),
        Argument(name="--endpoint", text="Socket of the cloud; default: this user's own."),
    ),
)


def nodes(given: Given, terminal: Terminal) -> int:
    """Raises `InvalidConfiguration` if no cluster is configured."""
    access = load_user_access(
        given.text("kubeconfig"), given.text("master"), given.text("context"), terminal.environment
    )
    asyncio.run(_until_stopped(given, access, terminal))
    return 0


async def _until_stopped(given: Given, access: Access, terminal: Terminal) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    endpoint = endpoint_of(given.text("endpoint"), terminal.environment)
    async with (
        HttpTransport(access) as transport,
        reaching(endpoint, operator=True) as api,
        asyncio.TaskGroup() as tasks,
    ):
        metrics = new_metrics()
        client = Client(transport, user_agent="pileus-local-nodes", metrics=metrics)
        agents = tasks.create_task(run_agents(api, _cluster(given, client)))
        terminal.out.write(f"Instances of {endpoint} are nodes of {access.server} now.\n")
        terminal.out.flush()
        await stopped.wait()
        agents.cancel()


def _cluster(given: Given, client: Client) -> Cluster:
    return Cluster(
        client,
        SystemClock(),
        Registration(reports_provider_id=given.is_set("provider-id")),
        Pace(silence=None) if given.is_set("no-silence") else Pace(),
    )


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
    """Raises `Misconfigured` with the wrong file, socket or database."""
    path = given.text("config")
    values = read_file(read_config(path).text, path)
    endpoint = endpoint_of(given.text("endpoint") or values[ENDPOINT], terminal.environment)
    network = Network(given.text("network") or values[NETWORK_KIND])
    with ExitStack() as stack:
        state = given.text("state") or values[STATE]
        journal = stack.enter_context(open_journal(Path(state))) if state else None
        pools = stack.enter_context(_pools(given_pools(values), network, journal))
        context = CloudContext(
            clock=SystemClock(),
            chance=SystemRandom(),
            journal=journal,
            settings=settings_of(values, pools),
            behaviour=behaviour_of(values),
            disks=disks_of(values),
        )
        cloud = LocalCloud(context)
        if network is Network.NETNS:
            check_state(cloud.state)
            claim_rights()
        checking = Checking(interval=values[HEALTH_INTERVAL])
        asyncio.run(_serve(cloud, endpoint, Carriage(network, checking), terminal))
    return 0


@contextmanager
def _pools(given: Pools, network: Network, journal: Journal | None) -> Generator[Pools]:
    """Yields the pools of the cloud, claimed while the block lasts, and keeps them in the state.

    Raises `Misconfigured` if another cloud on this machine uses them.
    """
    state = journal.load() if journal else State()
    kept = kept_pools(state)
    if network is Network.NONE:
        yield filled(given, kept or NETWORKS[0])
        return
    inside = pools_inside(given) if network is Network.NETNS else given
    with claimed_pools(inside, kept) as pools:
        if journal and KEPT not in state.pools:
            journal.keep(state, replace(state, pools={KEPT: kept or pools}))
        yield pools


@dataclass(frozen=True, slots=True)
class Carriage:
    """How traffic is carried."""

    network: Network
    checking: Checking

    @asynccontextmanager
    async def of(self, cloud: LocalCloud) -> AsyncGenerator[None]:
        """Carries the cloud's traffic while the block lasts."""
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
