"""The SSH key controller, given what it needs of this process."""

from pileus.app.controllers import SSH_KEYS
from pileus.app.duties import client_of, duty_of, events_of, identify
from pileus.app.work import Duty, Post, Skipped
from pileus.controllers.ssh_keys.controller import SshKeysController, Surroundings
from pileus.controllers.ssh_keys.location import located
from pileus.controllers.ssh_keys.source import source_of
from pileus.objects.ownership import whose_by

STUCK = 600.0
"""Seconds after which a pass that does not end makes the process ill."""


def ssh_keys_duty(post: Post) -> Duty | Skipped:
    """What the SSH key controller does while this process leads."""
    if not post.config.ssh_keys_from:
        return Skipped("--ssh-keys-from is not given", is_news=False)
    if post.cloud.ssh_keys is None:
        return Skipped("the cloud provider does not support SSH keys")
    client = client_of(post, SSH_KEYS)
    events = events_of(post, SSH_KEYS, client)
    location = located(post.config.ssh_keys_from)
    around = Surroundings(
        source=source_of(location, client, post.random),
        informer=post.informers.nodes(),
        keys=post.cloud.ssh_keys,
        whose=whose_by(post.cloud),
        identify=identify(post, SSH_KEYS),
        events=events,
        metrics=post.metrics,
        random=post.random,
    )
    return duty_of(SshKeysController(around, location), events, stuck_after=STUCK)
