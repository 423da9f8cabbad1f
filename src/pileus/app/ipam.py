"""The node-ipam controller, given what it needs of this process."""

from pileus.app.beside import beside
from pileus.app.config import Config
from pileus.app.controllers import IPAM
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.ipam.controller import IpamController, Surroundings
from pileus.controllers.ipam.sizes import Asked, sizes
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


def asked_of(config: Config) -> Asked:
    """The flags about pod ranges."""
    return Asked(
        cluster_cidr=config.shared.cluster_cidr,
        service_range=config.ipam.service_cluster_ip_range,
        mask_size=config.ipam.node_cidr_mask_size,
        mask_size_ipv4=config.ipam.node_cidr_mask_size_ipv4,
        mask_size_ipv6=config.ipam.node_cidr_mask_size_ipv6,
        allocator=config.shared.cidr_allocator_type,
    )
