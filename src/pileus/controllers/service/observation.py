"""What a pass reads and where it writes: Services in the cluster, load balancers in the cloud.

`Observation` is everything that a plan is made from, as one frozen value. The rest of the module
fills it: `ClusterServices` reads and writes Services, `BalancerOperations` checks and changes load
balancers, `SharedLocks` keeps Services that share a load balancer from being changed at once.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from pileus.cloud.balancer import (
    Balancer,
    Balancers,
    BalancerState,
    Change,
    Effect,
    Owner,
    Seen,
    Wish,
    foreign_refused,
)
from pileus.cloud.errors import CloudError, Misconfigured, Unavailable
from pileus.cloud.model import Failure, NodeRef
from pileus.cloud.on_change import as_declared, changed_options, original, without_effect
from pileus.cloud.options import Options
from pileus.controllers.service.notes import FIRST, UNKNOWN, Attempt, Note
from pileus.controllers.service.status import Write, expected, patch_of
from pileus.dataclass import dataclass
from pileus.deadline import covered
from pileus.kube.client import Client
from pileus.kube.errors import Invalid, KubeError
from pileus.kube.informer import Handler
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.store import Store
from pileus.objects.own_writes import OwnWrites, WithoutEchoes
from pileus.telemetry.log import Log

log = Log(__name__)

STATUS = "status"
SHORTEST_CHECK = 1.0
"""Seconds; a provider that asks for less must not keep a worker busy."""
MOST_ROUNDS = 5
"""How often, in one pass, changes may lead to further changes."""


@dataclass(frozen=True, slots=True)
class Observed:
    """The result of one check: a load balancer and the changes that it needs."""

    desired: Wish
    seen: Seen
    balancer: Balancer | None
    """As `seen` describes it; a provider may build it whenever it is asked for."""
    changes: tuple[Change, ...]
    without_effect: tuple[str, ...] = ()
    """Warnings about annotations whose change has no effect."""
    is_full: bool = False
    """Whether everything was read for it: it is a full check, and not what changes led to."""

    @property
    def members(self) -> int:
        """The number of desired members."""
        return len(self.desired.spec.members) if self.desired.spec else 0

    @property
    def is_busy(self) -> bool:
        """Whether the cloud is working on it and refuses changes."""
        return _is_busy(self.balancer)

    @property
    def is_unready(self) -> bool:
        """Whether the cloud is working on it: nothing is published, and it is checked again."""
        unready = {BalancerState.PENDING, BalancerState.PROVISIONING}
        return self.balancer is not None and self.balancer.state in unready

    def is_whole_deletion(self, planned: Sequence[Change], done: Sequence[Change]) -> bool:
        """Returns whether the cloud accepted the deletion of all that was found, not of parts."""
        deletes = any(change.effect is Effect.DELETE for change in done)
        return self.desired.spec is None and deletes and len(done) == len(planned)

    @property
    def check_again_in(self) -> float | None:
        """Seconds after which a ready load balancer is checked again; None: at the next check."""
        if self.balancer is None or self.balancer.state is not BalancerState.READY:
            return None
        asked = self.balancer.check_again_in
        return None if asked is None else max(asked, SHORTEST_CHECK)


def _is_busy(balancer: Balancer | None) -> bool:
    return balancer is not None and balancer.state is BalancerState.PENDING


@dataclass(frozen=True, slots=True)
class Applied:
    """The changes that this pass has made."""

    done: tuple[Change, ...] = ()
    last: tuple[Change, ...] = ()
    """The changes of the last round that were to be made."""
    rounds: int = 0
    attempt: Attempt = FIRST

    def is_over(self, left: tuple[Change, ...], *, is_busy: bool) -> bool:
        """Returns whether the pass has to wait instead of making further changes."""
        has_begun = self.rounds > 0
        return has_begun and (is_busy or left == self.last or self.rounds >= MOST_ROUNDS)


@dataclass(frozen=True, slots=True)
class Deleted:
    """A Service that no longer exists."""

    since: float
    too_many: int = 0
    """How many Services vanished with it, if that is too many to trust it."""
    is_confirmed: bool = False
    """Whether the API server itself confirmed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything that a plan is made from."""

    service: Service
    """For a deleted Service, its last known state."""
    note: Note = UNKNOWN
    time: float
    """Of the event loop."""
    date: datetime
    members: frozenset[NodeRef] = frozenset()
    """The nodes that are to be members."""
    nodes_confirmed: bool = False
    """Whether `members` is from a new list of all nodes, made for this pass."""
    balancer: Observed | None = None
    """None: not checked yet."""
    applied: Applied = Applied()
    deleted: Deleted | None = None
    former: tuple[str, float] | None = None
    """UID of a deleted Service of the same name that is still to be cleaned up, and the seconds
    since its clean-up began."""


@dataclass(frozen=True, slots=True)
class Continued:
    """The observation after a step that went as planned: the next step follows."""

    seen: Observation


class ServiceReplaced(KubeError):
    """The Service was deleted and created again: what was decided was about the old one."""


LIST_KEPT = 10.0
"""Seconds for which a list shows which Services exist."""


class ClusterServices:
    """The Services of a cluster. Shows our own writes before the watch delivers them."""

    def __init__(self, client: Client, store: Store[Service], by_uid: str) -> None:
        self._client = client
        self._store = store
        self._by_uid = by_uid
        self._written = OwnWrites[str, Service](self._seen)
        self._listed: tuple[float, frozenset[str]] | None = None
        self._listing = asyncio.Lock()

    def service(self, uid: str) -> Service | None:
        return self._written.newest(uid, self._seen(uid))

    def services(self) -> tuple[Service, ...]:
        return self._store.list()

    def without_echoes(self, handler: Handler[Service]) -> Handler[Service]:
        """Returns the handler with our own writes filtered out."""
        return WithoutEchoes(handler, self._written, lambda service: service.metadata.uid)

    async def read(self, service: Service) -> Service:
        """Read the Service from the API server.

        Raises ServiceReplaced if another Service has its name by now; KubeError otherwise.
        """
        metadata = service.metadata
        found = await self._client.get(SERVICES, metadata.name, namespace=metadata.namespace)
        if found.metadata.uid != metadata.uid:
            raise ServiceReplaced(f"{metadata.namespace}/{metadata.name} was created again")
        return self._written.note(metadata.uid, found)

    async def write(self, service: Service, write: Write) -> Service:
        """Patch the Service and return its new state.

        Raises ServiceReplaced; Conflict if the write is for this version only and there is a newer
        one; KubeError otherwise.
        """
        metadata = service.metadata
        request = self._client.patch(
            SERVICES,
            metadata.name,
            patch_of(service, write),
            namespace=metadata.namespace,
            subresource=STATUS,
        )
        try:
            return await self._written.write(
                metadata.uid, request, lambda before: expected(before, write)
            )
        except Invalid as error:
            if error.is_about_uid:
                raise ServiceReplaced(
                    f"{metadata.namespace}/{metadata.name} was created again"
                ) from error
            raise

    async def list_nodes(self) -> tuple[Node, ...]:
        """List all nodes from the API server."""
        return (await self._client.list(NODES)).items

    async def list_services(self) -> tuple[Service, ...]:
        """List all Services from the API server; those that do not decode by name and UID."""
        listed = await self._client.list(SERVICES)
        return (*listed.items, *listed.unreadable)

    async def listed_uids(self) -> frozenset[str]:
        """Returns the UIDs of all Services, by a list of the last `LIST_KEPT` seconds.

        One list serves the passes of all Services that seem to be deleted. An older list is as good
        as a new one: a UID that it lacks does not come back.
        """
        async with self._listing:
            now = asyncio.get_running_loop().time()
            if self._listed is None or now - self._listed[0] >= LIST_KEPT:
                services = await self.list_services()
                self._listed = now, frozenset(each.metadata.uid for each in services)
            return self._listed[1]

    def _seen(self, uid: str) -> Service | None:
        found = self._store.by_index(self._by_uid, uid)
        return found[0] if found else None


class BalancerOperations:
    """Checks and changes load balancers. Raises CloudError, and Fenced for a change."""

    def __init__(
        self,
        balancers: Balancers[Any, Any],
        service: Callable[[str], Service | None] = lambda _: None,
        annotations: Options | None = None,
    ) -> None:
        """`service` finds a Service by UID: its load balancer cannot be adopted by another.

        `annotations` are those that the provider declares: what a change of each does.
        """
        self._balancers = balancers
        self._service = service
        self._annotations = annotations
        self._has_logged_annotations = False

    async def owners(self, cluster: str) -> frozenset[Owner]:
        return await self._balancers.owners(cluster)

    async def check(self, desired: Wish, *, full: bool) -> Observed:
        """Observe the load balancer and compare it with the desired state.

        Raises Unavailable if the cloud gives no answer: that never means that there is none.
        Raises Misconfigured if the load balancer to adopt serves another Service or cluster.
        """
        seen = (await self._balancers.observe([desired], deep=full)).get(desired.owner)
        if seen is None:
            raise Unavailable("the cloud did not report whether there is a load balancer")
        if isinstance(seen, Failure):
            raise seen.error.with_traceback(None)  # the answer may be shared with other passes
        return self._compared(desired, seen, is_full=full)

    async def check_or(self, desired: Wish, fallback: "Fallback | None", *, full: bool) -> Observed:
        """Check the desired state, or the fallback if the cloud refuses the first one."""
        try:
            return await self.check(desired, full=full)
        except CloudError as error:
            if fallback is None or not isinstance(error, fallback.on):
                raise
            return await self.check(fallback.desired, full=full)

    async def apply(
        self, observed: Observed, changes: tuple[Change, ...]
    ) -> tuple[tuple[Change, ...], Observed]:
        """Make the changes in order until the cloud is busy; return which, and the new state."""
        seen = observed.seen
        made = 0
        for change in changes:
            seen = await self._balancers.apply(original(change), seen)
            made += 1
            if _is_busy(seen.balancer):
                break
        return changes[:made], self._compared(observed.desired, seen)

    def lock_key(self, desired: Wish) -> str:
        return self._balancers.lock_key(desired)

    def _compared(self, desired: Wish, seen: Seen, *, is_full: bool = False) -> Observed:
        balancer = seen.balancer
        self._check_owner(desired, balancer)
        self._check_annotations(balancer)
        changed = changed_options(self._annotations, desired, balancer)
        changes = as_declared(self._balancers.changes(desired, seen), changed)
        return Observed(desired, seen, balancer, changes, without_effect(changed), is_full)

    def _check_annotations(self, found: Balancer | None) -> None:
        """Log once which annotations are never written: a bug in the provider."""
        known = self._annotations.reported if self._annotations else frozenset[str]()
        unknown = set(found.annotations if found else ()) - known
        if unknown and not self._has_logged_annotations:
            self._has_logged_annotations = True
            log.warning(
                "Not writing annotations: the provider does not declare them as REPORTED or ADOPTS",
                annotations=", ".join(sorted(unknown)),
            )

    def _check_owner(self, desired: Wish, found: Balancer | None) -> None:
        """Refusals say whose it is only to Services of trusted namespaces."""
        owner = found and found.owner
        if found is None or owner is None or owner == desired.owner:
            return
        if owner.cluster != desired.owner.cluster:
            if not desired.may_use_foreign:
                raise foreign_refused(desired)
            raise Misconfigured(
                f"load balancer {found.id} cannot be adopted: it belongs to cluster "
                f"{owner.cluster}. Name another one"
            )
        if not found.is_shareable and (served := self._service(owner.uid)) is not None:
            if not desired.may_use_foreign:
                raise foreign_refused(desired)
            name = f"{served.metadata.namespace}/{served.metadata.name}"
            raise Misconfigured(
                f"load balancer {found.id} cannot be adopted: it serves Service {name}. Name "
                "another one, or delete that Service in a mode in which its load balancer stays"
            )


@dataclass(frozen=True, slots=True)
class Fallback:
    """What is checked instead if the cloud refuses the desired state in this way."""

    on: type[CloudError]
    desired: Wish


class SharedLocks:
    """One pass at a time where Services share a load balancer, by the provider's lock key.

    A key is forgotten as soon as no pass uses it.
    """

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    @contextmanager
    def visit(self) -> Generator["Visit"]:
        """Yield a pass's access to the locks. What it holds is released at the end of the block."""
        visit = Visit(self._locks)
        try:
            yield visit
        finally:
            visit.leave()


class _Lock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.visits = 0
        self.taken = 0


class Visit:
    def __init__(self, locks: dict[str, _Lock]) -> None:
        self._locks = locks
        self._key: str | None = None
        self._seen = 0
        self._is_held = False

    def join(self, key: str) -> None:
        """Name the key, before the load balancer is checked. Only the first call has an effect."""
        if self._key is None:
            self._key = key
            lock = self._locks.setdefault(key, _Lock())
            lock.visits += 1
            self._seen = lock.taken

    async def take(self) -> bool:
        """Wait for the lock. Return whether another pass held it since `join`: check again then.

        Returns False at once if this pass holds it already.
        """
        if self._is_held or self._key is None:
            return False
        lock = self._locks[self._key]
        with covered():
            await lock.lock.acquire()
        self._is_held = True
        moved_on = lock.taken != self._seen
        lock.taken += 1
        return moved_on

    def leave(self) -> None:
        if self._key is None:
            return
        lock = self._locks[self._key]
        if self._is_held:
            lock.lock.release()
        lock.visits -= 1
        if not lock.visits:
            del self._locks[self._key]
