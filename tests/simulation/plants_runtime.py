"""Defects of what all controllers stand on: leases, queues, informers, retries, events."""

from collections.abc import Iterable
from math import inf
from typing import Any

from pileus.app import manager, startup
from pileus.cloud.middleware.budget import Budget
from pileus.controllers.service import reconciler
from pileus.controllers.service.reconciler import ServiceReconciler
from pileus.fence import Fenced
from pileus.kube import client, informer
from pileus.kube.store import Change, Deleted
from pileus.runtime.backoff import RetryPolicy
from pileus.runtime.controller import Controller
from pileus.runtime.events import EventRecorder
from pileus.runtime.leadership import LeaseFence
from pileus.runtime.lease import Observed
from pileus.runtime.queue import WorkQueue
from pileus.runtime.reconcile import Result, again_in, refresh_in
from pileus.settings.config import Config
from pileus.telemetry.log import Log
from pileus_lab.simulation.setup import SECRET
from tests.simulation.planting import Patch


def no_fence() -> Iterable[Patch]:
    yield LeaseFence, "check", lambda self: None


def impatient() -> Iterable[Patch]:
    yield Observed, "is_free", lambda self, identity, now: True


def deaf_queue() -> Iterable[Patch]:
    sound, calls = WorkQueue[Any].add, [0]

    def add(self: WorkQueue[Any], *args: Any) -> None:
        calls[0] += 1
        if calls[0] % 4:
            sound(self, *args)

    yield WorkQueue, "add", add


def no_retries() -> Iterable[Patch]:
    yield Controller, "_retry", lambda self, key, error, record: None


def no_deletions_after_a_list() -> Iterable[Patch]:
    sound = informer.difference

    def difference(*args: Any, **options: Any) -> list[Change[Any]]:
        return [one for one in sound(*args, **options) if not isinstance(one, Deleted)]

    yield informer, "difference", difference


def endless_patience() -> Iterable[Patch]:
    """A watch from which nothing comes any more is listened to for ever."""
    yield client, "DEAD_AFTER", inf


def loose_talk() -> Iterable[Patch]:
    sound = EventRecorder.record

    def record(self: EventRecorder, about: Any, kind: str, reason: str, message: str) -> None:
        sound(self, about, kind, reason, f"{message} ({SECRET})")

    yield EventRecorder, "record", record


def a_loose_log() -> Iterable[Patch]:
    """The log says with which token the cloud is opened."""
    sound, log = startup.connected, Log("pileus.app.startup")

    def connected(name: str, connect: Any, given: Any) -> Any:
        log.info("Opening the cloud", account=given.environ["CLOUD_TOKEN"])
        return sound(name, connect, given)

    yield startup, "connected", connected


def a_loose_label() -> Iterable[Patch]:
    """A metric has a label for the account, and the token is what it is known by."""
    sound = startup.make_context

    def make_context(config: Any, world: Any, clients: Any, cloud: Any, fence: Any) -> Any:
        clients.metrics.route_syncs.labels(world.environ["CLOUD_TOKEN"], "").inc()
        return sound(config, world, clients, cloud, fence)

    yield startup, "make_context", make_context
    yield manager, "make_context", make_context


def a_loose_configuration() -> Iterable[Patch]:
    sound = Config.configz

    def loose(config: Config) -> dict[str, Any]:
        return {**sound(config), "CloudToken": SECRET}

    yield Config, "configz", loose


def ageless_fence() -> Iterable[Patch]:
    """Only a lease that is seen lost closes the fence, not one that was not renewed in time."""

    def check(self: LeaseFence) -> None:
        if self._sent is None:
            raise Fenced("not held")

    yield LeaseFence, "check", check


def no_heir() -> Iterable[Patch]:
    yield Observed, "is_free", lambda self, identity, now: not self.spec.holder_identity


def hasty_retries() -> Iterable[Patch]:
    yield RetryPolicy, "delay", lambda self, failures, error, now: 0.5


def impatient_budget() -> Iterable[Patch]:
    yield Budget, "_pause", lambda self, now, seconds: None
    yield Budget, "_heed", lambda self, error, now, refusals: None


def endless_looks() -> Iterable[Patch]:
    """A Service that is as it should be is looked at again a moment later."""
    yield reconciler, "refresh_in", lambda seconds: again_in(0.3)


class Wish(str):
    """A key that equals no other wish for the same."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other if isinstance(other, Wish) else str.__eq__(self, other)


def crowded_queue() -> Iterable[Patch]:
    """A key waits once for each time that it was added."""
    sound = WorkQueue[Any].add

    def add(self: WorkQueue[Any], key: Any, *args: Any) -> None:
        sound(self, Wish(key), *args)

    yield WorkQueue, "add", add


def changes_end_pauses() -> Iterable[Patch]:
    """A key that is added is passed over at once, whatever the API server has asked for."""
    yield WorkQueue, "pause", lambda self, key, seconds: None


def daily_visits() -> Iterable[Patch]:
    """What is known no more is checked again a day later."""
    sound = ServiceReconciler._reconcile

    async def reconcile(self: ServiceReconciler, key: str) -> Result:
        is_known = self._observe(key) is not None
        result = await sound(self, key)
        return result if is_known else refresh_in(86400)

    yield ServiceReconciler, "_reconcile", reconcile


def never_done() -> Iterable[Patch]:
    """What is done is planned once more, also if it is gone."""
    sound = WorkQueue[Any].done

    def done(self: WorkQueue[Any], key: Any) -> None:
        sound(self, key)
        self.add_after(key, 120)

    yield WorkQueue, "done", done
