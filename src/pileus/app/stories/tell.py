"""Asks cluster, cloud and controllers about one object, and puts the answers together."""

from pileus.app.context import ManagerContext
from pileus.app.planning import Planner, giving_up_when_blind
from pileus.app.stories.gather import leader, warnings_about
from pileus.app.stories.node import Around, machine_of, node_story
from pileus.app.stories.service import cloud_side, service_story
from pileus.app.stories.story import Story
from pileus.controllers.service.teller import about_service
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.objects.nodes import about_node
from pileus.objects.preview import Scope
from pileus.runtime.informers import UID_INDEX


async def tell(context: ManagerContext, thing: Node | Service, scope: Scope) -> Story:
    """The story of `thing` as it is now. Errors: `Fatal` if the cluster cannot be seen."""
    client = context.clients.main("explain")
    about = about_node(thing) if isinstance(thing, Node) else about_service(thing)
    around = Around(
        plan=await Planner(context).plan(scope),
        warnings=await warnings_about(client, about),
        leader=await leader(client, context.config, context.clock.now()),
    )
    if isinstance(thing, Node):
        return node_story(context, thing, await machine_of(context, thing), around)
    nodes = context.informers.of(NODES)
    async with giving_up_when_blind(context):
        await nodes.wait_synced()
        await context.informers.of(SERVICES, UID_INDEX).wait_synced()
    known = sorted(nodes.store.list(), key=lambda each: each.metadata.name)
    return service_story(context, thing, known, await cloud_side(context, thing, known), around)
