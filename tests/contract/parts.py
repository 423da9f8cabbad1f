"""A cloud with parts (balancer, listeners, members, public address), slow and busy like Octavia,
and a provider for it in the modern shape."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import assert_never

from pileus.cloud.balancer import (
    Balancer,
    BalancerSpec,
    BalancerState,
    Effect,
    Ingress,
    Owner,
    Part,
    Wish,
)
from pileus.cloud.errors import Conflict
from pileus.testing.conformance.harness import Built, Crash

Mark = tuple[str, str]


@dataclass
class Api:
    """The vendor's API. Every creation makes the balancer busy for one look."""

    balancers: dict[str, Mark | None] = field(default_factory=dict)
    listeners: dict[str, tuple[str, int]] = field(default_factory=dict)
    members: set[tuple[str, str]] = field(default_factory=set)
    addresses: dict[str, Mark] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    made: int = 0
    chance: Callable[[], bool] = lambda: False

    def step(self, balancer: str = "") -> None:
        """Where a fault can strike."""
        if balancer in self.busy:
            raise Conflict(f"{balancer} is busy")
        if self.chance():
            raise Crash

    def new(self) -> str:
        self.made += 1
        return f"id{self.made}"

    def drop(self, balancer: str) -> None:
        self.balancers.pop(balancer, None)
        self.listeners = {i: at for i, at in self.listeners.items() if at[0] != balancer}
        self.members = {m for m in self.members if m[0] in self.listeners}

    def listen(self, balancer: str, port: int, members: frozenset[str]) -> None:
        listener = self.new()
        self.listeners[listener] = (balancer, port)
        self.members |= {(listener, name) for name in members}


@dataclass(frozen=True, slots=True)
class Seen:
    owner: Owner
    id: str = ""
    listeners: tuple[tuple[str, int], ...] = ()
    members: frozenset[tuple[str, str]] = frozenset()
    address: str = ""
    balancer: Balancer | None = None


@dataclass(frozen=True, slots=True)
class Create:
    owner: Owner
    ports: frozenset[int]
    members: frozenset[str]
    effect: Effect = Effect.CREATE
    summary: str = "balancer"
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class AddListener:
    port: int
    members: frozenset[str]
    effect: Effect = Effect.CREATE
    summary: str = "listener"
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class RemoveListener:
    id: str
    effect: Effect = Effect.DELETE
    summary: str = "listener"
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class SetMembers:
    listener: str
    members: frozenset[str]
    effect: Effect = Effect.UPDATE
    summary: str = "members"
    part: Part = Part.MEMBERS


@dataclass(frozen=True, slots=True)
class Publish:
    owner: Owner
    effect: Effect = Effect.CREATE
    summary: str = "public address"
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Withdraw:
    address: str
    effect: Effect = Effect.DELETE
    summary: str = "public address"
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Delete:
    effect: Effect = Effect.DELETE
    summary: str = "balancer with all its parts"
    part: Part = Part.WHOLE


Change = Create | AddListener | RemoveListener | SetMembers | Publish | Withdraw | Delete


