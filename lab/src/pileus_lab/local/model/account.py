"""Operations on the account: SSH keys, clusters, quota, faults, settings."""

import re
from dataclasses import replace
from typing import ClassVar

from msgspec.structs import asdict
from msgspec.structs import replace as changed

from pileus.cloud.errors import NotFound, Rejected
from pileus.suggest import did_you_mean
from pileus_lab.local.model.records import (
    Cluster,
    Fault,
    FaultKind,
    Key,
    Page,
    Quota,
    Record,
)
from pileus_lab.local.model.state import (
    Moment,
    Request,
    State,
    hold_quota,
    identified,
    with_item,
    without,
)

PUBLIC_KEY = re.compile(r"(ssh-|ecdsa-|sk-)[a-z0-9@.-]+ [A-Za-z0-9+/]{16,}={0,3}( .*)?")
ERRORS = ("Unavailable", "Conflict", "NotFound", "Unauthorized", "QuotaExceeded", "Rejected")
"""Errors that a fault of kind `error` can raise."""


class AddKey(Request, frozen=True):
    """Adds an SSH key of a user to every instance.

    An existing key stays unchanged, with its comment.
    """

    NAME: ClassVar[str] = "keys.add"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Key

    user: str
    public_key: str

    def step(self, state: State, moment: Moment) -> tuple[State, Key]:
        text = " ".join(self.public_key.split())
        if not self.user or not PUBLIC_KEY.fullmatch(text):
            raise Rejected("a key needs a user and an OpenSSH public key")
        key = Key(user=self.user, public_key=text)
        name = _key_name(key)
        if name in state.keys:
            return state, state.keys[name]
        hold_quota("keys", len(state.keys) + 1, state.quota.keys)
        return replace(state, keys=with_item(state.keys, name, key)), key


class RemoveKey(Request, frozen=True):
    NAME: ClassVar[str] = "keys.remove"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    user: str
    public_key: str
    only_comment: str = ""
    """If set: a key with another comment belongs to someone else and stays."""

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        name = _key_name(Key(user=self.user, public_key=self.public_key))
        found = state.keys.get(name)
        comment = "" if found is None else " ".join(found.public_key.split()[2:])
        if self.only_comment and comment != self.only_comment:
            return state, None
        return replace(state, keys=without(state.keys, name)), None


def _key_name(key: Key) -> str:
    return f"{key.user} {' '.join(key.public_key.split()[:2])}"


class ListKeys(Request, frozen=True):
    NAME: ClassVar[str] = "keys.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Key]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Key]]:
        return state, Page(items=tuple(state.keys.values()))


class PutCluster(Request, frozen=True):
    """Registers a cluster with its name and the address of its control plane."""

    NAME: ClassVar[str] = "clusters.put"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Cluster

    name: str
    master: str

    def step(self, state: State, moment: Moment) -> tuple[State, Cluster]:
        cluster = Cluster(name=self.name, master=self.master)
        return replace(state, clusters=with_item(state.clusters, self.name, cluster)), cluster


class DeleteCluster(Request, frozen=True):
    NAME: ClassVar[str] = "clusters.delete"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    name: str

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        return replace(state, clusters=without(state.clusters, self.name)), None


class ListClusters(Request, frozen=True):
    NAME: ClassVar[str] = "clusters.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Cluster]

    fresh: bool = True

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Cluster]]:
        return state, Page(items=tuple(state.clusters.values()))


class Usage(Record, frozen=True):
    name: str
    used: int
    limit: int


class ShowQuota(Request, frozen=True):
    NAME: ClassVar[str] = "quota.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Usage]

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Usage]]:
        used = usage(state)
        limits = asdict(state.quota)
        return state, Page(
            items=tuple(Usage(name=name, used=used[name], limit=limits[name]) for name in limits)
        )


class SetQuota(Request, frozen=True):
    """Changes limits. A limit below the current usage prevents new objects and deletes none."""

    NAME: ClassVar[str] = "quota.set"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Quota

    limits: dict[str, int]

    def step(self, state: State, moment: Moment) -> tuple[State, Quota]:
        known = asdict(state.quota)
        for name, limit in self.limits.items():
            if name not in known:
                raise Rejected(
                    f'unknown quota "{name}" (known: {", ".join(known)}){did_you_mean(name, known)}'
                )
            if limit < 0:
                raise Rejected(f"quota {name} cannot be {limit}")
        quota = changed(state.quota, **self.limits)
        return replace(state, quota=quota), quota


def usage(state: State) -> dict[str, int]:
    return {
        "instances": len(state.machines),
        "balancers": len(state.balancers),
        "listeners": sum(len(one.ports) for one in state.balancers.values()),
        "routes": len(state.routes),
        "volumes": len(state.volumes),
        "volume_gib": sum(one.size_gib for one in state.volumes.values()),
        "snapshots": len(state.snapshots),
        "keys": len(state.keys),
    }


class AddFault(Request, frozen=True):
    """Adds a fault."""

    NAME: ClassVar[str] = "fault.add"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[type] = Fault

    kind: FaultKind
    where: str = "*"
    rate: float = 1.0
    times: int | None = None
    seconds: float = 1.0
    error: str = "Unavailable"
    share: float = 0.5

    def step(self, state: State, moment: Moment) -> tuple[State, Fault]:
        if self.error not in ERRORS:
            known = ", ".join(ERRORS)
            hint = did_you_mean(self.error, ERRORS)
            raise Rejected(f'unknown error "{self.error}" (known: {known}){hint}')
        if not (0 <= self.rate <= 1 and 0 <= self.share <= 1):
            raise Rejected("rate and share are probabilities, from 0 to 1")
        if self.seconds < 0 or (self.times is not None and self.times < 1):
            raise Rejected("seconds cannot be negative, and times is at least 1")
        state, identity = identified(state, "fault", moment)
        fault = Fault(id=identity, **asdict(self))
        return replace(state, faults=with_item(state.faults, identity, fault)), fault


class RemoveFault(Request, frozen=True):
    NAME: ClassVar[str] = "fault.remove"
    WRITES: ClassVar[bool] = True
    ANSWER: ClassVar[object] = None

    fault: str
    """ID of the fault, or `all`."""

    def step(self, state: State, moment: Moment) -> tuple[State, None]:
        if self.fault == "all":
            return replace(state, faults={}), None
        if self.fault not in state.faults:
            raise NotFound(f'no fault "{self.fault}"{did_you_mean(self.fault, state.faults)}')
        return replace(state, faults=without(state.faults, self.fault)), None


class ListFaults(Request, frozen=True):
    NAME: ClassVar[str] = "fault.list"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[object] = Page[Fault]

    def step(self, state: State, moment: Moment) -> tuple[State, Page[Fault]]:
        return state, Page(items=tuple(state.faults.values()))


class Description(Record, frozen=True):
    region: str
    zones: tuple[str, ...]


class Describe(Request, frozen=True):
    """Returns the settings of the cloud; also a check that it answers."""

    NAME: ClassVar[str] = "cloud.describe"
    WRITES: ClassVar[bool] = False
    ANSWER: ClassVar[type] = Description

    def step(self, state: State, moment: Moment) -> tuple[State, Description]:
        settings = moment.settings
        return state, Description(region=settings.region, zones=settings.zones)
