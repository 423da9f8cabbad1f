"""Give a Service its balancer, and keep it as the Service wants it.

wish ──▶ look ──▶ claim ──▶ second look at the members, if many would go ──▶ change ──▶ publish
           │                                                                             ▲
           └──────────────────────── nothing to change ──────────────────────────────────┘
"""

import asyncio

from pileus.cloud.balancer import Wish
from pileus.cloud.errors import Misconfigured
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.notes import Note
from pileus.controllers.service.plan import (
    CLAIM,
    Serve,
    course,
    is_busy,
    loses_too_many,
    needs_claim,
    only_members,
    published,
    unclaimed,
)
from pileus.controllers.service.status import published_ingress, verdict_of
from pileus.controllers.service.teller import (
    CLAIM as CLAIMING,
)
from pileus.controllers.service.teller import (
    ENSURE,
    ENSURED,
    ENSURING,
    HELD,
    MISSPELT,
    PUBLISH,
    SYNC_FAILED,
    UNAVAILABLE,
    UPDATE,
    UPDATE_FAILED,
    UPDATED,
    name_of,
)
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.waiting import wait_for
from pileus.controllers.service.wish import Refusal, differ_in_members
from pileus.controllers.service.workshop import Look, check_health
from pileus.kube.errors import Conflict
from pileus.kube.model.core_v1 import Service
from pileus.runtime.reconcile import Result, again_in, refresh_in
from pileus.telemetry.log import Log

log = Log(__name__)

SECOND_LOOK = 5.0
"""Seconds between the first and the second look at nodes that would take many members away."""
CLAIMS = 5
"""Tries to set the finalizer on a Service that others write to."""
NAMED = 20
"""Nodes that are named in an event; of more, only the number."""


