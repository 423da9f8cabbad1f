"""Planted defects of who is meant: the check of the UID is left out, one place at a time.

Left out here are checks that another one beside them makes superfluous, such as the UID in a patch
which names the version as well.
"""

from tests.simulation import plants_identity as plants
from tests.simulation.planting import Defect

UNHEARD_OF = "nobody_changes_what_it_has_not_heard_of"

BY_NAME = (
    Defect(
        name="every namespace may use what belongs to others",
        plant=plants.every_namespace_is_trusted,
        caught_by=(
            "only_true_addresses_are_published",
            "others_things_are_left_alone",
            "users_reach_no_balancer_of_others",
        ),
        at=9,
        scenario="tenants",
    ),
    Defect(
        name="a message quotes the text of a user as it is",
        plant=plants.texts_are_quoted_as_they_are,
        caught_by=("texts_of_users_are_no_commands",),
        at=1,
        scenario="tenants",
    ),
    Defect(
        name="a node may claim the machine of another",
        plant=plants.nodes_may_claim_any_machine,
        caught_by=("who_claims_the_machine_of_another_is_not_initialized",),
        at=1,
        scenario="strangers",
    ),
    Defect(
        name="a node is deleted by its name only",
        plant=plants.nodes_are_deleted_by_name,
        caught_by=(UNHEARD_OF, "no_node_is_deleted_whose_machine_exists"),
        at=1,
        scenario="replaced",
    ),
    Defect(
        name="a node is initialized by its name only",
        plant=plants.nodes_are_initialized_by_name,
        caught_by=(UNHEARD_OF,),
        scenario="replaced",
        at=5,
    ),
    Defect(
        name="a node is tainted by its name only",
        plant=plants.nodes_are_marked_by_name,
        caught_by=(UNHEARD_OF,),
        at=5,
        scenario="replaced",
    ),
    Defect(
        name="a node is reported as routed by its name only",
        plant=plants.routes_are_told_by_name,
        caught_by=(UNHEARD_OF,),
        at=1,
        scenario="replaced",
    ),
    Defect(
        name="after a conflict a node is read by its name only",
        plant=plants.nodes_are_read_again_by_name,
        caught_by=("nodes_get_the_id_of_their_own_machine",),
        at=1,
        scenario="replaced",
    ),
    Defect(
        name="a Service is written by its name only",
        plant=plants.services_are_written_by_name,
        caught_by=(UNHEARD_OF,),
        at=1,
        scenario="replaced",
    ),
    Defect(
        name="a Service is read by its name only",
        plant=plants.services_are_read_by_name,
        caught_by=("services_have_what_they_want", "the_finalizer_comes_before_the_balancer"),
        scenario="replaced",
        at=2,
    ),
    Defect(
        name="a finalizer is removed by the Service's name only",
        plant=plants.services_are_released_by_name,
        caught_by=("who_wants_a_balancer_is_not_released",),
        at=7,
        scenario="replaced",
    ),
    Defect(
        name="an event names no UID",
        plant=plants.events_are_told_by_name,
        caught_by=("events_are_about_those_they_name",),
        at=1,
        scenario="replaced",
    ),
)
