"""The SSH key controller, as the manager knows it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)

if TYPE_CHECKING:
    from pileus.controllers.ssh_keys.controller import SshKeysController

SSH_KEYS = ControllerNames(
    canonical="ssh-key-controller",
    alias="ssh-key",
    event_source="ssh-key-controller",
    metric="ssh-key",
    identity="ssh-key-controller",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKeyFlags:
    """The flags of this controller."""

    source: str
    """`--ssh-keys-from`; empty: keys are not managed."""


def build(context: ControllerContext, flags: SshKeyFlags) -> "SshKeysController | Skipped":
    from pileus.controllers.ssh_keys.controller import (  # noqa: PLC0415 -- not needed by help
        SshKeysController,
        Surroundings,
    )
    from pileus.controllers.ssh_keys.location import located  # noqa: PLC0415 -- the same
    from pileus.controllers.ssh_keys.source import source_of  # noqa: PLC0415 -- the same

    keys = context.scope.cloud.ssh_keys
    if not flags.source:
        return Skipped("--ssh-keys-from is not given", is_news=False)
    if keys is None:
        return Skipped("the cloud provider does not support SSH keys")
    location = located(flags.source)
    around = Surroundings(
        source=source_of(location, context.client, context.informers),
        informer=context.informers.of(NODES),
        keys=keys,
        whose=context.scope.whose,
        identify=context.cluster_id,
        events=context.events,
        metrics=context.metrics,
        random=context.random,
        scoped=context.scoped,
    )
    return SshKeysController(around, location)


DESCRIPTOR = ControllerDescriptor(names=SSH_KEYS, settings=SshKeyFlags, build=build, kinds=(NODES,))
