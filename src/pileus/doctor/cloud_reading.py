"""Asks the selected clouds for the doctor. Nothing is changed."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pileus.app.errors import CommandFailed, Fatal
from pileus.app.startup import World, choose_provider
from pileus.cloud.choice import CloudChoice, CloudSettings
from pileus.cloud.connection import connected
from pileus.cloud.errors import CloudError
from pileus.cloud.finding import Finding, Severity
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import read_only
from pileus.cloud.model import Absent
from pileus.doctor.observation import CloudState
from pileus.doctor.records import Node
from pileus.objects.nodes import is_ready, provider_id_of, reference
from pileus.settings.config import Config
from pileus.telemetry.log import Log

log = Log(__name__)

PATIENCE = 30.0
"""Seconds for one part of the observation."""
SAMPLE = 5
"""Nodes that each cloud is asked about."""


def selected_clouds(config: Config) -> tuple[CloudChoice, ...]:
    return tuple(choice for choice in config[CloudSettings].clouds if choice.provider)


async def observe_clouds(
    config: Config, world: World, nodes: tuple[Node, ...]
) -> tuple[CloudState, ...]:
    """Connects to each selected cloud, asks it about a few of the nodes, and for its own checks."""
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(_cloud(config, world, choice, nodes))
            for choice in selected_clouds(config)
        ]
    return tuple(task.result() for task in asked)


async def _cloud(
    config: Config, world: World, choice: CloudChoice, nodes: tuple[Node, ...]
) -> CloudState:
    state = CloudState(name=choice.name)
    try:
        connect, given = choose_provider(config, world, choice)
        async with asyncio.timeout(PATIENCE), connected(choice.name, connect, given) as cloud:
            return await _asked(replace(state, scheme=cloud.name), read_only(cloud), nodes)
    except (CloudError, CommandFailed, Fatal) as error:
        return replace(state, problem=str(error) or type(error).__name__)
    except TimeoutError:
        return replace(state, problem=f"no answer within {PATIENCE:.0f} s")


async def _asked(state: CloudState, cloud: Cloud, nodes: Iterable[Node]) -> CloudState:
    """Asks one cloud. Failing lookups do not hide what its own checks find, nor the reverse."""
    sample = [
        each
        for each in nodes
        if is_ready(each) and provider_id_of(each).startswith(f"{cloud.name}://")
    ][:SAMPLE]
    state = replace(
        state,
        has_cluster_id=cloud.has_cluster_id,
        has_checks=cloud.checks is not None,
        findings=await _own_findings(cloud),
        asked=len(sample),
    )
    try:
        return replace(state, absent=await _absent(cloud, sample))
    except Exception as error:
        if not isinstance(error, CloudError):
            log.exception("Lookup of nodes failed", error=error, cloud=cloud.name)
        return replace(state, problem=f"nodes cannot be looked up: {described(error)}")


async def _absent(cloud: Cloud, sample: Sequence[Node]) -> frozenset[str]:
    """Returns which of these nodes the cloud does not have."""
    if not sample or cloud.instances is None:
        return frozenset()
    answers = await cloud.instances.find([reference(each) for each in sample], fresh=True)
    return frozenset(str(name) for name, it in answers.items() if isinstance(it, Absent))


async def _own_findings(cloud: Cloud) -> tuple[Finding, ...]:
    if cloud.checks is None:
        return ()
    try:
        return tuple(await cloud.checks())
    except Exception as error:
        if not isinstance(error, CloudError):
            log.exception("Checks of the provider failed", error=error, cloud=cloud.name)
        return (
            Finding(
                id="cloud-checks-failed",
                severity=Severity.ERROR,
                subject=f"cloud {cloud.name}",
                what=f"its own checks failed: {described(error)}",
                reason="roles, quotas and services were not checked",
                fix="fix what the message names, then: pileus doctor",
            ),
        )


def described(error: Exception) -> str:
    """Returns the message; for an unexpected error with its type."""
    if isinstance(error, CloudError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}"
