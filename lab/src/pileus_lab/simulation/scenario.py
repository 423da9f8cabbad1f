"""Named mixtures of events: how likely each deed and each fault is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pileus_lab.simulation.kinds import (
    SECOND_EDITION,
    THIRD_EDITION,
    DeedKind,
    FaultKind,
    Place,
)
from pileus_lab.simulation.setup import TAKE_OVER, TWO_CLOUDS, VOLUME_NODES, VOLUMES

UNAIDED = ("unaided", "unaided-routes")
"""Names of the setups without repair rounds: manual changes in the cloud are never repaired."""
FIRST_EDITION = (
    "plain",
    "routes",
    "ipam",
    "dual-stack",
    "dual-stack-routes",
    "keys",
    "migration",
    "go-like",
    "cautious",
    "silent",
)
"""Names of the setups of the first edition of the scenarios."""
LIES = frozenset({FaultKind.CLOUD_STALE, FaultKind.CLOUD_EMPTY})
"""Faults in which the cloud shows a false state as true."""
AT_ONCE = 200.0
"""Seconds of the slowest process without faults: a node is silent (40 s) before its machine is
looked up, which is done twice (30 s apart) and every 10 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A mixture. Weights are relative; what is not named does not happen."""

    name: str
    text: str
    deeds: Mapping[DeedKind, int] = field(default_factory=dict[DeedKind, int])
    faults: Mapping[FaultKind, int] = field(default_factory=dict[FaultKind, int])
    deeds_most: int = 14
    faults_most: int = 8
    setups: tuple[str, ...] = ()
    """The names of the setups to choose from; none: all."""
    replicas: tuple[int, ...] = (1, 2, 2, 3)
    """Numbers of managers to choose from."""
    plans: bool = False
    """Whether managers are compared with plans made just before (`plan_check.py`)."""
    takes_over: bool = False
    """Whether another manager made the balancers that exist when the first plan is made."""
    seconds: float = 200.0
    """Seconds in which events happen."""
    patience: float = 1500.0
    """Seconds until everything must match the desired state, once there are no more faults."""
    edition: int = 3
    """Version of the mixture: the same seed draws another schedule in another version."""

    @property
    def has_volumes(self) -> bool:
        """Whether users create claims."""
        return DeedKind.CLAIM_CREATE in self.deeds


ALL = (Place.API, Place.WATCH, Place.CLOUD)
OF_VOLUMES_ONLY = frozenset({
    FaultKind.CLOUD_IGNORED,
    FaultKind.CLOUD_MIXED,
    FaultKind.API_GARBLED,
})


def _of(*places: Place) -> dict[FaultKind, int]:
    found = (kind for kind in FaultKind if kind not in OF_VOLUMES_ONLY)
    return {kind: 2 for kind in found if kind.place in places}


def _deeds(*prefixes: str, weight: int = 2) -> dict[DeedKind, int]:
    return {kind: weight for kind in DeedKind if kind.value.startswith(prefixes)}


_EVERYTHING = {
    **_deeds("service", "machine", "node", "kubelet", "cloud"),
    **_deeds("replica", "server", "lease", "keys", "node-delete-all", weight=1),
    DeedKind.SERVICE_CREATE: 10,
    DeedKind.MACHINE_ADD: 8,
    DeedKind.MACHINE_OUTAGE: 1,
    DeedKind.SERVICE_MANY: 1,
}

SCENARIOS = {
    one.name: one
    for one in (
        Scenario(
            name="mixed",
            text="everything at once: users, machines, API server, cloud, crashes",
            deeds=_EVERYTHING,
            faults=_of(*ALL),
        ),
        Scenario(
            name="calm",
            text="users and machines change things, without faults",
            deeds={**_deeds("service", "machine", "node", "kubelet"), DeedKind.SERVICE_CREATE: 6},
        ),
        Scenario(
            name="nodes",
            text="machines are created, deleted and replaced, with faults in cloud and API server",
            deeds=_deeds("machine", "node", "kubelet"),
            faults=_of(*ALL),
        ),
        Scenario(
            name="services",
            text="Services change all the time, with faults in cloud and API server",
            deeds={**_deeds("service", "cloud"), DeedKind.SERVICE_CREATE: 8},
            faults=_of(*ALL),
        ),
        Scenario(
            name="leaders",
            text="three managers crash, freeze and lose the API server",
            deeds={
                **_deeds("replica", weight=2),
                DeedKind.REPLICA_PAUSE_AT_WRITE: 12,
                DeedKind.REPLICA_CRASH_AT_STEP: 8,
                **_deeds("server", "lease", weight=1),
                DeedKind.SERVICE_CREATE: 4,
                DeedKind.MACHINE_ADD: 6,
                DeedKind.MACHINE_REPLACE: 6,
                DeedKind.NODE_DELETE: 6,
            },
            faults=_of(Place.API, Place.WATCH),
            deeds_most=30,
            replicas=(3,),
        ),
        Scenario(
            name="watches",
            text="watch events arrive late, twice or not at all",
            deeds={
                **_deeds("service", "machine", "node"),
                **_deeds("server", weight=3),
                DeedKind.SERVICE_CREATE: 6,
            },
            faults=_of(Place.WATCH),
        ),
        Scenario(
            name="replaced",
            text="nodes and Services are replaced under their names while requests are in flight",
            deeds={
                DeedKind.OBJECT_AGAIN: 40,
                **_deeds("service-again", "service-edit", "service-delete"),
                **_deeds("machine-replace", "node-again", "node-edit"),
                DeedKind.NODE_DELETE: 2,
                DeedKind.SERVICE_CREATE: 8,
                DeedKind.MACHINE_ADD: 4,
                DeedKind.MACHINE_DELETE: 6,
            },
            faults={
                FaultKind.API_LATE: 4,
                FaultKind.API_CONFLICT: 4,
                FaultKind.WATCH_LAGGING: 2,
                FaultKind.WATCH_STALLED: 2,
                FaultKind.CLOUD_LATE: 2,
                FaultKind.CLOUD_STALE: 2,
            },
            deeds_most=30,
        ),
        Scenario(
            name="cloud",
            text="the cloud returns false, old and late answers and errors",
            deeds={**_deeds("service", "machine", "cloud"), DeedKind.SERVICE_CREATE: 6},
            faults=_of(Place.CLOUD),
            faults_most=12,
        ),
        Scenario(
            name="lies",
            text="the cloud returns old, partial and empty lists while many objects are deleted",
            deeds={
                **_deeds("service-type", "service-again", "cloud"),
                DeedKind.SERVICE_CREATE: 10,
                DeedKind.SERVICE_DELETE: 8,
                DeedKind.MACHINE_ADD: 4,
                DeedKind.MACHINE_DELETE: 4,
            },
            faults={
                FaultKind.CLOUD_EMPTY: 6,
                FaultKind.CLOUD_STALE: 6,
                FaultKind.CLOUD_PARTIAL: 2,
            },
            deeds_most=24,
        ),
        Scenario(
            name="classes",
            text="Services change their classes, while managers and API servers fail",
            deeds={
                DeedKind.SERVICE_CREATE: 8,
                DeedKind.SERVICE_CLASS: 16,
                DeedKind.SERVICE_TYPE: 2,
                **_deeds("replica-crash", "replica-stop", "server-restart"),
            },
            faults=_of(Place.API),
            deeds_most=24,
            replicas=(1, 2),
        ),
        Scenario(
            name="keys",
            text="the desired SSH keys and the machines change, with faults in the cloud",
            deeds={**_deeds("keys", weight=6), **_deeds("machine", "replica", weight=1)},
            faults=_of(*ALL),
            setups=("keys",),
        ),
        Scenario(
            name="dual-stack",
            text="dual-stack nodes and Services, with faults in cloud and API server",
            deeds={
                **_deeds("machine", "node", "kubelet", "cloud-foreign-v6"),
                **_deeds("replica", weight=1),
                DeedKind.SERVICE_CREATE: 4,
                DeedKind.SERVICE_TUNE: 8,
            },
            faults=_of(*ALL),
            setups=("dual-stack", "dual-stack-routes"),
        ),
        Scenario(
            name="touched",
            text="deletions are forbidden and objects change just before managers act on them",
            deeds={
                DeedKind.OBJECT_TOUCHED: 24,
                DeedKind.NODE_VETO: 6,
                DeedKind.SERVICE_ANNOTATE: 8,
                DeedKind.SERVICE_EDIT: 8,
                DeedKind.SERVICE_CREATE: 4,
                DeedKind.MACHINE_DELETE: 8,
                DeedKind.MACHINE_ADD: 6,
                DeedKind.KUBELET_HANGS: 6,
                DeedKind.KUBELET_LINGERS: 2,
            },
            faults={
                FaultKind.CLOUD_EMPTY: 4,
                FaultKind.CLOUD_STALE: 2,
                FaultKind.API_LATE: 2,
                FaultKind.API_CONFLICT: 2,
                FaultKind.WATCH_LAGGING: 2,
            },
            deeds_most=40,
        ),
        Scenario(
            name="ranges",
            text="few pod ranges are reused again and again, and addresses change their order",
            deeds={
                **_deeds("machine-add", "machine-replace", "node-again", weight=8),
                **_deeds("machine-delete", "node-delete", "kubelet", "replica-crash"),
            },
            faults={**_of(Place.API, Place.WATCH), FaultKind.CLOUD_SHUFFLED: 12},
            deeds_most=40,
            setups=("small-pool",),
        ),
        Scenario(
            name="mass-loss",
            text="many Services, orphans and nodes vanish at once, with faults in the cloud",
            deeds={
                DeedKind.SERVICE_MANY: 8,
                DeedKind.SERVICE_CREATE: 6,
                DeedKind.SERVICE_FORCE: 8,
                DeedKind.MACHINE_ADD: 4,
                DeedKind.MACHINE_OUTAGE: 2,
                **_deeds("node-veto", "node-approve", "replica-crash", "server-restart"),
            },
            faults={FaultKind.CLOUD_LATE: 2, FaultKind.CLOUD_EMPTY: 2, FaultKind.WATCH_UNTRUE: 2},
            deeds_most=20,
        ),
        Scenario(
            name="two-clouds",
            text="a second cloud hangs, fails and is throttled, which must not delay the first",
            deeds={
                **_deeds("service", "machine", "node", "kubelet"),
                **_deeds("replica-crash", "replica-stop", weight=1),
                DeedKind.SERVICE_CREATE: 8,
                DeedKind.MACHINE_ADD: 8,
            },
            faults=_of(*ALL),
            setups=(TWO_CLOUDS,),
            replicas=(1, 2),
        ),
        Scenario(
            name="volumes",
            text="claims, their growth and the nodes of their pods change, with faults everywhere",
            deeds={
                DeedKind.CLAIM_CREATE: 10,
                DeedKind.CLAIM_GROW: 5,
                DeedKind.CLAIM_DELETE: 4,
                DeedKind.POD_MOVE: 12,
                DeedKind.POD_END: 4,
                **_deeds("replica", "server", weight=1),
                DeedKind.REPLICA_CRASH_AT_WRITE: 6,
            },
            faults=_of(*ALL),
            deeds_most=30,
            setups=(VOLUMES,),
            replicas=(1, 2),
        ),
        Scenario(
            name="volume-nodes",
            text="pods write to volumes that the node plugin mounts, while machines, kubelets, "
            "devices, plugin, managers and cloud fail",
            deeds={
                DeedKind.CLAIM_CREATE: 10,
                DeedKind.CLAIM_GROW: 4,
                DeedKind.CLAIM_DELETE: 3,
                DeedKind.POD_MOVE: 20,
                DeedKind.POD_END: 4,
                DeedKind.VOLUME_VANISH: 1,
                DeedKind.PLUGIN_CRASH: 8,
                DeedKind.PLUGIN_REPEAT: 4,
                DeedKind.HOST_HANGS: 2,
                DeedKind.HOST_OUT_OF_SERVICE: 3,
                **_deeds("machine-add", "machine-stop", "machine-start", "machine-delete"),
                **_deeds("replica", "server", weight=1),
                DeedKind.REPLICA_CRASH_AT_WRITE: 4,
            },
            faults={
                **_of(*ALL),
                FaultKind.CLOUD_AFTERWARDS: 6,
                FaultKind.CLOUD_IGNORED: 6,
                **{kind: 5 for kind in FaultKind if kind.place is Place.HOST},
                FaultKind.HOST_BLKID_BLIND: 10,
            },
            deeds_most=50,
            faults_most=12,
            setups=(VOLUME_NODES,),
            replicas=(1, 2),
        ),
        Scenario(
            name="volume-writers",
            text="two attachments of one volume, mounts that were left behind, requests that "
            "overlap, forged claims, data of others, and machines that hang, stop and come back, "
            "while pods write and others only read",
            deeds={
                DeedKind.CLAIM_CREATE: 10,
                DeedKind.CLAIM_GROW: 6,
                DeedKind.CLAIM_DELETE: 3,
                DeedKind.CLAIM_FORGED: 3,
                DeedKind.VOLUME_WRITTEN: 6,
                DeedKind.ATTACHMENT_SECOND: 12,
                DeedKind.HOST_STALE_MOUNT: 8,
                DeedKind.POD_MOVE: 24,
                DeedKind.POD_END: 3,
                DeedKind.POD_READS: 10,
                DeedKind.PLUGIN_CRASH: 3,
                DeedKind.PLUGIN_SLOW: 8,
                DeedKind.HOST_HANGS: 10,
                DeedKind.HOST_OUT_OF_SERVICE: 8,
                **_deeds("machine-stop", "machine-start", weight=5),
                DeedKind.REPLICA_CRASH_AT_WRITE: 6,
            },
            faults={
                **_of(*ALL),
                FaultKind.CLOUD_LOST: 16,
                FaultKind.CLOUD_FORBIDDEN: 16,
                FaultKind.CLOUD_EMPTY: 12,
                FaultKind.CLOUD_STALE: 16,
                FaultKind.CLOUD_MIXED: 24,
                FaultKind.API_GARBLED: 24,
                FaultKind.HOST_BLKID_FAILS: 10,
                FaultKind.HOST_MOUNT_FAILS: 4,
            },
            deeds_most=100,
            faults_most=18,
            seconds=300.0,
            setups=(VOLUME_NODES,),
            replicas=(1, 2),
        ),
        Scenario(
            name="strangers",
            text="another cluster shares our balancers, and nodes claim machines of other nodes",
            deeds={
                DeedKind.STRANGER_SHARES: 10,
                DeedKind.STRANGER_MOVES_ADDRESS: 10,
                DeedKind.STRANGER_TWIN: 4,
                DeedKind.STRANGER_NODE: 6,
                DeedKind.SERVICE_CREATE: 8,
                DeedKind.SERVICE_DELETE: 6,
                **_deeds("service-edit", "service-type", "service-annotate"),
                **_deeds("machine-add", "machine-replace", "cloud-foreign"),
                DeedKind.REPLICA_CRASH_AT_WRITE: 4,
            },
            faults=_of(Place.API, Place.CLOUD),
            deeds_most=30,
        ),
        Scenario(
            name="overlooked",
            text="Services are deleted while one list of the parts of their balancers is empty",
            deeds={
                DeedKind.SERVICE_CREATE: 10,
                DeedKind.LIST_OVERLOOKED: 10,
                **_deeds("service-edit", "service-type", "machine-add", "replica-crash"),
            },
            # Two independent false answers in a row are not told from the truth.
            faults={kind: n for kind, n in _of(Place.API, Place.CLOUD).items() if kind not in LIES},
            deeds_most=30,
        ),
        Scenario(
            name="tenants",
            text="users of a namespace name the balancers of others, their members or addresses",
            deeds={
                DeedKind.STRANGER_TENANT: 16,
                DeedKind.STRANGER_ADDRESS: 10,
                DeedKind.STRANGER_TEXT: 5,
                DeedKind.STRANGER_ASKS: 10,
                DeedKind.SERVICE_CREATE: 8,
                DeedKind.SERVICE_DELETE: 8,
                **_deeds("service-edit", "service-type", "service-annotate"),
                **_deeds("machine-add", "machine-replace", "cloud-foreign"),
                DeedKind.REPLICA_CRASH_AT_WRITE: 4,
            },
            faults=_of(Place.API, Place.CLOUD),
            deeds_most=36,
        ),
        Scenario(
            name="sharing",
            text="two Services of a namespace share a balancer, and are deleted in any order",
            deeds={
                DeedKind.NEIGHBOUR_SHARES: 14,
                DeedKind.NEIGHBOURS_LEAVE: 14,
                DeedKind.SERVICE_CREATE: 8,
                DeedKind.SERVICE_DELETE: 3,
                **_deeds("machine-add", "machine-replace"),
                DeedKind.REPLICA_CRASH_AT_WRITE: 4,
            },
            faults=_of(Place.API, Place.CLOUD),
            deeds_most=40,
            seconds=300.0,
        ),
        Scenario(
            name="at-once",
            text="no faults, repair rounds are off, and changes must take effect at once",
            deeds={
                **_deeds("service", "machine", "kubelet"),
                **_deeds("node-delete", "node-exclude", "node-leaving", "node-again"),
                DeedKind.SERVICE_CREATE: 6,
            },
            setups=UNAIDED,
            patience=AT_ONCE,
        ),
        Scenario(
            name="unaided",
            text="cloud, API server and managers fail, and repair rounds are off",
            deeds={
                **_deeds("service", "machine", "kubelet", "replica"),
                **_deeds("node-delete", "node-exclude", "node-leaving", "node-again"),
                DeedKind.SERVICE_CREATE: 8,
            },
            # Wrong answers of the cloud are found only by a second check.
            faults={kind: n for kind, n in _of(*ALL).items() if kind not in LIES},
            setups=UNAIDED,
        ),
        Scenario(
            name="plan",
            text="a manager does in an hour what plans announced just before, and nothing else",
            deeds={
                **_EVERYTHING,
                **_deeds("service-delete", "service-force", "service-type", weight=5),
                **_deeds("cloud", "keys", "node-delete", "machine-delete", weight=3),
                DeedKind.SERVICE_CREATE: 14,
                DeedKind.NODE_DELETE_ALL: 1,
            },
            faults=_of(*ALL),
            deeds_most=40,
            faults_most=4,
            replicas=(1,),
            plans=True,
        ),
        Scenario(
            name="take-over",
            text="balancers of another manager, and Services that changed since, are taken over as "
            "a plan announced before the first start",
            deeds={
                **_deeds("service-edit", "service-tune", weight=10),
                **_deeds("service-type", "service-delete", "service-again", "machine", "cloud"),
                DeedKind.NODE_EXCLUDE: 2,
                DeedKind.SERVICE_CREATE: 14,
                DeedKind.MACHINE_OUTAGE: 1,
            },
            faults=_of(*ALL),
            deeds_most=40,
            faults_most=4,
            setups=(TAKE_OVER,),
            replicas=(1,),
            plans=True,
            takes_over=True,
        ),
    )
}


def first_edition(scenario: Scenario) -> Scenario:
    """The scenario before kinds and setups were added to it.

    Seeds that were found with it are played with it: `tests/simulation/test_regressions.py`.
    """
    former = second_edition(scenario)
    return replace(
        former,
        deeds={kind: n for kind, n in former.deeds.items() if kind not in SECOND_EDITION},
        faults={kind: n for kind, n in former.faults.items() if kind not in SECOND_EDITION},
        setups=scenario.setups or FIRST_EDITION,
        edition=1,
    )


def second_edition(scenario: Scenario) -> Scenario:
    """The scenario before strangers had addresses, and pods that only read volumes."""
    deeds = {kind: n for kind, n in scenario.deeds.items() if kind not in THIRD_EDITION}
    return replace(scenario, deeds=deeds, edition=2)
