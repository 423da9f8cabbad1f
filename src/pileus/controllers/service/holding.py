"""Members are not taken away in numbers because of one view of the nodes: there is a second look.

many would go ──▶ held, told ──▶ seconds later: a fresh list of nodes ──▶ what that says is done
"""

import asyncio

from pileus.cloud.errors import Misconfigured
from pileus.controllers.service.notes import Note
from pileus.controllers.service.plan import loses_too_many
from pileus.controllers.service.reasons import Reason
from pileus.controllers.service.seeing import look_at
from pileus.controllers.service.teller import name_of
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.wish import Refusal
from pileus.controllers.service.workshop import Look
from pileus.kube.model.core_v1 import Service
from pileus.telemetry.log import Log

log = Log(__name__)

SECOND_LOOK = 5.0
"""Seconds between the first and the second look at the nodes."""


class Guard:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def believed(self, service: Service, look: Look, note: Note) -> Look | None:
        """The look to work from; None while members are held.

        Errors: `CloudError`; `KubeError`, if the nodes cannot be listed.
        """
        if not loses_too_many(look.balancer, look.members):
            note.held_since = None
            return look
        now = asyncio.get_running_loop().time()
        if note.held_since is None:
            note.held_since = now
            self._tell(service, look)
        if now - note.held_since < SECOND_LOOK:
            return None
        wish = self._tools.wishing.wish(service, await self._tools.membership.second_look())
        if isinstance(wish, Refusal):
            raise Misconfigured(str(wish))
        return await look_at(self._tools.workshop, service, wish, deep=True)

    def _tell(self, service: Service, look: Look) -> None:
        had = look.balancer.members if look.balancer else None
        log.warning("Members held", service=name_of(service), has=had, wanted=look.members)
        self._tools.teller.warn(
            service,
            Reason.HELD,
            f"The load balancer has {'members' if had is None else f'{had} members'} and would be "
            f"left with {look.members}: nothing is taken away before a second look at the nodes",
        )
