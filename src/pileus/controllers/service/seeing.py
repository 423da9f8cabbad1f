"""Look at a Service's balancer, with less than it prefers where the cloud has no more."""

from dataclasses import replace

from pileus.cloud.balancer import Wish
from pileus.cloud.errors import Misconfigured, Unsupported
from pileus.controllers.service.wish import narrowed
from pileus.controllers.service.workshop import Look, Workshop
from pileus.kube.model.core_v1 import Service


async def look_at(workshop: Workshop, service: Service, wish: Wish, *, deep: bool) -> Look:
    """Errors: `CloudError`; of a wish for two families, what the cloud says to that."""
    try:
        return await workshop.look(wish, deep=deep)
    except Unsupported:
        narrower = narrowed(service, wish)
        if narrower is None:
            raise
        return await workshop.look(narrower, deep=deep)


async def look_back(workshop: Workshop, wish: Wish) -> Look:
    """A look for one who goes: at what it named, unless that is another's, or is not there."""
    try:
        return await workshop.look(wish, deep=True)
    except Misconfigured:
        if not wish.adopts:
            raise
        return await workshop.look(replace(wish, adopts=""), deep=True)
