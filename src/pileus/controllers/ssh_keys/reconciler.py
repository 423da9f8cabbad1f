"""One pass over the SSH keys of all nodes: observe, plan, perform the steps.

    source ──read──▶ desired keys ─┐
                                   ├─plan─▶ add at once · withdraw after a second check
    cloud ──list──▶ keys of nodes ─┘

A source that is missing, empty or invalid adds what can be read and withdraws nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import assert_never

from pileus.cloud.errors import CloudError, NotFound, Unsupported
from pileus.cloud.interface import SshKeys
from pileus.cloud.model import Failure, NodeKeys, NodeName, SshKey
from pileus.controllers.ssh_keys.authorized_keys import DesiredKeys
from pileus.controllers.ssh_keys.events import KeyEvents
from pileus.controllers.ssh_keys.lines import rendered
from pileus.controllers.ssh_keys.plan import (
    SECOND_CHECK,
    AddKeys,
    KeepKeys,
    Observation,
    ReportFailure,
    Step,
    WithdrawKeys,
    plan,
    unwanted_since,
)
from pileus.controllers.ssh_keys.source import Source
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.decisions import record_plan
from pileus.objects.nodes import reference
from pileus.runtime.memory import PerObject
from pileus.runtime.reconcile import Result, again_in, refresh_in

CHECK_EVERY = 600.0
"""Seconds after which all nodes are checked again, without a known change."""
RETRY_NODES = 60.0
"""Seconds until failed nodes are tried again."""

Nodes = Mapping[NodeName, Node]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What passes and plans need."""

    source: Source
    nodes: Callable[[], Nodes]
    """Returns the nodes that should have keys."""
    observer: "KeyObserver"
    keys: SshKeys
    identify: Callable[[], Awaitable[str]]
    """Returns the cluster's ID, which marks the keys that this controller adds."""
    events: KeyEvents


class KeyObserver:
    """Lists the keys of nodes. Remembers added keys only for a cloud that cannot list them.

    That memory ends with the process: the next leader adds all keys again, which is harmless.
    """

    def __init__(self, keys: SshKeys) -> None:
        self._keys = keys
        self._added = PerObject[str, frozenset[SshKey]]("nodes/ssh-keys", ends_with_object=True)
        """By the nodes' UIDs."""

    async def observe(self, cluster: str, nodes: Nodes, desired: DesiredKeys) -> Observation:
        """Raises `CloudError` if the cloud can list keys but fails to at the moment."""
        try:
            answer = await self._keys.list_keys(cluster, [*map(reference, nodes.values())])
        except Unsupported as error:
            return Observation(desired=desired, keys=self._remembered(nodes), unlisted=str(error))
        return Observation(
            desired=desired,
            keys={name: each for name, each in answer.items() if isinstance(each, NodeKeys)},
            failures={
                name: each.error for name, each in answer.items() if isinstance(each, Failure)
            },
        )

    def added(self, nodes: Iterable[Node], keys: Iterable[SshKey]) -> None:
        """Remembers that the nodes were given the keys."""
        new = frozenset(keys)
        for node in nodes:
            uid = node.metadata.uid
            self._added[uid] = self._added.get(uid, frozenset()) | new

    def _remembered(self, nodes: Nodes) -> Mapping[NodeName, NodeKeys]:
        self._added.keep({node.metadata.uid for node in nodes.values()})
        return {
            name: NodeKeys(others=self._added.get(node.metadata.uid, frozenset()))
            for name, node in nodes.items()
        }


@dataclass(frozen=True, slots=True)
class _Pass:
    """What stays the same during one pass, and its errors."""

    cluster: str
    nodes: Nodes
    errors: dict[NodeName, CloudError] = field(default_factory=dict[NodeName, CloudError])
    calls: list[CloudError] = field(default_factory=list[CloudError])
    """The errors of calls that failed as a whole."""


