"""Which PersistentVolumes are volumes of a cloud, and where these can be used. Pure.

The webhook asks before an object exists, the controller afterwards; both use `placement`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pileus.cloud.volume import VolumeId, VolumeNames
from pileus.kube.model.core_v1 import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectReference,
    PersistentVolume,
)
from pileus.volumes.parameters import driver_name

FLEX_VENDOR = "pileus.dev"
FLEX_OPTION = "volumeID"
"""Option of a FlexVolume source that has the ID of the volume."""


@dataclass(frozen=True, slots=True)
class CloudVolumes:
    """How objects of the cluster refer to the volumes of one cloud."""

    cloud: str
    """Name of the cloud in this manager."""
    names: VolumeNames = field(default_factory=VolumeNames)

    @property
    def driver(self) -> str:
        """Returns the name of the CSI driver for this cloud."""
        return driver_name(self.cloud)

    @property
    def flex_driver(self) -> str:
        return f"{FLEX_VENDOR}/{self.cloud}"

    def id_of(self, volume: PersistentVolume) -> VolumeId | None:
        """Returns the ID of the volume in this cloud; None if it is another driver's."""
        spec = volume.spec
        if spec is None:
            return None
        if spec.csi is not None and spec.csi.driver in {self.driver, *self.names.drivers}:
            return VolumeId(spec.csi.volume_handle) if spec.csi.volume_handle else None
        if spec.cinder is not None and "cinder" in self.names.sources:
            return VolumeId(spec.cinder.volume_id) if spec.cinder.volume_id else None
        if spec.flex_volume is not None and spec.flex_volume.driver == self.flex_driver:
            named = (spec.flex_volume.options or {}).get(FLEX_OPTION, "")
            return VolumeId(named) if named else None
        return None

    def is_certain(self, volume: PersistentVolume) -> bool:
        """Whether the object names this cloud, so that no other cloud can have the volume."""
        spec = volume.spec
        if spec is None:
            return False
        csi = spec.csi is not None and spec.csi.driver == self.driver
        return csi or (spec.flex_volume is not None and spec.flex_volume.driver == self.flex_driver)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What an object lacks of where its volume can be used."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels to add. Never one that the object has."""
    requirements: tuple[NodeSelectorRequirement, ...] = ()
    """What its node affinity lacks; empty: it has an affinity of its own, or needs none."""
    conflicts: tuple[str, ...] = ()
    """Labels that contradict the cloud. They are kept: people may have set them."""

    @property
    def is_empty(self) -> bool:
        return not (self.labels or self.requirements)


def placement(volume: PersistentVolume, topology: Mapping[str, str]) -> Placement:
    """Returns what to add to the object, given the labels of nodes that can attach the volume.

    An affinity that has one of these labels was made by someone who knows the volume: it is kept.
    """
    present = volume.metadata.labels or {}
    return Placement(
        labels={key: value for key, value in topology.items() if key not in present},
        requirements=() if _mentions(terms_of(volume), topology) else requirements_of(topology),
        conflicts=tuple(
            f'label {key}="{present[key]}", but the volume is in "{value}"'
            for key, value in sorted(topology.items())
            if present.get(key, value) != value
        ),
    )


def terms_of(volume: PersistentVolume) -> tuple[NodeSelectorTerm, ...]:
    """Returns the terms of the object's node affinity; none: it can be used everywhere."""
    affinity = volume.spec and volume.spec.node_affinity
    required = affinity.required if affinity else None
    return (required.node_selector_terms or ()) if required else ()


def can_lack_placement(volume: PersistentVolume, keys: tuple[str, ...]) -> bool:
    """Whether a label or the affinity is missing, so that the cloud has to be asked."""
    labels = volume.metadata.labels or {}
    return not terms_of(volume) or any(key not in labels for key in keys)


def requirements_of(topology: Mapping[str, str]) -> tuple[NodeSelectorRequirement, ...]:
    """Returns what a node has to have to use a volume with this topology."""
    return tuple(
        NodeSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in sorted(topology.items())
    )


def affinity_of(requirements: tuple[NodeSelectorRequirement, ...]) -> dict[str, object]:
    """Returns `spec.nodeAffinity` of an object that has none."""
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions(requirements)}]}}


def expressions(requirements: tuple[NodeSelectorRequirement, ...]) -> list[dict[str, object]]:
    return [
        {"key": each.key, "operator": each.operator, "values": list(each.values or ())}
        for each in requirements
    ]


def about_volume(volume: PersistentVolume) -> ObjectReference:
    metadata = volume.metadata
    return ObjectReference(
        api_version="v1", kind="PersistentVolume", name=metadata.name, uid=metadata.uid
    )


def _mentions(terms: tuple[NodeSelectorTerm, ...], topology: Mapping[str, str]) -> bool:
    return any(each.key in topology for term in terms for each in term.match_expressions or ())
