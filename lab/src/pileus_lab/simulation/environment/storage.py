"""Claims and their pods: users, the scheduler and kube-controller-manager's part for volumes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from pileus.cloud.model import InstanceState
from pileus.volumes.parameters import driver_name
from pileus_lab.apiserver.tree import Obj, name_of, rows, text, texts, words
from pileus_lab.local.model.state import TYPES
from pileus_lab.node_agents.volume_binder import (
    PROVISIONER,
    Storage,
    claim_path,
    is_deleting,
    patches,
    uid_of,
)
from pileus_lab.simulation.clouds.deeds import DeleteVolume
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import (
    ATTACHMENTS,
    CLAIMS,
    MERGE,
    VOLUMES,
    Cluster,
    ready_status,
)
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import Deed

WHO = "storage"
PERIOD = 3.0
OTHER_CLASS, OTHER_DRIVER = "other", "other.example.com"
"""A class whose driver does not run."""
CLASSES = "storageclasses.storage.k8s.io"
CLAIMS_PATH = f"/api/v1/namespaces/default/{CLAIMS}"
ATTACHMENTS_PATH = "/apis/storage.k8s.io/v1/volumeattachments"
MOST_CLAIMS = 6
MOST_GIB = 8
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
UNMOUNT = 60.0
"""Seconds after which volumes of a silent node are detached anyway."""
MOST_ATTACHED = TYPES["small"].volumes
"""Volumes that the scheduler puts on one node: as many as the smallest machine can have."""


class Access(StrEnum):
    """How the pod of a claim uses its volume."""

    WRITES = "writes"
    READS = "reads"
    """Only this pod: its node may write to the filesystem."""
    READS_BY_MODE = "reads, by the access mode"
    READS_BY_OPTION = "reads, by the mount option ro"

    @property
    def is_for_readers(self) -> bool:
        """Whether nothing may write to the filesystem."""
        return self in {Access.READS_BY_MODE, Access.READS_BY_OPTION}


READING = tuple(one for one in Access if one is not Access.WRITES)


def is_tainted(node: Obj) -> bool:
    return any(text(one, "key") == OUT_OF_SERVICE for one in rows(node, "spec", "taints"))


class Claims:
    """Users create claims and pods; the rest of a cluster binds, attaches and protects them."""

    def __init__(self, cluster: Cluster, account: Account, *, has_kubelets: bool = False) -> None:
        """`has_kubelets`: whether kubelets mount the volumes of pods (`simulation.hosts`)."""
        self._cluster = cluster
        self._account = account
        self._has_kubelets = has_kubelets
        self._named = 0
        self.pods: dict[str, str] = {}
        """By UID of the claim: the node of its pod."""
        self.reading: dict[str, Access] = {}
        """By UID of the claim: how its pod uses it; without one, it writes."""
        self.lost: set[str] = set()
        """Volumes that users have deleted in the cloud."""
        self._silent_since: dict[str, float] = {}
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.CLAIM_CREATE: self._create,
            DeedKind.CLAIM_GROW: self._grow,
            DeedKind.CLAIM_DELETE: self._delete,
            DeedKind.CLAIM_FORGED: self._forge,
            DeedKind.ATTACHMENT_SECOND: self._attach_second,
            DeedKind.POD_MOVE: self._move,
            DeedKind.POD_END: self._end,
            DeedKind.POD_READS: self._read,
            DeedKind.VOLUME_VANISH: self._vanish,
        }

    @property
    def driver(self) -> str:
        """The CSI driver of the simulated cloud."""
        return driver_name(self._account.offered.name)

    def in_use(self, handle: str) -> str:
        """The name of a volume in the status of nodes."""
        return f"kubernetes.io/csi/{self.driver}^{handle}"

    def furnish(self, claims: int) -> None:
        """What exists before the first manager starts; with that many claims."""
        self._add_class("fast", self.driver)
        for number in range(claims):
            self._create(
                Deed(number=0, at=0.0, kind=DeedKind.CLAIM_CREATE, choice=number, seconds=0.0)
            )

    def _add_class(self, name: str, driver: str) -> None:
        body = {"metadata": {"name": name}, "provisioner": driver, "allowVolumeExpansion": True}
        self._cluster.act(WHO, "POST", "/apis/storage.k8s.io/v1/storageclasses", body)

    async def run(self) -> None:
        while True:
            if not self._cluster.is_down:
                self._bind()
                if self._has_kubelets:
                    self._evict()
                self._attach()
            await asyncio.sleep(PERIOD)

    def _bind(self) -> None:
        found = Storage(
            self._cluster.objects(CLAIMS),
            self._cluster.objects(VOLUMES),
            self._cluster.objects(CLASSES),
            self.pods.keys(),
            self._has_kubelets,
        )
        for patch in patches(found):
            self._cluster.act(WHO, "PATCH", patch.path, patch.body, MERGE)

    def _attach(self) -> None:
        """As the attach-detach controller: an attachment for each pod, and no others."""
        wanted = {
            (text(one, "spec", "volumeName"), self.pods[uid_of(one)])
            for one in self._cluster.objects(CLAIMS)
            if uid_of(one) in self.pods and text(one, "status", "phase") == "Bound"
        }
        present: set[tuple[str, str]] = set()
        for one in self._cluster.objects(ATTACHMENTS):
            volume = text(one, "spec", "source", "persistentVolumeName")
            key = (volume, text(one, "spec", "nodeName"))
            present.add(key)
            if key not in wanted and not is_deleting(one) and self._may_detach(*key):
                self._cluster.act(WHO, "DELETE", f"{ATTACHMENTS_PATH}/{name_of(one)}")
        for volume, node in sorted(wanted - present):
            self._post_attachment(volume, node)

    def _post_attachment(self, volume: str, node: str) -> None:
        source = {"persistentVolumeName": volume}
        spec = {"attacher": self.driver, "nodeName": node, "source": source}
        body = {"metadata": {"name": f"va-{volume[-12:]}-{node}"}, "spec": spec}
        self._cluster.act(WHO, "POST", ATTACHMENTS_PATH, body)

    def _attach_second(self, deed: Deed) -> None:
        """As a second attach-detach controller: nothing in the API prevents two attachments."""
        claim = deed.one_of([one for one in self._alive() if uid_of(one) in self.pods])
        volume = text(claim, "spec", "volumeName") if claim is not None else ""
        taken = {
            text(one, "spec", "nodeName")
            for one in self._cluster.objects(ATTACHMENTS)
            if text(one, "spec", "source", "persistentVolumeName") == volume
        }
        free = [] if claim is None else [one for one in self._nodes(claim) if one not in taken]
        node = deed.one_of(free)
        if volume and node is not None and taken:
            self._post_attachment(volume, node)

    def _may_detach(self, volume: str, node: str) -> bool:
        """Whether the kubelet has unmounted the volume, or is not waited for any longer."""
        found = next((one for one in self._cluster.objects("nodes") if name_of(one) == node), None)
        if not self._has_kubelets or found is None or is_tainted(found):
            return True
        now = self._account.now()
        if ready_status(found) == "True":
            self._silent_since.pop(node, None)
        elif now - self._silent_since.setdefault(node, now) >= UNMOUNT:
            return True
        handles = {
            name_of(one): text(one, "spec", "csi", "volumeHandle")
            for one in self._cluster.objects(VOLUMES)
        }
        return self.in_use(handles.get(volume, "")) not in texts(found, "status", "volumesInUse")

    def _evict(self) -> None:
        """As the garbage collector of pods: those on tainted nodes are deleted by force."""
        nodes = self._cluster.objects("nodes")
        tainted = {name_of(one) for one in nodes if is_tainted(one)}
        for claim in self._cluster.objects(CLAIMS):
            if self.pods.get(uid_of(claim)) in tainted:
                others = [one for one in self._nodes(claim) if one not in tainted]
                if others:
                    self.pods[uid_of(claim)] = others[0]
                else:
                    del self.pods[uid_of(claim)]

    def tidy(self) -> None:
        """Pods whose nodes cannot run them end, and the others write."""
        self.reading.clear()
        ready = {
            name_of(one) for one in self._cluster.objects("nodes") if ready_status(one) == "True"
        }
        machines = self._account.truth().machines
        running = {one.name for one in machines if one.state is InstanceState.RUNNING}
        for uid, node in [*self.pods.items()]:
            if node not in ready & running:
                del self.pods[uid]

    def _vanish(self, deed: Deed) -> None:
        volume = deed.one_of([*self._account.truth().volumes.values()])
        if volume is not None:
            self._account.do(WHO, DeleteVolume(volume.id))
            if volume.id not in self._account.truth().volumes:
                self.lost.add(volume.id)

    def _create(self, deed: Deed) -> None:
        if len(self._cluster.objects(CLAIMS)) >= MOST_CLAIMS:
            return
        self._named += 1
        size = {"requests": {"storage": f"{1 + deed.choice % 3}Gi"}}
        spec = {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": size}
        body = {"metadata": {"name": f"claim-{self._named}"}, "spec": spec}
        self._cluster.act(WHO, "POST", CLAIMS_PATH, body)

    def _forge(self, deed: Deed) -> None:
        if len(self._cluster.objects(CLAIMS)) >= MOST_CLAIMS:
            return
        if OTHER_CLASS not in map(name_of, self._cluster.objects(CLASSES)):
            self._add_class(OTHER_CLASS, OTHER_DRIVER)
        self._named += 1
        spec = {
            "storageClassName": OTHER_CLASS,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{1 + deed.choice % 3}Gi"}},
        }
        forged = {"name": f"forged-{self._named}", "annotations": {PROVISIONER: self.driver}}
        self._cluster.act(WHO, "POST", CLAIMS_PATH, {"metadata": forged, "spec": spec})

    def _grow(self, deed: Deed) -> None:
        claim = deed.one_of(self._alive())
        if claim is None:
            return
        now = int(text(claim, "spec", "resources", "requests", "storage").removesuffix("Gi"))
        if now < MOST_GIB:
            size = {"requests": {"storage": f"{now + 1}Gi"}}
            body: Obj = {"spec": {"resources": size}}
            self._cluster.act(WHO, "PATCH", claim_path(claim), body, MERGE)

    def _delete(self, deed: Deed) -> None:
        claim = deed.one_of(self._alive())
        if claim is not None:
            self.pods.pop(uid_of(claim), None)
            self._cluster.act(WHO, "DELETE", claim_path(claim))

    def _move(self, deed: Deed) -> None:
        """To a node that the volume can be attached to, as the scheduler does."""
        claim = deed.one_of(self._alive())
        nodes = self._nodes(claim) if claim is not None else []
        node = nodes[deed.choice // 7 % len(nodes)] if nodes else None
        if claim is not None and node is not None:
            self.pods[uid_of(claim)] = node

    def _end(self, deed: Deed) -> None:
        uid = deed.one_of(sorted(self.pods))
        if uid is not None:
            del self.pods[uid]

    def _read(self, deed: Deed) -> None:
        claim = deed.one_of(self._alive())
        if claim is not None and self.reading.pop(uid_of(claim), None) is None:
            self.reading[uid_of(claim)] = READING[deed.choice // 7 % len(READING)]

    def access(self, claim: str) -> Access:
        """How the pod of the claim with this UID uses its volume."""
        return self.reading.get(claim, Access.WRITES)

    def resume(self, claim: str, node: str) -> None:
        """The pod of the claim with this UID starts again, if the claim was not deleted since."""
        if any(uid_of(one) == claim for one in self._alive()):
            self.pods.setdefault(claim, node)

    def _alive(self) -> list[Obj]:
        return [one for one in self._cluster.objects(CLAIMS) if not is_deleting(one)]

    def _nodes(self, claim: Obj) -> list[str]:
        bound = text(claim, "spec", "volumeName")
        empty: Obj = {}
        found = (one for one in self._cluster.objects(VOLUMES) if name_of(one) == bound)
        volume = next(found, empty)
        terms = rows(volume, "spec", "nodeAffinity", "required", "nodeSelectorTerms")
        allowed = [
            {text(one, "key"): texts(one, "values") for one in rows(term, "matchExpressions")}
            for term in terms
        ]
        if volume and not terms:
            allowed.append({})  # any node
        others = [node for uid, node in self.pods.items() if uid != uid_of(claim)]
        return [
            name_of(one)
            for one in self._cluster.objects("nodes")
            if any(_fits(one, term) for term in allowed)
            and others.count(name_of(one)) < MOST_ATTACHED
        ]


def _fits(node: Obj, term: Mapping[str, Sequence[str]]) -> bool:
    """Whether a node has one of the values of every label that a term names."""
    labels = words(node, "metadata", "labels")
    return all(labels.get(key) in values for key, values in term.items())