class SshKeysReconciler:
    """There is one key only, whatever its name."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._unwanted_since: Mapping[SshKey, float] = {}

    async def reconcile(self, key: str) -> Result:  # noqa: ARG002 -- there is one
        nodes, desired = self._tools.nodes(), await self._read()
        self._tools.events.keep(nodes.values())
        if not nodes or not (desired.keys or desired.is_complete):
            self._unwanted_since = {}
            self._count(nodes, {}, {})
            return refresh_in(CHECK_EVERY)
        this = _Pass(await self._tools.identify(), nodes)
        seen = await self._observe(this, desired)
        steps = plan(seen)
        record_plan(line for step in steps for line in rendered(step, nodes))
        self._unwanted_since = unwanted_since(steps, seen)
        for step in steps:
            await self._perform(step, this)
        self._tools.events.failed(this.errors, nodes)
        self._count(nodes, seen.keys, this.errors)
        for error in this.calls:
            raise error
        return self._next(this.errors.values())

    async def _read(self) -> DesiredKeys:
        """Reads the source. While it cannot be read, no time counts towards a withdrawal."""
        before, self._unwanted_since = self._unwanted_since, {}
        desired = await self._tools.source.desired()
        self._unwanted_since = before
        self._tools.events.source_read(len(desired.keys), desired.problems)
        return desired

    async def _observe(self, this: _Pass, desired: DesiredKeys) -> Observation:
        seen = await self._tools.observer.observe(this.cluster, this.nodes, desired)
        now = asyncio.get_running_loop().time()
        return replace(seen, unwanted_since=self._unwanted_since, now=now)

    async def _perform(self, step: Step, this: _Pass) -> None:
        """Performs one step. A failure keeps no other step from being performed."""
        match step:
            case AddKeys() | WithdrawKeys(wait=0):
                await self._change(step, this)
            case WithdrawKeys():
                pass  # a later pass withdraws them
            case KeepKeys(keys, why):
                self._tools.events.cannot_withdraw(keys, why)
            case ReportFailure(name, error):
                this.errors.setdefault(name, error)
            case _:
                assert_never(step)

    async def _change(self, step: AddKeys | WithdrawKeys, this: _Pass) -> None:
        keys = self._tools.keys
        call = keys.add if isinstance(step, AddKeys) else keys.remove
        try:
            failed = await call(
                this.cluster, step.keys, [reference(this.nodes[name]) for name in step.nodes]
            )
        except Unsupported as error:
            self._unsupported(step, error, this)
            return
        except CloudError as error:
            this.calls.append(error)
            failed = dict.fromkeys(step.nodes, error)
        this.errors.update(failed)
        done = {name: this.nodes[name] for name in step.nodes if name not in failed}
        if done:
            self._tools.events.changed(step, done)
            self._remember(step, done)

    def _remember(self, step: AddKeys | WithdrawKeys, done: Nodes) -> None:
        if isinstance(step, AddKeys):
            self._tools.observer.added(done.values(), step.keys)
        else:
            since = self._unwanted_since
            self._unwanted_since = {k: at for k, at in since.items() if k not in step.keys}

    def _unsupported(self, step: AddKeys | WithdrawKeys, error: Unsupported, this: _Pass) -> None:
        """Retrying soon would change nothing."""
        if isinstance(step, WithdrawKeys):
            self._tools.events.cannot_withdraw(step.keys, str(error))
            self._unwanted_since = {}
        else:
            this.errors.update(dict.fromkeys(step.nodes, error))

    def _count(
        self,
        nodes: Nodes,
        seen: Mapping[NodeName, object],
        errors: Mapping[NodeName, CloudError],
    ) -> None:
        current = [nodes[name] for name in seen if name not in errors]
        self._tools.events.recovered(current)
        unknown = len(nodes) - len(current) - len(errors)
        counts = {"current": len(current), "failed": len(errors), "unknown": unknown}
        self._tools.events.count(counts)

    def _next(self, errors: Iterable[CloudError]) -> Result:
        if self._unwanted_since:
            return again_in(SECOND_CHECK)
        if any(not isinstance(error, NotFound | Unsupported) for error in errors):
            return again_in(RETRY_NODES)
        return refresh_in(CHECK_EVERY)
