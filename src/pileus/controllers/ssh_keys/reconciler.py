"""Bring the SSH keys of all nodes to what the source wants, in one pass over all of them.

    source ──read──▶ wanted ─┐
                             ├─plan─▶ add, at once · withdraw, after a second look
    cloud ───list──▶ seen ───┘

A source that is gone, empty or unreadable adds what it can and withdraws nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import CloudError, NotFound, Unsupported
from pileus.cloud.interface import SshKeys
from pileus.cloud.model import NodeName, SshKey
from pileus.controllers.ssh_keys.authorized_keys import Wanted
from pileus.controllers.ssh_keys.events import Report
from pileus.controllers.ssh_keys.observation import Look, Looks
from pileus.controllers.ssh_keys.plan import (
    SECOND_LOOK,
    Step,
    additions,
    confirmed,
    unwanted_since,
    withdrawals,
)
from pileus.controllers.ssh_keys.source import Source
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import reference
from pileus.runtime.reconcile import Result, again_in, refresh_in

CHECK_EVERY = 600.0
"""Seconds after which all nodes are looked at again, though nothing is known to have changed."""
NODES_AGAIN = 60.0
"""Seconds until nodes that failed are tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    source: Source
    nodes: Callable[[], Mapping[NodeName, Node]]
    """Those that are to have keys."""
    keys: SshKeys
    looks: Looks
    identify: Callable[[], Awaitable[str]]
    """The cluster's id: the mark of the keys that we add."""
    report: Report


@dataclass(frozen=True, slots=True)
class _Pass:
    """What stays the same during one pass, and what goes wrong in it."""

    cluster: str
    nodes: Mapping[NodeName, Node]
    errors: dict[NodeName, CloudError]
    whole: list[CloudError] = field(default_factory=list[CloudError])
    """Of calls that failed altogether."""


class SshKeysReconciler:
    """There is one key only, whatever its name."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._since: dict[SshKey, float] = {}

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- all nodes, always
        nodes, wanted = self._tools.nodes(), await self._read()
        self._tools.report.keep(nodes.values())
        if not nodes or not (wanted.keys or wanted.is_whole):
            self._since = {}
            self._count(nodes, {}, {})
            return refresh_in(CHECK_EVERY)
        cluster = await self._tools.identify()
        look = await self._tools.looks.of(cluster, nodes)
        this = _Pass(cluster, nodes, dict(look.failures))
        await self._perform(additions(wanted, look.keys), this)
        await self._withdraw(wanted, look, this)
        self._tools.report.failed(this.errors, nodes)
        self._count(nodes, look.keys, this.errors)
        for error in this.whole:
            raise error
        return self._again(this.errors.values())

    async def _read(self) -> Wanted:
        """What is wanted now. While it cannot be known, no time counts towards a withdrawal."""
        before, self._since = self._since, {}
        wanted = await self._tools.source.wanted()
        self._since = before
        self._tools.report.wanted(len(wanted.keys), wanted.problems)
        return wanted

    async def _withdraw(self, wanted: Wanted, look: Look, this: _Pass) -> None:
        if look.blind:
            left = {key for each in look.keys.values() for key in each.others} - wanted.keys
            if left and wanted.is_whole:
                self._tools.report.cannot_withdraw(sorted(left), look.blind)
            return
        steps = withdrawals(wanted, look.keys)
        now = asyncio.get_running_loop().time()
        self._since = unwanted_since(steps, self._since, now)
        await self._perform(confirmed(steps, self._since, now), this)

    async def _perform(self, steps: Sequence[Step], this: _Pass) -> None:
        """Make each call; one that fails keeps no other from being made."""
        for step in steps:
            try:
                failed = await self._call(step, this)
            except Unsupported as error:
                self._unsupported(step, error, this)
                continue
            except CloudError as error:
                this.whole.append(error)
                failed = dict.fromkeys(step.nodes, error)
            this.errors.update(failed)
            done = {name: this.nodes[name] for name in step.nodes if name not in failed}
            if done:
                self._tools.report.did(step, done)
                self._note(step, done)

    async def _call(self, step: Step, this: _Pass) -> Mapping[NodeName, CloudError]:
        keys = self._tools.keys
        call = keys.add if step.effect is Effect.CREATE else keys.remove
        return await call(
            this.cluster, step.keys, [reference(this.nodes[name]) for name in step.nodes]
        )

    def _note(self, step: Step, done: Mapping[NodeName, Node]) -> None:
        if step.effect is Effect.CREATE:
            self._tools.looks.note(done.values(), step.keys)
        else:
            self._since = {key: at for key, at in self._since.items() if key not in step.keys}

    def _unsupported(self, step: Step, error: Unsupported, this: _Pass) -> None:
        """Trying again soon would change nothing."""
        if step.effect is Effect.DELETE:
            self._tools.report.cannot_withdraw(step.keys, str(error))
            self._since = {}
        else:
            this.errors.update(dict.fromkeys(step.nodes, error))

    def _count(
        self,
        nodes: Mapping[NodeName, Node],
        seen: Mapping[NodeName, object],
        errors: Mapping[NodeName, CloudError],
    ) -> None:
        well = [nodes[name] for name in seen if name not in errors]
        self._tools.report.well(well)
        unknown = len(nodes) - len(well) - len(errors)
        counts = {"current": len(well), "failed": len(errors), "unknown": unknown}
        self._tools.report.counted(counts)

    def _again(self, errors: Iterable[CloudError]) -> Result:
        if self._since:
            return again_in(SECOND_LOOK)
        if any(not isinstance(error, NotFound | Unsupported) for error in errors):
            return again_in(NODES_AGAIN)
        return refresh_in(CHECK_EVERY)
