"""A cloud with parts (balancer, listeners, members, public address), slow and busy like Octavia,
and a provider for it in the modern shape.

Its stamp is a step of its own, offered when nothing else is left to do; every other step takes
the stamp away, so that a balancer that is half-way carries none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar, assert_never

from pileus.cloud.balancer import (
    Balancer,
    BalancerSpec,
    BalancerState,
    Effect,
    Ingress,
    Owner,
    Part,
    Wish,
    foreign_refused,
)
from pileus.cloud.errors import Conflict, Misconfigured
from pileus.testing.conformance.harness import CRASH

Mark = tuple[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rules:
    sticky: int | None = None
    sources: frozenset[str] = frozenset()
    families: frozenset[str] = frozenset({"IPv4"})


@dataclass
class Api:
    """The vendor's API. Every creation makes the balancer busy for one look."""

    balancers: dict[str, Mark | None] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    stamps: dict[str, str] = field(default_factory=dict)
    rules: dict[str, Rules] = field(default_factory=dict)
    listeners: dict[str, tuple[str, int]] = field(default_factory=dict)
    members: set[tuple[str, str]] = field(default_factory=set)
    addresses: dict[str, Mark] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    """Names of machines that are deleted: the API leaves them out of members."""
    stopped: set[str] = field(default_factory=set)
    """Names of machines that are stopped: some clouds leave them out of members as well."""
    accepts_stopped: bool = True
    made: int = 0
    chance: Callable[[], bool] = lambda: False
    error: BaseException = CRASH
    overlooks: Callable[[], bool] = lambda: False

    def listed(self, facts: Mapping[str, T]) -> Mapping[str, T]:
        """Returns what a list shows, which may be empty by mistake."""
        return {} if self.overlooks() else facts

    def step(self, balancer: str = "") -> None:
        """Where a fault can strike."""
        if balancer in self.busy:
            raise Conflict(f"{balancer} is busy")
        if self.chance():
            raise self.error

    def new(self) -> str:
        self.made += 1
        return f"id{self.made}"

    def drop(self, balancer: str) -> None:
        for facts in (self.balancers, self.names, self.stamps, self.rules):
            facts.pop(balancer, None)
        self.listeners = {i: at for i, at in self.listeners.items() if at[0] != balancer}
        self.members = {m for m in self.members if m[0] in self.listeners}

    def listen(self, balancer: str, port: int, members: frozenset[str]) -> None:
        listener = self.new()
        self.listeners[listener] = (balancer, port)
        self.join(listener, members)

    def join(self, listener: str, members: frozenset[str]) -> None:
        refused = self.deleted if self.accepts_stopped else self.deleted | self.stopped
        self.members |= {(listener, name) for name in members - refused}


@dataclass(frozen=True, slots=True)
class Seen:
    owner: Owner
    id: str = ""
    listeners: tuple[tuple[str, int], ...] = ()
    members: frozenset[tuple[str, str]] = frozenset()
    address: str = ""
    balancer: Balancer | None = None
    rules: Rules = Rules()
    stamp: str = ""
    is_shallow: bool = False
    named: "Seen | None" = None
    """The one that the wish wants to adopt, while the owner has none."""
    mark: Mark | None = None
    deleted: frozenset[str] = frozenset()
    """Machines that cannot be members, whatever the spec says."""


@dataclass(frozen=True, slots=True)
class Create:
    owner: Owner
    name: str
    ports: frozenset[int]
    members: frozenset[str]
    rules: Rules
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


@dataclass(frozen=True, slots=True)
class SetRules:
    rules: Rules
    effect: Effect = Effect.UPDATE
    summary: str = "affinity and source ranges"
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Claim:
    id: str
    owner: Owner
    was: Mark | None
    effect: Effect = Effect.UPDATE
    summary: str = "mark"
    part: Part = Part.WHOLE


@dataclass(frozen=True, slots=True)
class Stamp:
    fingerprint: str
    effect: Effect = Effect.UPDATE
    summary: str = "stamp"
    part: Part = Part.RECORD


