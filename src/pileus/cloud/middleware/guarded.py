"""Keeps a provider's mistakes from harming anyone: foreign errors, and answers that make no sense.

Everything that leaves the guard is what the contract promises. An error that is no `CloudError`
becomes `Unavailable`, its traceback logged once per kind. What an answer says beyond the question
is dropped; nonsense about one item becomes that item's failure. Both are logged and counted.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

from pileus.cloud.balancer import Balancers, Change, Owner, Seen, Wish
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.foreign import is_its_own
from pileus.cloud.interface import Cloud, Instances, Routes, SshKeys
from pileus.cloud.middleware.answers import (
    Checked,
    check_changes,
    check_found,
    check_keys,
    check_node_errors,
    check_observed,
    check_owners,
    check_route_errors,
    check_routes,
    wrong_with_seen,
)
from pileus.cloud.middleware.calls import Call, wrap
from pileus.cloud.model import Failure, Found, NodeKeys, NodeName, NodeRef, Route, SshKey
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)
T = TypeVar("T")


def guarded(cloud: Cloud, metrics: Metrics) -> Cloud:
    """Errors: `CloudError` and nothing else, also when the provider cancels itself or exits.

    Our own cancellation passes, and so does the user's Ctrl-C.
    """
    guard = _Guard(cloud.name, metrics)
    checked = wrap(cloud, guard)
    owns = cloud.owns
    return replace(
        checked,
        instances=_Instances(checked.instances, guard) if checked.instances else None,
        balancers=_Balancers(checked.balancers, guard) if checked.balancers else None,
        routes=_Routes(checked.routes, guard) if checked.routes else None,
        ssh_keys=_SshKeys(checked.ssh_keys, guard) if checked.ssh_keys else None,
        owns=None if owns is None else partial(guard.owns, owns),
    )


class _Guard:
    def __init__(self, provider: str, metrics: Metrics) -> None:
        self._provider = provider
        self._odd_answers = metrics.cloud_odd_answers
        self._told: set[tuple[str, str]] = set()

    async def __call__(self, call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        try:
            return await proceed()
        except CloudError:
            raise
        except BaseException as error:
            if not is_its_own(error):
                raise
            raise self.translated(call.name, error) from error

    def translated(self, method: str, error: BaseException) -> Unavailable:
        text = f"{type(error).__name__}: {error}"
        where = (method, type(error).__qualname__)
        if where not in self._told:
            self._told.add(where)
            log.exception(  # noqa: LOG004 -- called by those who caught it
                "The cloud provider raised what is no CloudError; this is a bug of the provider",
                error=error,
                provider=self._provider,
                method=method,
            )
        return Unavailable(f'cloud provider "{self._provider}" failed in {method}: {text}')

    def checked(self, method: str, check: Callable[[], Checked[T]]) -> T:
        """The good part of an answer; the odd part is logged and counted."""
        try:
            result = check()
        except Unavailable as error:
            self._tell(method, str(error))
            raise Unavailable(
                f'cloud provider "{self._provider}" answered {method} with {error}'
            ) from None
        for text in result.odd:
            self._tell(method, text)
        return result.answer

    def _tell(self, method: str, text: str) -> None:
        capability, _, name = method.partition(".")
        self._odd_answers.labels(self._provider, capability, name).inc()
        log.warning(
            "The cloud provider gave an odd answer; this is a bug of the provider",
            provider=self._provider,
            method=method,
            odd=text,
        )

    def pure(self, method: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except CloudError:
            raise
        except BaseException as error:
            if not is_its_own(error):
                raise
            raise self.translated(method, error) from error

    def owns(self, function: Callable[[NodeRef], bool | None], node: NodeRef) -> bool | None:
        """Unknown, rather than an error, when the provider cannot say."""
        try:
            verdict = cast("object", self.pure("owns", lambda: function(node)))
        except CloudError:
            return None
        return verdict if isinstance(verdict, bool) else None


@dataclass(frozen=True, slots=True)
class _Instances:
    inner: Instances
    guard: _Guard

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        answer = await self.inner.find(nodes, fresh=fresh)
        return self.guard.checked("instances.find", lambda: check_found(nodes, answer))


@dataclass(frozen=True, slots=True)
class _Balancers:
    inner: Balancers[Any, Any]
    guard: _Guard

    async def owners(self, cluster: str) -> frozenset[Owner]:
        answer = await self.inner.owners(cluster)
        return self.guard.checked("balancers.owners", lambda: check_owners(cluster, answer))

    async def observe(
        self, wishes: Sequence[Wish], *, deep: bool
    ) -> Mapping[Owner, Seen | Failure]:
        answer = await self.inner.observe(wishes, deep=deep)
        return self.guard.checked("balancers.observe", lambda: check_observed(wishes, answer))

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        name = "balancers.changes"
        answer = cast("object", self.guard.pure(name, lambda: self.inner.changes(wish, seen)))
        return self.guard.checked(name, lambda: check_changes(answer))

    async def apply(self, change: Change, seen: Seen) -> Seen:
        after = cast("object", await self.inner.apply(change, seen))
        return self.guard.checked("balancers.apply", lambda: _checked_seen(after))

    def lock_key(self, wish: Wish) -> str:
        return self.guard.pure("balancers.lock_key", lambda: self.inner.lock_key(wish))


@dataclass(frozen=True, slots=True)
class _Routes:
    inner: Routes
    guard: _Guard

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        answer = await self.inner.list_routes(cluster)
        return self.guard.checked("routes.list_routes", lambda: check_routes(answer))

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        answer = await self.inner.create(cluster, routes)
        return self.guard.checked("routes.create", lambda: check_route_errors(routes, answer))

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        answer = await self.inner.delete(cluster, routes)
        return self.guard.checked("routes.delete", lambda: check_route_errors(routes, answer))


@dataclass(frozen=True, slots=True)
class _SshKeys:
    inner: SshKeys
    guard: _Guard

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        answer = await self.inner.list_keys(cluster, nodes)
        return self.guard.checked("ssh_keys.list_keys", lambda: check_keys(nodes, answer))

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        answer = await self.inner.add(cluster, keys, nodes)
        return self.guard.checked("ssh_keys.add", lambda: check_node_errors(nodes, answer))

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        answer = await self.inner.remove(cluster, keys, nodes)
        return self.guard.checked("ssh_keys.remove", lambda: check_node_errors(nodes, answer))


def _checked_seen(after: object) -> Checked[Seen]:
    if problem := wrong_with_seen(after):
        raise Unavailable(problem)
    return Checked(cast("Seen", after))
