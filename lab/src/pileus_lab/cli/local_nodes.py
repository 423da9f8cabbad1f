"""`pileus local nodes`: be the kubelets of the local cloud's instances, in some cluster."""

import asyncio
import signal

from pileus.cli.arguments import Argument, Given, Usage
from pileus.cli.terminal import Terminal
from pileus.clock import SystemClock
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.config.choose import load_user_access
from pileus.kube.http import HttpTransport
from pileus.telemetry.metrics import new_metrics
from pileus_lab.local.client import reaching
from pileus_lab.local.options import endpoint_of
from pileus_lab.node_agents.agent import Cluster, Pace
from pileus_lab.node_agents.agents import run_agents
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
    """Errors: `InvalidConfiguration` if there is no way to a cluster."""
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
