"""Renders the steps of a pass over SSH keys as lines of a plan. Reads only."""

from collections.abc import Iterator, Sequence

from pileus.cloud.errors import CloudError
from pileus.controllers.ssh_keys.events import FAILED, UNREADABLE
from pileus.controllers.ssh_keys.lines import rendered
from pileus.controllers.ssh_keys.plan import (
    Observation,
    plan,
)
from pileus.controllers.ssh_keys.reconciler import Tools
from pileus.controllers.ssh_keys.settings import Location
from pileus.dataclass import dataclass
from pileus.kube.errors import KubeError
from pileus.objects.preview import Planned, Scope, Trouble


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
