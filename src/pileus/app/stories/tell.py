"""Asks cluster, cloud and controllers about one object, and puts the answers together."""

from pileus.app.planning import Planner, giving_up_when_blind
from pileus.app.stories.gather import leader, warnings_about
from pileus.app.stories.node import Around, machine_of, node_story
from pileus.app.stories.service import cloud_side, service_story
from pileus.app.stories.story import Story
from pileus.app.work import Post
from pileus.controllers.service.teller import about_service
from pileus.kube.model.core_v1 import Node, Service
from pileus.objects.nodes import about_node
from pileus.objects.preview import Scope


async def tell(post: Post, thing: Node | Service, scope: Scope) -> Story:
    """The story of `thing` as it is now. Errors: `Fatal` if the cluster cannot be seen."""
    client = post.clients.main("explain")
    about = about_node(thing) if isinstance(thing, Node) else about_service(thing)
    around = Around(
        plan=await Planner(post).plan(scope),
        warnings=await warnings_about(client, about),
        leader=await leader(client, post.config, post.clock.now()),
    )
    if isinstance(thing, Node):
        return node_story(post, thing, await machine_of(post, thing), around)
    nodes = post.informers.nodes()
    async with giving_up_when_blind(post):
        await nodes.wait_synced()
        await post.informers.services().wait_synced()
    known = sorted(nodes.store.list(), key=lambda each: each.metadata.name)
    return service_story(post, thing, known, await cloud_side(post, thing, known), around)
