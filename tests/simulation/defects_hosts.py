"""Planted defects of the volume controller and the node plugin that only pods with data show."""

from tests.simulation import plants_hosts as plants
from tests.simulation.planting import Defect

NODES = "volume-nodes"
FORMATTED = "volumes_with_data_are_never_formatted"

OF_HOSTS = (
    Defect(
        name="a volume that another machine has is attached",
        plant=plants.attached_volumes_are_attached_again,
        caught_by=("volumes_are_attached_once",),
        scenario=NODES,
        at=17,
        first=17,
    ),
    Defect(
        name="a volume that another machine has is attached, and mounted twice",
        plant=plants.attached_volumes_are_attached_again,
        caught_by=("volumes_are_mounted_on_one_machine",),
        scenario=NODES,
        at=86,
        first=86,
    ),
    Defect(
        name="a forgotten detachment is repeated at once",
        plant=plants.forgotten_detachments_are_repeated_at_once,
        caught_by=("calls_are_bounded",),
        scenario=NODES,
        at=584,
        first=584,
    ),
    Defect(
        name="growth that was interrupted stays half done",
        plant=plants.half_done_growth_stays_so,
        caught_by=("claims_have_their_volumes",),
        scenario=NODES,
        at=1,
    ),
    Defect(
        name="a claim is not kept until its volume is known",
        plant=plants.claims_are_not_kept_for_their_volumes,
        caught_by=("no_volume_is_left_behind",),
        scenario=NODES,
        at=9,
        first=9,
    ),
    Defect(
        name="a refused deletion of a volume counts as done",
        plant=plants.refused_deletions_count_as_done,
        caught_by=("no_volume_is_left_behind",),
        scenario=NODES,
        at=2786,
        first=2786,
    ),
    Defect(
        name="an attached volume is deleted",
        plant=plants.attached_volumes_are_deleted,
        caught_by=("volumes_outlive_their_claims",),
        scenario=NODES,
        at=30,
        first=30,
    ),
    Defect(
        name="a missing volume is not reported",
        plant=plants.missing_volumes_are_not_reported,
        caught_by=("lost_volumes_are_reported",),
        scenario=NODES,
        at=7,
        first=7,
    ),
    Defect(
        name="a missing volume is replaced by an empty one",
        plant=plants.missing_volumes_are_replaced,
        caught_by=("claims_get_one_volume",),
        scenario=NODES,
        at=9,
        first=9,
    ),
    Defect(
        name="the taint out-of-service proves that a machine is off",
        plant=plants.a_taint_proves_that_a_machine_is_off,
        caught_by=("mounted_volumes_are_not_detached",),
        scenario=NODES,
        at=5,
        first=5,
    ),
    Defect(
        name="blkid alone decides whether a device is empty",
        plant=plants.blkid_alone_decides,
        caught_by=(FORMATTED,),
        scenario=NODES,
        at=4,
        first=4,
    ),
    Defect(
        name="a device that cannot be read counts as empty",
        plant=plants.unreadable_devices_count_as_empty,
        caught_by=(FORMATTED,),
        scenario=NODES,
        at=298,
        first=292,
    ),
    Defect(
        name="devices are taken by the names that the cloud guesses",
        plant=plants.devices_are_taken_by_their_names,
        caught_by=("pods_read_what_pods_wrote",),
        scenario=NODES,
        at=10,
        first=10,
    ),
    Defect(
        name="filesystems do not grow",
        plant=plants.filesystems_keep_their_size,
        caught_by=("pods_run_with_their_volumes",),
        scenario=NODES,
        at=1,
    ),
)
