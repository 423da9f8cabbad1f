"""Which keys a pass would add and withdraw, told instead of done. Reads only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError
from pileus.cloud.model import NodeName
from pileus.controllers.ssh_keys.authorized_keys import Wanted
from pileus.controllers.ssh_keys.events import FAILED, UNREADABLE
from pileus.controllers.ssh_keys.location import Location
from pileus.controllers.ssh_keys.observation import Look
from pileus.controllers.ssh_keys.plan import SECOND_LOOK, Step, additions, withdrawals
from pileus.controllers.ssh_keys.reconciler import Tools
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import about_node
from pileus.objects.preview import Place, Planned, Scope, Trouble


@dataclass(frozen=True, slots=True)
class SshKeysPreview:
    tools: Tools
    location: Location

    async def of(self, scope: Scope) -> Sequence[Planned | Trouble]:
        source = self.location.about
        nodes = self.tools.nodes()
        try:
            wanted = await self.tools.source.wanted()
            look = await self.tools.looks.of(await self.tools.identify(), nodes)
        except (KubeError, CloudError) as error:
            troubles = [Trouble(source, FAILED, str(error))]
        else:
            troubles = [Trouble(source, UNREADABLE, problem) for problem in wanted.problems]
            if look.blind:
                why = f"{look.blind}; the manager adds all of them once when it begins to lead"
                troubles.append(Trouble(source, FAILED, why))
            else:
                return [
                    line
                    for line in (*troubles, *_lines(wanted, look, nodes))
                    if scope.has(line.about)
                ]
        return [trouble for trouble in troubles if scope.has(trouble.about)]


def _lines(
    wanted: Wanted, look: Look, nodes: Mapping[NodeName, Node]
) -> Iterator[Planned | Trouble]:
    for step in (*additions(wanted, look.keys), *withdrawals(wanted, look.keys)):
        for name in step.nodes:
            yield _planned(step, nodes[name])
    for name, error in look.failures.items():
        yield Trouble(about_node(nodes[name]), FAILED, str(error))


def _planned(step: Step, node: Node) -> Planned:
    withdraws = step.effect is Effect.DELETE
    return Planned(
        about=about_node(node),
        place=Place.CLOUD,
        effect=step.effect,
        summary=f"SSH keys: {len(step.keys)}",
        details=tuple(f"{key.user}: {key.fingerprint}" for key in step.keys),
        waits_for=f"a second look, {SECOND_LOOK:g} s later" if withdraws else "",
    )
