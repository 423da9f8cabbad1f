"""The cloud with parts as the laws furnish, break and inspect it."""

from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pileus.cloud.abilities import Abilities
from pileus.cloud.balancer import BalancerSpec, Owner, Wish
from pileus.cloud.model import NodeName, NodeRef
from pileus.testing.conformance.harness import CRASH, BalancersHarness, Built
from tests.contract.parts import Api, PartsBalancers, Rules


@dataclass
class PartsHarness(BalancersHarness):
    provider: type[PartsBalancers] = PartsBalancers
    api: Api = field(default_factory=Api)
    finds_leftovers: bool = True
    keeps_fingerprints: bool = True
    abilities: Abilities = field(default_factory=Abilities)

    @asynccontextmanager
    async def connect(self):
        yield self.provider(self.api)

    def wish(self, owner: Owner, spec: BalancerSpec | None) -> Wish:
        return Wish(owner=owner, spec=spec)

    def member(self, name: str) -> NodeRef:
        return NodeRef(name=NodeName(name), provider_id=f"parts://{name}")

    def delete_machine(self, name: str) -> bool:
        self.api.deleted.add(name)
        self.api.members = {m for m in self.api.members if m[1] != name}
        return True

    def stop_machine(self, name: str) -> bool:
        self.api.stopped.add(name)
        return True

    def start_machine(self, name: str) -> None:
        self.api.stopped.discard(name)

    def crash_when(self, chance: Callable[[], bool], error: BaseException = CRASH) -> None:
        self.api.chance, self.api.error = chance, error

    def overlook_when(self, chance: Callable[[], bool]) -> bool:
        self.api.overlooks = chance
        return True

    def vandalise(self, owner: Owner) -> None:
        mark = (owner.cluster, owner.uid)
        for id_ in [i for i, m in self.api.balancers.items() if m == mark]:
            self.api.drop(id_)

    def tamper(self, owner: Owner) -> bool:
        self.api.members = {m for m in self.api.members if m[1] != "a"}
        (id_,) = (i for i, m in self.api.balancers.items() if m == (owner.cluster, owner.uid))
        self.api.rules[id_] = Rules(sticky=7)
        return True

    def furnish(self, name: str, mark: Owner | None) -> str | None:
        id_ = self.api.new()
        self.api.balancers[id_] = (mark.cluster, mark.uid) if mark else None
        self.api.names[id_], self.api.rules[id_] = name, Rules()
        self.api.listen(id_, 1, frozenset())
        return id_

    def unmark(self, owner: Owner) -> bool:
        mark = (owner.cluster, owner.uid)
        (id_,) = (i for i, m in self.api.balancers.items() if m == mark)
        self.api.balancers[id_] = None
        self.api.stamps.pop(id_, None)
        return True

    def built(self) -> Mapping[Owner, Built]:
        api = self.api
        built: dict[Owner, Built] = {}
        for id_, mark in api.balancers.items():
            listeners = {i: port for i, (of, port) in api.listeners.items() if of == id_}
            members = frozenset(name for i, name in api.members if i in listeners)
            owner = Owner(*mark) if mark else Owner("", id_)
            rules = api.rules[id_]
            built[owner] = Built(
                frozenset(listeners.values()),
                members,
                rules.sticky,
                rules.sources,
                rules.families,
                address=f"{id_}.example",
            )
        return built

    def strays(self) -> int:
        """Unmarked balancers, twins of any kind, addresses whose balancer is gone."""
        api = self.api
        unmarked = [mark for mark in api.balancers.values() if mark is None]
        orphans = [m for m in api.addresses.values() if m not in api.balancers.values()]
        kinds = (api.listeners, api.balancers, api.addresses)
        twins = [len(kind) - len(set(kind.values())) for kind in kinds]
        return len(unmarked) + len(orphans) + sum(twins)