Alteration = AddListener | RemoveListener | SetMembers | SetRules
Change = Create | Alteration | Claim | Stamp | Publish | Withdraw | Delete


class PartsBalancers:
    def __init__(self, api: Api) -> None:
        self.api = api

    async def owners(self, cluster: str) -> frozenset[Owner]:
        self.api.step()
        marks = [*self.api.balancers.values(), *self.api.addresses.values()]
        return frozenset(Owner(*mark) for mark in marks if mark and mark[0] == cluster)

    async def observe(self, wishes: Sequence[Wish], *, deep: bool) -> Mapping[Owner, Seen]:
        self.api.step()
        seen = {wish.owner: self.look(wish, deep=deep) for wish in wishes}
        self.api.busy -= {view.id for view in seen.values()}
        return seen

    def look(self, wish: Wish, *, deep: bool) -> Seen:
        seen = self.view(wish.owner)
        if seen.id and seen.stamp == wish.fingerprint and not deep:
            return replace(seen, listeners=(), members=frozenset(), rules=Rules(), is_shallow=True)
        if not seen.id and wish.adopts in self.api.balancers:
            named = self.parts(wish.owner, wish.adopts, seen.address)
            return replace(seen, named=named, balancer=named.balancer)
        return seen

    def is_owners(self, mark: Mark | None, owner: Owner) -> bool:
        return mark == (owner.cluster, owner.uid)

    def view(self, owner: Owner) -> Seen:
        api = self.api
        addresses, balancers = api.listed(api.addresses), api.listed(api.balancers)
        address = next((a for a, m in addresses.items() if self.is_owners(m, owner)), "")
        id_ = next((i for i, m in balancers.items() if self.is_owners(m, owner)), "")
        return self.parts(owner, id_, address) if id_ else Seen(owner, address=address)

    def parts(self, owner: Owner, id_: str, address: str) -> Seen:
        api = self.api
        listeners = tuple((i, port) for i, (of, port) in sorted(api.listeners.items()) if of == id_)
        members = frozenset(m for m in api.members if m[0] in dict(listeners))
        state = BalancerState.PENDING if id_ in api.busy else BalancerState.READY
        ingress = (Ingress(hostname=f"{address}.example"),) if address else ()
        mark = api.balancers[id_]
        return Seen(
            owner,
            id_,
            listeners,
            members,
            address,
            Balancer(
                id=id_,
                state=state,
                ingress=ingress,
                members=len(members),
                owner=Owner(*mark) if mark else None,
            ),
            rules=api.rules[id_],
            stamp=api.stamps.get(id_, ""),
            mark=mark,
            deleted=frozenset(api.deleted),
        )

    def changes(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if seen.balancer and seen.balancer.state is BalancerState.PENDING:
            return ()
        return self.decided(wish, seen)

    def decided(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        if wish.spec is None:
            withdraw = (Withdraw(seen.address),) if seen.address else ()
            return (*withdraw, *((Delete(),) if seen.id else ()))
        self.check_address(wish.spec.requested_address)
        if seen.is_shallow:
            return ()
        wanted = wanted_of(wish, wish.spec)
        if seen.id:
            return self.mend(wanted, seen) or self.stamp(wish, seen)
        return self.adopt(wish, seen.named) if wish.adopts else (wanted,)

    def check_address(self, requested: str) -> None:
        if requested:
            raise Misconfigured(f"loadBalancerIP {requested}: this cloud chooses addresses")

    def stamp(self, wish: Wish, seen: Seen) -> tuple[Change, ...]:
        return () if seen.stamp == wish.fingerprint else (Stamp(wish.fingerprint),)

    def adopt(self, wish: Wish, named: Seen | None) -> tuple[Change, ...]:
        if not wish.may_use_foreign:
            raise foreign_refused(wish)
        if named is None:
            raise Misconfigured(f"there is no balancer {wish.adopts} to adopt")
        if named.mark is not None and named.mark[0] != wish.owner.cluster:
            raise Misconfigured(f"balancer {named.id} belongs to {named.mark}")
        assert wish.spec
        mending = self.mend(wanted_of(wish, wish.spec), named)
        return Claim(named.id, wish.owner, named.mark), *mending

    def mend(self, wanted: Create, seen: Seen) -> tuple[Change, ...]:
        have = {port: i for i, port in seen.listeners}
        members = self.members_of(seen)
        return (
            *(
                AddListener(port, wanted.members, summary=f"listener {port}")
                for port in sorted(wanted.ports - have.keys())
            ),
            *(
                RemoveListener(i, summary=f"listener {port}")
                for port, i in sorted(have.items())
                if port not in wanted.ports
            ),
            *(
                SetMembers(i, wanted.members, summary=f"members of listener {port}")
                for port, i in sorted(have.items())
                if port in wanted.ports and members[i] != self.possible(wanted, seen)
            ),
            *(() if seen.rules == wanted.rules else (SetRules(wanted.rules),)),
            *(() if seen.address else (Publish(seen.owner),)),
        )

    def members_of(self, seen: Seen) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {i: set() for i, _ in seen.listeners}
        for listener, name in seen.members:
            found[listener].add(name)
        return {listener: frozenset(names) for listener, names in found.items()}

    def possible(self, wanted: Create, seen: Seen) -> frozenset[str]:
        return wanted.members - seen.deleted

    async def apply(self, change: Change, seen: Seen) -> Seen:
        self.api.step(seen.id)
        self.perform(change, seen)
        self.api.step()  # the answer may get lost after the effect
        after = self.view(seen.owner)
        return after if after.id else replace(after, named=seen.named, balancer=seen.balancer)

    def perform(self, change: Change, seen: Seen) -> None:
        api = self.api
        match change:
            case Create():
                self.create(change)
            case Claim():
                self.claim(change)
            case Stamp(fingerprint):
                api.stamps[seen.id] = fingerprint
            case Publish(owner):
                if not self.view(owner).address:
                    api.addresses[f"ip-{api.new()}"] = (owner.cluster, owner.uid)
            case Withdraw(address):
                api.addresses.pop(address, None)
            case Delete():
                api.drop(seen.id)
            case _:
                self.unstamp(seen.id)
                self.alter(change, seen)

    def alter(self, change: Alteration, seen: Seen) -> None:
        api = self.api
        match change:
            case AddListener(port, members):
                if (seen.id, port) not in api.listeners.values():
                    api.listen(seen.id, port, members)
            case RemoveListener(listener):
                api.listeners.pop(listener, None)
                api.members = {m for m in api.members if m[0] != listener}
            case SetMembers(listener, members):
                api.join(listener, members)
                api.members = {m for m in api.members if m[0] != listener or m[1] in members}
            case SetRules(rules):
                api.rules[seen.id] = rules
            case _:
                assert_never(change)

    def unstamp(self, id_: str) -> None:
        self.api.stamps.pop(id_, None)

    def claim(self, change: Claim) -> None:
        mine = (change.owner.cluster, change.owner.uid)
        if self.api.balancers.get(change.id) not in (change.was, mine):
            raise Conflict(f"{change.id} was claimed by someone else")
        self.unstamp(change.id)
        self.api.balancers[change.id] = mine

    def create(self, change: Create) -> None:
        owner = change.owner
        if self.view(owner).id:
            return
        id_ = self.api.new()
        self.api.balancers[id_] = (owner.cluster, owner.uid)  # marked in the same call
        self.api.names[id_], self.api.rules[id_] = change.name, change.rules
        for port in sorted(change.ports):
            self.api.listen(id_, port, change.members)
        self.api.busy.add(id_)

    def lock_key(self, wish: Wish) -> str:
        return wish.owner.uid


def wanted_of(wish: Wish, spec: BalancerSpec) -> Create:
    return Create(
        wish.owner,
        wish.name,
        frozenset(listener.port for listener in spec.listeners),
        frozenset(str(node.name) for node in spec.members),
        Rules(spec.sticky_seconds, spec.source_ranges, frozenset(spec.families)),
    )
