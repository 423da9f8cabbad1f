"""Reads cluster, cloud and plan for one object, and combines them into its explanation."""

from pileus.app.context import ManagerContext
from pileus.app.errors import Fatal
from pileus.app.explain.cluster_messages import leader, warnings_about
from pileus.app.explain.explanation import Explanation
from pileus.app.explain.node import Findings, explain_node, machine_of
from pileus.app.explain.service import cloud_side, explain_service, serves
from pileus.app.plan import Planner, failing_if_unreadable
from pileus.controllers.service.events import about_service
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.objects.nodes import about_node
from pileus.objects.preview import Scope
from pileus.runtime.informers import UID_INDEX


def _cloud_of(context: ManagerContext, thing: Node | Service) -> ManagerContext:
    """Returns the context of the object's cloud, or of the first one if it has none.

    Raises Fatal if no cloud is connected.
    """
    if context.clouds is None:
        return context
    connected = context.clouds.contexts()
    if not connected:
        problems = "; ".join(slot.problem() or "" for slot in context.clouds.slots)
        raise Fatal(f"Cloud provider could not be initialized: {problems}")
    if isinstance(thing, Node):
        owner = context.clouds.nodes.owner(thing)
        owning = (each for each in connected if each.scope.name == owner)
    else:
        owning = (each for each in connected if serves(each, thing))
    return next(owning, connected[0])


async def explain(context: ManagerContext, thing: Node | Service, scope: Scope) -> Explanation:
    """Returns the explanation of `thing`. Raises Fatal if the cluster cannot be read."""
    client = context.clients.main("explain")
    about = about_node(thing) if isinstance(thing, Node) else about_service(thing)
    around = Findings(
        plan=await Planner(context).plan(scope),
        warnings=await warnings_about(client, about),
        leader=await leader(client, context.config, context.clock.now()),
    )
    context = _cloud_of(context, thing)
    if isinstance(thing, Node):
        return explain_node(context, thing, await machine_of(context, thing), around)
    nodes = context.informers.of(NODES)
    async with failing_if_unreadable(context):
        await nodes.wait_synced()
        await context.informers.of(SERVICES, UID_INDEX).wait_synced()
    known = sorted(nodes.store.list(), key=lambda each: each.metadata.name)
    return explain_service(context, thing, known, await cloud_side(context, thing, known), around)
