"""Whether the object that a command is about exists, and what was meant if not."""

from pileus.app.context import ManagerContext
from pileus.app.errors import CommandFailed
from pileus.app.plan import failing_if_unreadable
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.store import NamespacedName
from pileus.objects.preview import Scope
from pileus.runtime.informers import UID_INDEX
from pileus.suggest import did_you_mean


async def check_exists(context: ManagerContext, scope: Scope) -> Node | Service | None:
    """The object as the cluster has it; None if none is named.

    Errors: `CommandFailed` with the name that was probably meant.
    """
    if not scope.kind:
        return None
    informer = (
        context.informers.of(NODES)
        if scope.kind == "Node"
        else context.informers.of(SERVICES, UID_INDEX)
    )
    async with failing_if_unreadable(context):
        await informer.wait_synced()
    found = informer.store.get(NamespacedName(scope.namespace, scope.name))
    if found is not None:
        return found
    name = shown_name(scope.namespace, scope.name)
    known = [
        shown_name(each.metadata.namespace, each.metadata.name) for each in informer.store.list()
    ]
    raise CommandFailed(f'there is no {scope.kind} "{name}"{did_you_mean(name, known)}')


def shown_name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
