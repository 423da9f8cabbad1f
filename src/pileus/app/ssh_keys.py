"""The SSH key controller, given what it needs of this process."""

from pileus.app.beside import beside
from pileus.app.cluster_id import find_cluster_id
from pileus.app.controllers import SSH_KEYS
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.ssh_keys.controller import SshKeysController, Surroundings
from pileus.controllers.ssh_keys.location import located
from pileus.controllers.ssh_keys.source import source_of
from pileus.runtime.events import EventRecorder

STUCK = 600.0
"""Seconds after which a pass that does not end makes the process ill."""


def ssh_keys_duty(post: Post) -> Duty | Skipped:
    """What the SSH key controller does while this process leads."""
    if not post.config.ssh_keys_from:
        return Skipped("--ssh-keys-from is not given", is_news=False)
    if post.cloud.ssh_keys is None:
        return Skipped("the cloud provider does not support SSH keys")
    client = post.clients.controller(SSH_KEYS.identity, fence=post.fence)
    main = post.clients.main(SSH_KEYS.identity)
    events = EventRecorder(
        SSH_KEYS.event_source,
        client,
        clock=post.clock,
        random=post.random,
        metrics=post.metrics,
    )
    location = located(post.config.ssh_keys_from)
    around = Surroundings(
        source=source_of(location, client, post.random),
        informer=post.informers.nodes(),
        keys=post.cloud.ssh_keys,
        owns=post.cloud.owns,
        identify=lambda: find_cluster_id(main, post.config.service.cluster_id),
        events=events,
        metrics=post.metrics,
        random=post.random,
    )
    controller = SshKeysController(around, location)

    async def run() -> None:
        async with beside(events.run()):
            await controller.run()

    return Duty(run, health=lambda: controller.stuck(STUCK), preview=controller.preview)