class PartsBalancers:
    def __init__(self, api: Api) -> None:
        self.api = api

    async def owners(self, cluster: str) -> frozenset[Owner]:
        self.api.step()
        marks = [*self.api.balancers.values(), *self.api.addresses.values()]
        return frozenset(Owner(*mark) for mark in marks if mark and mark[0] == cluster)

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        self.api.step()
        seen = {wish.owner: self.view(wish.owner) for wish in wishes}
        self.api.busy -= {view.id for view in seen.values()}
        return seen

    def is_owners(self, mark: Mark | None, owner: Owner) -> bool:
        return mark == (owner.cluster, owner.uid)

    def view(self, owner: Owner) -> Seen:
        api = self.api
        address = next((a for a, m in api.addresses.items() if self.is_owners(m, owner)), "")
        id_ = next((i for i, m in api.balancers.items() if self.is_owners(m, owner)), "")
        if not id_:
            return Seen(owner, address=address)
        listeners = tuple((i, port) for i, (of, port) in sorted(api.listeners.items()) if of == id_)
        members = frozenset(m for m in api.members if m[0] in dict(listeners))
        state = BalancerState.PENDING if id_ in api.busy else BalancerState.READY
        ingress = (Ingress(ip=address),) if address else ()
        neutral = Balancer(id=id_, state=state, ingress=ingress, members=len(members))
        return Seen(owner, id_, listeners, members, address, neutral)

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if seen.balancer and seen.balancer.state is BalancerState.PENDING:
            return ()
        if wish.spec is None:
            withdraw = (Withdraw(seen.address),) if seen.address else ()
            return (*withdraw, *((Delete(),) if seen.id else ()))
        ports = frozenset(listener.port for listener in wish.spec.listeners)
        members = frozenset(str(node.name) for node in wish.spec.members)
        if not seen.id:
            return (Create(wish.owner, ports, members),)
        return self.mend(ports, members, seen)

    def mend(self, ports: frozenset[int], wanted: frozenset[str], seen: Seen) -> tuple[Change, ...]:
        have = {port: i for i, port in seen.listeners}
        members = {
            i: frozenset(name for at, name in seen.members if at == i) for i, _ in seen.listeners
        }
        return (
            *(AddListener(port, wanted) for port in sorted(ports - have.keys())),
            *(RemoveListener(i) for port, i in sorted(have.items()) if port not in ports),
            *(
                SetMembers(i, wanted)
                for port, i in sorted(have.items())
                if port in ports and members[i] != wanted
            ),
            *(() if seen.address else (Publish(seen.owner),)),
        )

    async def apply(self, change: Change, seen: Seen) -> Seen:
        self.api.step(seen.id)
        self.perform(change, seen)
        self.api.step()  # the answer may get lost after the effect
        return self.view(seen.owner)

    def perform(self, change: Change, seen: Seen) -> None:  # noqa: C901, PLR0912 -- one branch each
        api = self.api
        match change:
            case Create():
                self.create(change)
            case AddListener(port, members):
                if (seen.id, port) not in api.listeners.values():
                    api.listen(seen.id, port, members)
            case RemoveListener(listener):
                api.listeners.pop(listener, None)
                api.members = {m for m in api.members if m[0] != listener}
            case SetMembers(listener, members):
                others = {m for m in api.members if m[0] != listener}
                api.members = others | {(listener, name) for name in members}
            case Publish(owner):
                if not self.view(owner).address:
                    api.addresses[f"ip-{api.new()}"] = (owner.cluster, owner.uid)
            case Withdraw(address):
                api.addresses.pop(address, None)
            case Delete():
                api.drop(seen.id)
            case _:
                assert_never(change)

    def create(self, change: Create) -> None:
        owner = change.owner
        if self.view(owner).id:
            return
        id_ = self.api.new()
        self.api.balancers[id_] = (owner.cluster, owner.uid)  # marked in the same call
        for port in sorted(change.ports):
            self.api.listen(id_, port, change.members)
        self.api.busy.add(id_)

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid


@dataclass
class PartsHarness:
    provider: type[PartsBalancers] = PartsBalancers
    api: Api = field(default_factory=Api)
    finds_leftovers: bool = True

    @asynccontextmanager
    async def connect(self):
        yield self.provider(self.api)

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        return Wish(owner=owner, spec=spec)

    def crash_when(self, chance: Callable[[], bool]) -> None:
        self.api.chance = chance

    def vandalise(self, owner: Owner) -> None:
        mark = (owner.cluster, owner.uid)
        for id_ in [i for i, m in self.api.balancers.items() if m == mark]:
            self.api.drop(id_)

    def built(self) -> Mapping[Owner, Built]:
        api = self.api
        built: dict[Owner, Built] = {}
        for id_, mark in api.balancers.items():
            listeners = {i: port for i, (of, port) in api.listeners.items() if of == id_}
            members = frozenset(name for i, name in api.members if i in listeners)
            owner = Owner(*mark) if mark else Owner("", id_)
            built[owner] = Built(frozenset(listeners.values()), members)
        return built

    def strays(self) -> int:
        """Unmarked balancers, twins of any kind, addresses whose balancer is gone."""
        api = self.api
        unmarked = [mark for mark in api.balancers.values() if mark is None]
        orphans = [m for m in api.addresses.values() if m not in api.balancers.values()]
        kinds = (api.listeners, api.balancers, api.addresses)
        twins = [len(kind) - len(set(kind.values())) for kind in kinds]
        return len(unmarked) + len(orphans) + sum(twins)
