"""The node-ipam controller, given what it needs of this process."""

from pileus.app.beside import beside
from pileus.app.controllers import IPAM
from pileus.app.pod_ranges import asked_of
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.ipam.controller import IpamController, Surroundings
from pileus.controllers.ipam.sizes import sizes
from pileus.runtime.events import EventRecorder

STUCK = 600.0
"""Seconds after which a pass that does not end makes the process ill."""


def ipam_duty(post: Post) -> Duty | Skipped:
    """What the node-ipam controller does while this process leads."""
    if not post.config.shared.allocate_node_cidrs:
        return Skipped("--allocate-node-cidrs is not given")
    client = post.clients.controller(IPAM.identity, fence=post.fence)
    events = EventRecorder(
        IPAM.event_source,
        client,
        clock=post.clock,
        random=post.random,
        metrics=post.metrics,
    )
    around = Surroundings(
        client=client,
        informer=post.informers.nodes(),
        events=events,
        metrics=post.metrics,
        random=post.random,
    )
    controller = IpamController(around, sizes(asked_of(post.config)))

    async def run() -> None:
        async with beside(events.run()):
            await controller.run()

    return Duty(run, health=lambda: controller.stuck(STUCK), preview=controller.preview)
