"""What the laws need of a provider under test: a cloud that they may furnish, break and inspect."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pileus.cloud.balancer import Balancers, BalancerSpec, Owner, Wish
from pileus.cloud.interface import Instances, Routes, SshKeys
from pileus.cloud.model import NodeRef, SshKey

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Crash(BaseException):
    """The process dies here; nothing catches it."""


CRASH = Crash()


@contextmanager
def raising(expected: type[Exception]) -> Generator[None]:
    """Checks that its block raises such an error."""
    try:
        yield
    except expected:
        return
    raise AssertionError(f"{expected.__name__} was not raised")


class InstancesHarness(Protocol):
    """One cloud with machines; every `connect` is a new process that looks at it."""

    def connect(self) -> AbstractAsyncContextManager[Instances]: ...

    def add(self, name: str) -> NodeRef:
        """Start a machine, and say how the cluster would know it before it is initialized."""
        ...

    def remove(self, name: str) -> None: ...
    def stop(self, name: str) -> None: ...

    def broken(self) -> AbstractContextManager[None]:
        """Inside of it the cloud fails every request."""
        ...


@dataclass(frozen=True, slots=True)
class Built:
    """A balancer as it stands in the cloud, told by the cloud itself and not by the provider."""

    ports: frozenset[int]
    members: frozenset[str]
    sticky_seconds: int | None = None
    source_ranges: frozenset[str] = frozenset()


class Countdown:
    """Says yes once, at the question after so many others."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == -1


class BalancersHarness(Protocol):
    """One cloud with balancers; every `connect` is a new process without any memory."""

    finds_leftovers: bool
    """Whether `owners()` can find what was built before this process. Ported ones cannot."""

    keeps_fingerprints: bool
    """Whether a new process can tell by a shallow look that a balancer is as wished."""

    def connect(self) -> AbstractAsyncContextManager[Balancers[Any, Any]]: ...

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        """The wish, with everything prepared that the provider expects beside it."""
        ...

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        """Ask at each request, before and after its effect; raise the error when it says so."""
        ...

    def vandalise(self, owner: Owner) -> None:
        """Delete the owner's balancer by hand, as far as a user could; a part may stay."""
        ...

    def tamper(self, owner: Owner) -> bool:
        """Change a part of the owner's balancer by hand; False: of these, no part can be seen."""
        ...

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        """Make a balancer of that name on port 1, with that mark or by hand; its id.

        None: of these, none can be made that way.
        """
        ...

    def built(self) -> Mapping[Owner, Built]:
        """Everything that stands, of every cluster; what is made by hand, of cluster ""."""
        ...

    def strays(self) -> int:
        """Things in the cloud that no owner could be found for, or that are there twice."""
        ...


class RoutesHarness(Protocol):
    """One cloud with routes."""

    def connect(self) -> AbstractAsyncContextManager[Routes]: ...
    def add_foreign(self, destination: str) -> None:
        """A route of someone else's."""
        ...

    def reject(self, destination: str) -> None:
        """From now on the cloud refuses to create or delete this one."""
        ...


class SshKeysHarness(Protocol):
    """One cloud with machines that accept SSH keys."""

    can_tell: bool
    """Whether it can list and remove keys. Ported providers can only add them."""

    def connect(self) -> AbstractAsyncContextManager[SshKeys]: ...
    def add_machine(self, name: str) -> NodeRef: ...
    def add_by_hand(self, key: SshKey) -> None:
        """Someone else lets a user log in on all machines."""
        ...

    def accepted(self, name: str) -> frozenset[SshKey]:
        """The keys that a machine accepts, told by the cloud itself and not by the provider."""
        ...


def run(law: Coroutine[Any, Any, T], loop_factory: LoopFactory) -> T:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(law)
