"""The cloud is at work on a balancer: look again later, and hold no worker meanwhile."""

import asyncio

from pileus.controllers.service.notes import Note
from pileus.controllers.service.status import pending
from pileus.controllers.service.teller import PATIENCE, Teller
from pileus.controllers.service.workshop import Look
from pileus.kube.model.core_v1 import Service
from pileus.runtime.reconcile import Result, again_in


async def wait_for(teller: Teller | None, service: Service, look: Look, note: Note) -> Result:
    """When to look again; told on the Service once it takes long (without `teller`: never)."""
    now = asyncio.get_running_loop().time()
    balancer = look.balancer
    delay = note.wait(now, balancer.check_again_in if balancer else None)
    if teller is not None and note.waited(now) >= PATIENCE:
        await teller.condition(service, note, pending(balancer.problem if balancer else ""))
    return again_in(delay)
