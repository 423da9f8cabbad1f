"""Looks up the source of a claim: in the API server, and then in the cloud.

Nothing is cached: a source that is not ready is read again by the next attempt, with increasing
delays. A cluster without the kinds of snapshots is asked only for claims that name one.
"""

from dataclasses import dataclass

from pileus.cloud.errors import CloudError, Misconfigured, NotFound, Unsupported
from pileus.cloud.volume import Volumes
from pileus.controllers.volume.cluster import Cluster
from pileus.controllers.volume.objects import Rules
from pileus.controllers.volume.source import (
    Found,
    Kind,
    Origin,
    content_name,
    from_snapshot,
    from_volume,
    kind_of,
    populator_text,
    snapshot_id,
    source_claim_volume,
    source_of,
    source_volume_id,
)
from pileus.kube.errors import Forbidden
from pileus.kube.errors import NotFound as NotInCluster
from pileus.kube.model.core_v1 import PersistentVolumeClaim, TypedReference
from pileus.kube.model.meta import Resource, T
from pileus.kube.model.snapshot_v1 import VOLUME_SNAPSHOT_CONTENTS, VOLUME_SNAPSHOTS


@dataclass(frozen=True, slots=True)
class SourceLookup:
    rules: Rules
    cluster: Cluster
    volumes: Volumes

    async def find(self, claim: PersistentVolumeClaim) -> Found:
        """Returns what the volume of the claim is copied from, or why it cannot be now.

        Raises KubeError if the API server does not answer.
        """
        reference = source_of(claim)
        if reference is None:
            return Unsupported("the claim names no source")
        try:
            match kind_of(reference):
                case Kind.SNAPSHOT:
                    return await self._snapshot(claim, reference)
                case Kind.CLAIM:
                    return await self._claim(claim, reference)
                case Kind.OTHER:
                    return Unsupported(populator_text(reference))
        except CloudError as error:
            return error

    async def _snapshot(self, claim: PersistentVolumeClaim, reference: TypedReference) -> Origin:
        namespace = claim.metadata.namespace
        snapshot = await self._read(VOLUME_SNAPSHOTS, reference.name, namespace)
        content = await self._read(VOLUME_SNAPSHOT_CONTENTS, content_name(snapshot))
        id_ = snapshot_id(self.rules, claim, snapshot, content)
        found = await self.volumes.list_snapshots(self.rules.cluster, [id_])
        return from_snapshot(id_, found.get(id_))

    async def _claim(self, claim: PersistentVolumeClaim, reference: TypedReference) -> Origin:
        namespace = claim.metadata.namespace
        source = await self.cluster.claims.read(reference.name, namespace)
        if source is None:
            raise NotFound(_missing("PersistentVolumeClaim", reference.name, namespace))
        pv = await self.cluster.volumes.read(source_claim_volume(claim, source))
        id_ = source_volume_id(self.rules, source, pv)
        found = await self.volumes.list_volumes(self.rules.cluster, [id_])
        return from_volume(id_, found.get(id_))

    async def _read(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """Returns the object from the API server. Raises CloudError if it cannot be had."""
        try:
            return await self.cluster.read(resource, name, namespace)
        except NotInCluster as error:
            if not error.details.name:  # not the object: the path itself is unknown
                raise Misconfigured(
                    f"the cluster has no {resource.plural}.{resource.group}. Fix: install the "
                    "CustomResourceDefinitions and the controller of "
                    "github.com/kubernetes-csi/external-snapshotter"
                ) from error
            raise NotFound(_missing(resource.kind, name, namespace)) from error
        except Forbidden as error:
            raise Misconfigured(
                f"the volume controller may not read {resource.plural}.{resource.group}: {error}. "
                "Fix: pileus doctor (it prints the command that grants the right)"
            ) from error


def _missing(kind: str, name: str, namespace: str) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    return (
        f"{kind} {name} does not exist{where}. The volume is created when it does. Fix: create it, "
        "or create the claim with another source"
    )
