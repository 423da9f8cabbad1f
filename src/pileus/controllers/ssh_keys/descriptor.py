"""The SSH key controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.ssh_keys.settings import SshKeysSettings
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


def build(context: ControllerContext, settings: SshKeysSettings) -> "SshKeysController | Skipped":
    from pileus.controllers.ssh_keys.controller import (  # noqa: PLC0415 -- not needed by help
        SshKeysController,
        Surroundings,
    )
    from pileus.controllers.ssh_keys.source import source_of  # noqa: PLC0415 -- the same

    keys = context.scope.cloud.ssh_keys
    location = settings.source
    if location is None:
        return Skipped("--ssh-keys-from is not set", is_news=False)
    if keys is None:
        return Skipped("the cloud provider does not support SSH keys")
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


DESCRIPTOR = ControllerDescriptor(
    names=SSH_KEYS, settings=SshKeysSettings, build=build, kinds=(NODES,)
)
