"""The SSH key controller, as the manager knows it."""

from typing import TYPE_CHECKING

from pileus.controllers.ssh_keys.settings import KINDS, SshKeysSettings
from pileus.kube.model.core_v1 import NODES
from pileus.objects.descriptor import (
    ControllerContext,
    ControllerDescriptor,
    ControllerNames,
    Skipped,
)
from pileus.objects.rights import Right, events

if TYPE_CHECKING:
    from pileus.controllers.ssh_keys.controller import SshKeysController

SSH_KEYS = ControllerNames(
    canonical="ssh-key-controller",
    alias="ssh-key",
    event_source="ssh-key-controller",
    metric="ssh-key",
    identity="ssh-key-controller",
)


def rights(settings: SshKeysSettings) -> tuple[Right, ...]:
    """Returns the right to read the one ConfigMap or Secret with the keys."""
    source = settings.source
    if source is None:
        return ()
    published = events("Events about nodes and the source of the keys.")
    if source.kind == KINDS["file"]:
        return (published,)
    read = Right(
        purpose="The SSH keys of --ssh-keys-from.",
        resources=(f"{source.kind.lower()}s",),
        names=(source.name,),
        namespace=source.namespace,
        verbs=("get", "list", "watch"),
        planning=("get",),
    )
    return (read, published)


def build(context: ControllerContext, settings: SshKeysSettings) -> "SshKeysController | Skipped":
    keys = context.scope.cloud.ssh_keys
    location = settings.source
    if location is None:
        return Skipped("--ssh-keys-from is not set", is_news=False)
    if keys is None:
        return Skipped("the cloud provider does not support SSH keys")
    from pileus.controllers.ssh_keys.controller import (  # noqa: PLC0415 -- not needed by help
        SshKeysController,
    )

    return SshKeysController(context, keys, location)


DESCRIPTOR = ControllerDescriptor(
    names=SSH_KEYS, settings=SshKeysSettings, build=build, kinds=(NODES,), rights=rights
)
