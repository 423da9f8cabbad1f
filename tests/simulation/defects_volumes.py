"""Planted defects of the volume controller."""

from tests.simulation import plants_volumes as plants
from tests.simulation.planting import Defect

OF_VOLUMES = (
    Defect(
        name="every volume counts as released",
        plant=plants.every_volume_counts_as_released,
        caught_by=("volumes_outlive_their_claims",),
        scenario="volumes",
        at=1,
    ),
    Defect(
        name="the volume of a released PersistentVolume is forgotten",
        plant=plants.released_volumes_are_forgotten,
        caught_by=("no_volume_is_left_behind",),
        scenario="volumes",
        at=1,
    ),
    Defect(
        name="a volume is not detached when its attachment is deleted",
        plant=plants.detachments_are_only_reported,
        caught_by=("volumes_are_attached_for_pods",),
        scenario="volumes",
        at=2,
    ),
    Defect(
        name="a volume in use is detached before it grows",
        plant=plants.volumes_are_detached_for_growth,
        caught_by=("volumes_stay_where_pods_are",),
        scenario="volumes",
        at=3,
    ),
    Defect(
        name="the new size is not written to the claim",
        plant=plants.growth_is_not_published,
        caught_by=("claims_have_their_volumes",),
        scenario="volumes",
        at=3,
    ),
    Defect(
        name="a claim gets a volume of a class of another driver",
        plant=plants.annotations_of_claims_are_believed,
        caught_by=("only_own_classes_get_volumes",),
        scenario="volume-writers",
        at=1,
    ),
)
