"""The webhook `persistentvolume-labels`: new PersistentVolumes get zone, region and node affinity.

What it cannot find out in time, the PersistentVolume label controller adds later.
"""

from collections.abc import Iterator, Mapping

import msgspec

from pileus.admission.review import ALLOWED, AdmissionRequest, Answer, Outcome, undecided
from pileus.admission.volumes import Unknown, VolumeLookup
from pileus.kube.model.core_v1 import PersistentVolume
from pileus.volumes.persistent_volumes import (
    Placement,
    affinity_of,
    expressions,
    placement,
    terms_of,
)

LATER = "the PersistentVolume label controller adds zone and region when this is solved"


class LabelsWebhook:
    def __init__(self, lookup: VolumeLookup) -> None:
        self._lookup = lookup

    async def review(self, request: AdmissionRequest) -> Answer:
        """Returns a patch that adds what is missing. Never refuses, never overwrites."""
        volume = msgspec.json.decode(request.object, type=PersistentVolume | None)
        if request.operation != "CREATE" or volume is None:
            return ALLOWED
        try:
            found = await self._lookup.find(volume)
        except Unknown as why:
            return undecided(f"{why}; {LATER}")
        if found is None:
            return ALLOWED
        missing = placement(volume, found.volume.topology)
        return Answer(
            outcome=Outcome.UNCHANGED if missing.is_empty else Outcome.CHANGED,
            patch=tuple(patch(volume, missing)),
            warnings=missing.conflicts,
        )


def patch(volume: PersistentVolume, missing: Placement) -> Iterator[Mapping[str, object]]:
    """Yields the operations of a JSON patch for an object that is being created."""
    if missing.labels and volume.metadata.labels is None:
        yield {"op": "add", "path": "/metadata/labels", "value": dict(missing.labels)}
    else:
        for key, value in sorted(missing.labels.items()):
            yield {"op": "add", "path": f"/metadata/labels/{_pointer(key)}", "value": value}
    if missing.requirements:
        yield from _affinity(volume, missing)


def _affinity(volume: PersistentVolume, missing: Placement) -> Iterator[Mapping[str, object]]:
    """Terms are alternatives, so each of them gets the requirements."""
    terms = terms_of(volume)
    if not terms:
        yield {
            "op": "add",
            "path": "/spec/nodeAffinity",
            "value": affinity_of(missing.requirements),
        }
    for number, term in enumerate(terms):
        path = f"/spec/nodeAffinity/required/nodeSelectorTerms/{number}/matchExpressions"
        added = expressions(missing.requirements)
        if term.match_expressions is None:
            yield {"op": "add", "path": path, "value": added}
        else:
            yield from ({"op": "add", "path": f"{path}/-", "value": one} for one in added)


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
