"""The network of namespaces for the data plane: performs plans and creates sockets.

Only one task may call `adapt` at a time.
"""

import asyncio
import errno
import os
import socket
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager

from pileus.cloud.balancer import Transport
from pileus.telemetry.log import Log
from pileus_lab.local.model.state import State
from pileus_lab.local.netns.namespaces import Namespace
from pileus_lab.local.netns.network import LINK, Address, Network, wanted_network
from pileus_lab.local.netns.plan import (
    PEER,
    ROUTER,
    ROUTER_SETUP,
    Join,
    Leave,
    Step,
    after,
    commands,
    plan,
)
from pileus_lab.local.traffic.desired import Place
from pileus_lab.local.traffic.sockets import BACKLOG, bound, unconnected

log = Log(__name__)


class NamespaceWires:
    """A router and the namespaces of instances; see `namespaces`."""

    def __init__(self, router: Namespace) -> None:
        self._router = router
        self._instances: dict[str, Namespace] = {}
        self._present = Network()
        self._refused: dict[Step, str] = {}
        self._working = threading.Lock()
        self._is_closed = False

    async def adapt(self, state: State, now: float) -> bool:
        steps = plan(self._present, wanted_network(state, now))
        return await asyncio.to_thread(self._perform_all, steps) if steps else True

    def towards_instances(self, kind: socket.SocketKind) -> socket.socket:
        return self._router.inside(lambda: unconnected(kind))

    def at_instance(self, place: Place) -> socket.socket:
        """TCP sockets listen on all addresses: routes lead to more than the instance's own."""
        namespace = self._holder(place.address)
        if place.transport is Transport.UDP:
            return namespace.inside(lambda: bound(place))
        return namespace.inside(
            lambda: socket.create_server(
                ("::", place.port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        )

    def close(self) -> None:
        """Closes all namespaces, after a step that is in progress."""
        with self._working:
            self._is_closed = True
            for namespace in (*self._instances.values(), self._router):
                namespace.close()

    def _holder(self, address: str) -> Namespace:
        for machine, host in self._present.hosts.items():
            if Address(LINK, address) in host.addresses:
                return self._instances[machine]
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))

    def _perform_all(self, steps: tuple[Step, ...]) -> bool:
        refused: dict[Step, str] = {}
        for step in steps:
            with self._working:
                if self._is_closed:
                    return False
                try:
                    self._perform(step)
                except (OSError, subprocess.TimeoutExpired) as error:
                    refused[step] = str(error)
                else:
                    self._present = after(self._present, step)
        for step, problem in refused.items():
            if self._refused.get(step) != problem:
                log.warning("Cannot change the network", step=str(step), problem=problem)
        self._refused = refused
        return not refused

    def _perform(self, step: Step) -> None:
        match step:
            case Join(machine):
                self._instances[machine] = Namespace()
                try:
                    self._run(step, self._instances[machine])
                except BaseException:
                    self._instances.pop(machine).close()  # its link goes with it
                    raise
            case Leave(machine):
                self._run(step)
                self._instances.pop(machine).close()
            case _:
                self._run(step)

    def _run(self, step: Step, joining: Namespace | None = None) -> None:
        shown = (joining.descriptor,) if joining else ()
        for batch in commands(step):
            where = self._router if batch.where == ROUTER else self._instances[batch.where]
            path = f"/proc/self/fd/{joining.descriptor}" if joining else PEER
            where.configure([line.replace(PEER, path) for line in batch.lines], shown=shown)


@contextmanager
def namespaces() -> Generator[NamespaceWires]:
    """Yields a new network while the block lasts. Raises `OSError`."""
    router = Namespace()
    wires = NamespaceWires(router)
    try:
        router.configure(ROUTER_SETUP)
        router.forward()
        yield wires
    finally:
        wires.close()
