"""Planted defects of the volume controller."""

from tests.simulation import plants_volumes as plants
from tests.simulation.planting import Defect

OTHERS_DATA = ("pods_read_what_pods_wrote", "claims_have_their_volumes", "no_volume_is_left_behind")

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
        caught_by=("attachments_stay_until_volumes_are_detached",),
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
    Defect(
        name="a claim gets any volume that the cloud answers with",
        plant=plants.answers_to_creations_are_believed,
        caught_by=OTHERS_DATA,
        scenario="volume-writers",
        first=10,
        at=11,
    ),
    Defect(
        name="a machine uses no volume if the cloud does not answer for it",
        plant=plants.silence_of_the_cloud_proves_that_a_machine_is_off,
        caught_by=("mounted_volumes_are_not_detached",),
        scenario="volume-writers",
        first=50,
        at=55,
    ),
    Defect(
        name="a node that cannot be read has mounted nothing",
        plant=plants.unreadable_nodes_count_as_deleted,
        caught_by=("mounted_volumes_are_not_detached",),
        scenario="volume-writers",
        at=4,
    ),
    Defect(
        name="the mount at a staging path is not compared with the volume",
        plant=plants.any_mount_at_the_staging_path_is_published,
        caught_by=("pods_read_what_pods_wrote",),
        scenario="volume-writers",
        at=9,
    ),
    Defect(
        name="a volume is published while it is unpublished",
        plant=plants.volumes_are_not_reserved_while_they_are_unpublished,
        caught_by=("pods_read_what_pods_wrote",),
        scenario="volume-writers",
        first=10,
        at=14,
    ),
)
