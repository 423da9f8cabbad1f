"""What all controllers are equipped with, and how one becomes a duty of this process."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from pileus.app.beside import beside
from pileus.app.clients import Rate
from pileus.app.cluster_id import find_cluster_id, read_cluster_id
from pileus.app.controllers import ControllerNames
from pileus.app.work import Duty, Post
from pileus.kube.client import Client
from pileus.objects.preview import Planned, Scope, Trouble
from pileus.runtime.events import EventRecorder

PASS_SECONDS = 30
"""How long a pass may have to wait for the client's rate."""


class Runnable(Protocol):
    """A controller, put together."""

    async def run(self) -> None: ...
    async def preview(self, scope: Scope) -> Sequence[Planned | Trouble]: ...
    def stuck(self, limit: float) -> str | None: ...
    def failing(self) -> str | None: ...


def client_of(post: Post, names: ControllerNames) -> Client:
    """The client with which a controller writes, as long as this process leads."""
    return post.clients.controller(names.identity, fence=post.fence)


def events_of(post: Post, names: ControllerNames, client: Client) -> EventRecorder:
    """The events of a controller; `duty_of` has them written."""
    return EventRecorder(
        names.event_source,
        client,
        clock=post.clock,
        random=post.random,
        metrics=post.metrics,
    )


def identify(post: Post, names: ControllerNames) -> Callable[[], Awaitable[str]]:
    """How a controller finds out the cluster's id, for the marks in the cloud.

    A plan is told at once that it cannot be known; a controller asks until it is.
    """
    main, shared = post.clients.main(names.identity), post.config.shared
    if post.config.dry_run and not shared.cluster_id:
        return lambda: read_cluster_id(main)
    return lambda: find_cluster_id(main, shared.cluster_id)


def affordable(post: Post, workers: int) -> int:
    """With a fixed rate of requests, more passes would only wait until their time is over."""
    rate = Rate.of(post.config.client)
    return workers if rate is None else min(workers, max(1, int(rate.qps * PASS_SECONDS)))


def duty_of(controller: Runnable, events: EventRecorder, *, stuck_after: float) -> Duty:
    """The controller with its events; work in hand for longer than that makes the process ill."""

    async def run() -> None:
        async with beside(events.run()):
            await controller.run()

    return Duty(
        run,
        health=lambda: controller.stuck(stuck_after),
        failing=controller.failing,
        preview=controller.preview,
    )