class Serving:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def serve(self, service: Service, mode: Mode) -> Result:
        """One pass. Errors: `CloudError`, `KubeError`, `Fenced`."""
        tools = self._tools
        note = tools.notes.of(service.metadata.uid)
        note.stage = ENSURE
        self._check_annotations(service)
        wish = tools.wishing.wish(service, tools.membership.now())
        if isinstance(wish, Refusal):
            raise Misconfigured(str(wish))
        with tools.turns.queueing(tools.workshop.lock_key(wish)) as turn:
            look = await self._look(wish, note)
            if not look.left(mode):
                return await self._settle(service, look, mode)
            async with turn.taken() as moved_on:
                if moved_on:
                    look = await self._look(wish, note)
                return await self._work(service, look, mode)

    def _check_annotations(self, service: Service) -> None:
        """Tell of what was probably misspelt; what is wrong otherwise, the provider refuses."""
        declared = self._tools.wishing.annotations
        given = service.metadata.annotations or {}
        if declared is None:
            return
        known = declared.declared(given)
        problems = declared.problems({k: v for k, v in given.items() if k not in known})
        if problems:
            self._tools.teller.warn(service, MISSPELT, f"Left out: {'; '.join(problems)}")
        else:
            self._tools.teller.well(service, MISSPELT)

    async def _look(self, wish: Wish, note: Note) -> Look:
        deep = asyncio.get_running_loop().time() >= note.deep_due
        look = await self._tools.workshop.look(wish, deep=deep)
        if deep:
            self._tools.notes.looked_deeply(note)
        note.known = note.known or look.balancer is not None
        return look

    async def _work(self, service: Service, look: Look, mode: Mode) -> Result:
        note = self._tools.notes.of(service.metadata.uid)
        claimed = await self._claim(service, look, mode)
        if claimed is None:
            return again_in(0)
        guarded = await self._guard(claimed, look, note)
        if guarded is None:
            return again_in(SECOND_LOOK)
        return await self._change(claimed, guarded, mode)

    async def _claim(self, service: Service, look: Look, mode: Mode) -> Service | None:
        """The Service with the finalizer, where one is needed; None: it changed, begin anew."""
        note = self._tools.notes.of(service.metadata.uid)
        at_stake = bool(look.left(mode)) or look.balancer is not None
        note.stage = CLAIMING
        for _ in range(CLAIMS):
            if not needs_claim(service, mode, at_stake=at_stake):
                return service
            try:
                return await self._tools.cluster.write(service, CLAIM)
            except Conflict:
                service = await self._tools.cluster.read(service)
                if course(service, self._tools.classes, known=False) != Serve(mode):
                    return None
        return None

    async def _guard(self, service: Service, look: Look, note: Note) -> Look | None:
        """The look to work from; None while members are held that one view of the nodes denies."""
        wanted = len(look.wish.spec.members) if look.wish.spec else 0
        if not loses_too_many(look.balancer, wanted):
            note.held_since = None
            return look
        now = asyncio.get_running_loop().time()
        if note.held_since is None or now - note.held_since < SECOND_LOOK:
            self._hold(service, look, note, now)
            return None
        members = await self._tools.membership.second_look()
        wish = self._tools.wishing.wish(service, members)
        if isinstance(wish, Refusal):
            raise Misconfigured(str(wish))
        return await self._tools.workshop.look(wish, deep=True)

    def _hold(self, service: Service, look: Look, note: Note, now: float) -> None:
        if note.held_since is None:
            note.held_since = now
        had = look.balancer.members if look.balancer else None
        wanted = len(look.wish.spec.members) if look.wish.spec else 0
        log.warning("Members held", service=name_of(service), has=had, wanted=wanted)
        self._tools.teller.warn(
            service,
            HELD,
            f"The load balancer has {'members' if had is None else f'{had} members'} and would be "
            f"left with {wanted}: nothing is taken away before a second look at the nodes",
        )

    async def _change(self, service: Service, look: Look, mode: Mode) -> Result:
        note, teller = self._tools.notes.of(service.metadata.uid), self._tools.teller
        is_update = look.balancer is not None and (
            only_members(look.left(mode)) or differ_in_members(note.settled, look.wish)
        )
        note.stage = _update_of(look) if is_update else ENSURE
        note.known = True
        if not is_update and not note.ensuring:
            note.ensuring = True
            teller.announce(service, ENSURING, "Ensuring load balancer")
        for change in look.left(mode):
            log.info(
                "Changing", service=name_of(service), effect=change.effect, what=change.summary
            )
        drift = look.wish == note.settled and bool(look.left(mode))
        began = asyncio.get_running_loop().time()
        try:
            after = await self._tools.workshop.perform(look, mode)
        finally:
            if is_update:
                self._measure_update(asyncio.get_running_loop().time() - began)
        if drift:
            self._tools.metrics.service_drift_repaired.inc()
        if is_update:
            self._tell_update(service, look)
        return await self._settle(service, after, mode)

    def _measure_update(self, seconds: float) -> None:
        self._tools.metrics.host_updates.inc()
        self._tools.metrics.host_update_duration.observe(seconds)

    def _tell_update(self, service: Service, look: Look) -> None:
        if look.wish.spec and look.wish.spec.members:
            self._tools.teller.announce(service, UPDATED, "Updated load balancer with new hosts")

    async def _settle(self, service: Service, look: Look, mode: Mode) -> Result:
        """Tell how the Service stands, and when to look again."""
        note = self._tools.notes.of(service.metadata.uid)
        note.stage = ENSURE
        check_health(look)
        if is_busy(look.balancer) or look.left(mode):
            return await wait_for(self._tools.teller, service, look, note)
        claimed = await self._claim(service, look, mode)
        if claimed is None:
            return again_in(0)
        await self._publish(claimed, look, mode)
        return refresh_in(max(note.deep_due - asyncio.get_running_loop().time(), 0.0))

    async def _publish(self, service: Service, look: Look, mode: Mode) -> None:
        note, teller = self._tools.notes.of(service.metadata.uid), self._tools.teller
        members = len(look.wish.spec.members) if look.wish.spec else 0
        if not members and look.balancer is not None and mode.writes:
            teller.warn(service, UNAVAILABLE, "There are no available nodes for LoadBalancer")
        verdict = verdict_of(look.balancer, mode, members)
        write = published(service, look.balancer, verdict, teller.telling(note))
        note.stage = PUBLISH
        was_ensuring = note.ensuring or (
            write.ingress is not None and not published_ingress(service)
        )
        await teller.write(service, note, unclaimed(write, service, mode))
        if was_ensuring and look.balancer is not None:
            teller.announce(service, ENSURED, "Ensured load balancer")
        teller.well(service, SYNC_FAILED, UPDATE_FAILED, HELD, *([UNAVAILABLE] if members else []))
        note.settle(look.wish)


def _update_of(look: Look) -> str:
    """What is being done, in the Go framework's words."""
    names = sorted(node.name for node in look.wish.spec.members) if look.wish.spec else []
    shown = " ".join(names[:NAMED])
    more = f" <{len(names) - NAMED} more>" if len(names) > NAMED else ""
    return f"{UPDATE} [{shown}{more}] [node names limited, total number of nodes: {len(names)}]"
