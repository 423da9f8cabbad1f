"""The node-ipam controller, given what it needs of this process."""

from pileus.app.controllers import IPAM
from pileus.app.duties import client_of, duty_of, events_of
from pileus.app.pod_ranges import asked_of
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.ipam.controller import IpamController, Surroundings
from pileus.controllers.ipam.sizes import sizes

STUCK = 600.0
"""Seconds after which a pass that does not end makes the process ill."""


def ipam_duty(post: Post) -> Duty | Skipped:
    """What the node-ipam controller does while this process leads."""
    if not post.config.shared.allocate_node_cidrs:
        return Skipped("--allocate-node-cidrs is not given")
    client = client_of(post, IPAM)
    events = events_of(post, IPAM, client)
    around = Surroundings(
        client=client,
        informer=post.informers.nodes(),
        events=events,
        metrics=post.metrics,
        random=post.random,
    )
    return duty_of(IpamController(around, sizes(asked_of(post.config))), events, stuck_after=STUCK)
