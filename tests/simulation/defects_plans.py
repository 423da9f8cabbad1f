"""Defects that are planted into plans: the law of the plan must find each of them."""

from collections.abc import Callable, Iterable

from tests.simulation import plants_plans as plans
from tests.simulation.planting import Defect, Patch

PLANNED, EMPTY = "every_write_was_planned", "an_empty_plan_means_no_write"
TRIED, READS = "what_is_planned_is_tried", "a_plan_writes_nothing"
RECORDS = "a_record_changes_nothing_else"
ADOPTED = "a_plan_of_adoption_is_complete"


def _defect(
    name: str,
    plant: Callable[[], Iterable[Patch]],
    at: int = 1,
    law: str = PLANNED,
    scenario: str = "plan",
) -> Defect:
    """Returns a defect that was found by seed `at`; the test begins there, for others are slow."""
    return Defect(name, plant, (law,), within=5, scenario=scenario, first=at, at=at)


DEFECTS = (
    _defect("the plan is always empty", plans.always_empty, at=2, law=EMPTY),
    _defect("a plan names a change that no manager makes", plans.never_done, law=TRIED),
    _defect("a plan is made by doing", plans.plan_by_doing, at=4, law=READS),
    _defect("initialization of nodes is not planned", plans.no_initialization, at=2),
    _defect("nodes are planned with another provider ID", plans.wrong_provider_id, at=2),
    _defect("refreshed addresses are not planned", plans.no_refreshment, at=10),
    _defect("the condition of a stuck node is not planned", plans.no_report_of_stuck_nodes, at=5),
    _defect("deletions of nodes are not planned", plans.no_node_deletion, at=2),
    _defect("the taint of stopped nodes is not planned", plans.no_shutdown_taint, at=5),
    _defect("what follows a second check of nodes is not planned", plans.no_second_look, at=2),
    _defect("finalizers are not planned", plans.no_finalizer, at=2),
    _defect("new balancers, listeners and members are not planned", plans.no_balancer, at=2),
    _defect("member changes are not planned", plans.no_members, at=2),
    _defect("member changes call themselves records", plans.members_as_records, 2, RECORDS),
    _defect(
        "an adoption is planned as a mark alone",
        plans.mark_alone,
        law=ADOPTED,
        scenario="take-over",
    ),
    _defect("the status of Services is not planned", plans.no_status, at=3),
    _defect(
        "the condition of a failing Service is not planned",
        plans.no_report_of_failing_services,
        at=61,
    ),
    _defect("the end of a Service is not planned", plans.no_withdrawal, at=6),
    _defect("the orphan sweeper is not planned", plans.no_orphans, at=20),
    _defect("deletions of routes are not planned", plans.no_route_deletion, at=5),
    _defect("new routes are not planned", plans.no_new_route, at=4),
    _defect("pod ranges are not planned", plans.no_range, at=6),
    _defect("new SSH keys are not planned", plans.no_new_key, at=3),
    _defect("withdrawn SSH keys are not planned", plans.no_withdrawn_key, at=76),
)
