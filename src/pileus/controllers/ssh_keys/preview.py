"""Renders the steps of a pass over SSH keys as lines of a plan. Reads only."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError
from pileus.controllers.ssh_keys.events import FAILED, UNREADABLE
from pileus.controllers.ssh_keys.plan import (
    SECOND_CHECK,
    AddKeys,
    KeepKeys,
    Observation,
    ReportFailure,
    Step,
    WithdrawKeys,
    plan,
)
from pileus.controllers.ssh_keys.reconciler import Nodes, Tools
from pileus.controllers.ssh_keys.settings import Location
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import about_node
from pileus.objects.preview import Place, Planned, Scope, Trouble


@dataclass(frozen=True, slots=True)
class SshKeysPreview:
    """What this controller would do for the nodes as they are now."""

    tools: Tools
    location: Location

    async def of(self, scope: Scope) -> Sequence[Planned | Trouble]:
        """Returns a line per node and change, and what is wrong with the source."""
        nodes = self.tools.nodes()
        try:
            desired = await self.tools.source.desired()
            cluster = await self.tools.identify()
            seen = await self.tools.observer.observe(cluster, nodes, desired)
        except (KubeError, CloudError) as error:
            lines: list[Planned | Trouble] = [Trouble(self.location.about, FAILED, str(error))]
        else:
            lines = [*self._about_source(seen)]
            for step in () if seen.unlisted else plan(seen):
                lines += rendered(step, nodes)
        return [line for line in lines if scope.has(line.about)]

    def _about_source(self, seen: Observation) -> Iterator[Trouble]:
        for problem in seen.desired.problems:
            yield Trouble(self.location.about, UNREADABLE, problem)
        if seen.unlisted:
            why = f"{seen.unlisted}; every new leader adds all keys once"
            yield Trouble(self.location.about, FAILED, why)


def rendered(step: Step, nodes: Nodes) -> Iterator[Planned | Trouble]:
    """Yields the lines of one step."""
    match step:
        case AddKeys():
            yield from (_planned(step, nodes[name], Effect.CREATE) for name in step.nodes)
        case WithdrawKeys():
            yield from (_planned(step, nodes[name], Effect.DELETE) for name in step.nodes)
        case ReportFailure(name, error):
            yield Trouble(about_node(nodes[name]), FAILED, str(error))
        case KeepKeys():
            return
        case _:
            assert_never(step)


def _planned(step: AddKeys | WithdrawKeys, node: Node, effect: Effect) -> Planned:
    waits = isinstance(step, WithdrawKeys) and step.wait > 0
    return Planned(
        about=about_node(node),
        place=Place.CLOUD,
        effect=effect,
        summary=f"SSH keys: {len(step.keys)}",
        details=tuple(f"{key.user}: {key.fingerprint}" for key in step.keys),
        waits_for=f"a second check, {SECOND_CHECK:g} s later" if waits else "",
    )
