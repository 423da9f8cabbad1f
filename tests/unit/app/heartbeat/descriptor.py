"""A controller that would label every Node; it shows that registration is one line."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pileus.cloud.balancer import Effect
from pileus.kube.model.core_v1 import CONFIG_MAPS, NODES
from pileus.objects.descriptor import ControllerContext, ControllerDescriptor, ControllerNames
from pileus.objects.nodes import about_node
from pileus.objects.preview import Place, Planned, Scope, Trouble

HEARTBEAT = ControllerNames(
    canonical="heartbeat-controller",
    alias="heartbeat",
    event_source="heartbeat-controller",
    metric="heartbeat",
    identity="heartbeat-controller",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    label: str = "example.com/seen"


@dataclass
class HeartbeatController:
    context: ControllerContext
    settings: HeartbeatSettings

    def __post_init__(self) -> None:
        self._nodes = self.context.informers.of(NODES)
        self.context.informers.of(CONFIG_MAPS)

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]:
        await self._nodes.wait_synced()
        return [
            Planned(
                about=about_node(node),
                place=Place.CLUSTER,
                effect=Effect.UPDATE,
                summary=f"label {self.settings.label}",
            )
            for node in self._nodes.store.list()
            if scope.has(about_node(node))
        ]

    def stuck(self, limit: float) -> str | None:
        return None

    def failing(self) -> str | None:
        return "the heart does not beat"


DESCRIPTOR = ControllerDescriptor(
    names=HEARTBEAT,
    settings=HeartbeatSettings,
    build=HeartbeatController,
    kinds=(NODES, CONFIG_MAPS),
)
