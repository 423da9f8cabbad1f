"""What the laws need of a provider under test: a cloud that they can fill, break and inspect.

A harness stands for one cloud account. Every `connect()` is a new process that knows nothing of the
ones before. What a harness reports (`built`, `accepted`, …) comes from the cloud itself and not
from the provider, so that the provider cannot hide its own mistakes.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import field
from typing import Any, Protocol, TypeVar

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import Balancers, BalancerSpec, Owner, Wish
from pileus.cloud.interface import Instances, Routes, SshKeys
from pileus.cloud.model import InstanceId, NodeName, NodeRef, SshKey
from pileus.cloud.volume import VolumeId, Volumes
from pileus.dataclass import dataclass

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
ABLE = Abilities()


class Crash(BaseException):
    """The process dies here. Nothing catches it."""


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
    """A cloud with machines."""

    def connect(self) -> AbstractAsyncContextManager[Instances]: ...

    def add(self, name: str) -> NodeRef:
        """Start a machine. Returns its node as the cluster knows it before initialization."""
        ...

    def remove(self, name: str) -> None:
        """Delete the machine."""
        ...

    def stop(self, name: str) -> None:
        """Stop the machine; it continues to exist."""
        ...

    def broken(self) -> AbstractContextManager[None]:
        """The cloud fails every request while the context is open."""
        ...


@dataclass(frozen=True, slots=True)
class Built:
    """A load balancer as it exists in the cloud."""

    ports: frozenset[int]
    members: frozenset[str]
    """Names of nodes."""
    sticky_seconds: int | None = None
    """On a cloud with `Affinity.ON_OFF`: `DEFAULT_AFFINITY_SECONDS` if affinity is on."""
    source_ranges: frozenset[str] = frozenset()
    families: frozenset[str] | None = field(default=None, compare=False)
    """IP families in which clients reach it; None: this cloud does not report them, and they are
    not checked."""
    address: str = field(default="", compare=False)
    """What another Service would write into `spec.loadBalancerIP` to get its address: the public
    address, or the host name. Empty: there is none, and no law asks for it."""


class Countdown:
    """Answers True once, after so many calls that it answers with False."""

    def __init__(self, count: int) -> None:
        self._left = count

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == -1


class BalancersHarness(Protocol):
    """A cloud with load balancers."""

    abilities: Abilities = ABLE
    """What the provider declares in `Cloud.abilities`. The laws hold it to that."""

    finds_leftovers: bool
    """Whether `owners()` finds what earlier processes created. Ported providers cannot."""

    keeps_fingerprints: bool
    """Whether a new process sees in a quick check that a load balancer is up to date."""

    def connect(self) -> AbstractAsyncContextManager[Balancers[Any, Any]]: ...

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        """Returns the wish, after preparing everything that the provider expects beside it."""
        ...

    def member(self, name: str) -> NodeRef:
        """Returns a node that can be a member, always the same for one name.

        Starts its machine if the cloud knows members by machine. With a provider ID, if nodes of
        this cloud have one.
        """
        return NodeRef(name=NodeName(name))

    def delete_machine(self, name: str) -> bool:
        """Delete the machine of a member. False: this cloud does not know members by machine."""
        del name
        return False

    def stop_machine(self, name: str) -> bool:
        """Stop the machine of a member. False: this cloud does not know members by machine."""
        del name
        return False

    def start_machine(self, name: str) -> None:
        """Start the machine of a member again, after `stop_machine`."""
        del name

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        """Call `chance` at each request, before and after its effect; raise `error` if True."""
        ...

    def overlook_when(self, chance: Callable[[], bool]) -> bool:
        """Call `chance` for each list that is read; answer with an empty list if True.

        False: this harness cannot.
        """
        del chance
        return False

    def vandalise(self, owner: Owner) -> None:
        """Delete the owner's load balancer manually, as far as a user can; parts may remain."""
        ...

    def tamper(self, owner: Owner) -> bool:
        """Change a part of the owner's load balancer manually. False: no part can be changed."""
        ...

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        """Create a load balancer of that name on port 1, with that mark or without one.

        Returns its ID; None if none can be created that way.
        """
        ...

    def unmark(self, owner: Owner) -> bool:
        """Remove every mark and record of ours from the owner's load balancer and its parts.

        It is then as another manager left it. False: this harness cannot.
        """
        del owner
        return False

    def built(self) -> Mapping[Owner, Built]:
        """Returns every load balancer of every cluster; those without a mark have cluster ""."""
        ...

    def strays(self) -> int:
        """Returns how many objects have no owner, or exist twice."""
        ...


class RoutesHarness(Protocol):
    """A cloud with routes. Nodes `n1` and `n2` have machines."""

    abilities: Abilities = ABLE
    """What the provider declares in `Cloud.abilities`."""

    def connect(self) -> AbstractAsyncContextManager[Routes]: ...

    def node(self, name: str) -> NodeRef:
        """Returns the node `n1` or `n2` as the cluster knows it."""
        return NodeRef(name=NodeName(name))

    def add_foreign(self, destination: str) -> None:
        """Create a route that belongs to someone else."""
        ...

    def reject(self, destination: str) -> None:
        """Make the cloud refuse to create or delete the route to this destination from now on."""
        ...

    def remove_from_one_table(self, destination: str) -> bool:
        """Remove the route from one of several tables. False: this cloud has only one table."""
        del destination
        return False


class SshKeysHarness(Protocol):
    """A cloud with machines that accept SSH keys."""

    can_tell: bool
    """Whether keys can be listed and removed. Ported providers can only add them."""

    def connect(self) -> AbstractAsyncContextManager[SshKeys]: ...

    def add_machine(self, name: str) -> NodeRef:
        """Start a machine. Returns its node."""
        ...

    def add_by_hand(self, key: SshKey) -> None:
        """Let a user log in on all machines, without the mark of any cluster."""
        ...

    def accepted(self, name: str) -> frozenset[SshKey]:
        """Returns the keys that a machine accepts."""
        ...


class VolumesHarness(Protocol):
    """A cloud with volumes."""

    abilities: Abilities = ABLE
    """What the provider declares in `Cloud.abilities`."""

    other_topology: Mapping[str, str] | None = None
    """Labels of a place where volumes can be created that is not the usual one; None: none is."""

    countable: int = 32
    """Limits on attachments up to this number are tried out."""

    spacious: int = 10_000
    """Volumes up to this size in GiB are created, to try out how much space is left."""

    def connect(self) -> AbstractAsyncContextManager[Volumes]: ...

    def add_machine(self, name: str) -> InstanceId:
        """Start a machine to which volumes in the usual place can be attached, at least three."""
        ...

    def add_unmarked(self, name: str) -> VolumeId | None:
        """Create a volume of that name in the usual place manually, without a mark.

        None: not possible in this cloud.
        """
        ...

    def built(self) -> Mapping[VolumeId, Owner | None]:
        """Returns the marks of all volumes in the account."""
        ...

    def snapshots(self) -> int:
        """Returns the number of all snapshots in the account."""
        ...

    def broken(self) -> AbstractContextManager[None]:
        """The cloud fails every request while the context is open."""
        ...


def run(law: Coroutine[Any, Any, T], loop_factory: LoopFactory) -> T:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(law)
