"""The steps of a pass over one node, and how they read in a plan."""

import pytest
from msgspec.structs import replace

from pileus.controllers.ipam.plan import (
    AssignRanges,
    ExistingNode,
    KeepRanges,
    MissingNode,
    Observation,
    ReleaseRanges,
    ReportProblems,
    Step,
    WaitForRange,
    lines,
    needs_ranges,
    plan,
    ranges_patch,
)
from pileus.kube.model.core_v1 import Node
from pileus.objects.preview import EVERYTHING, Planned, Trouble
from pileus.objects.ranges import parse_range
from tests.unit.controllers.ipam.test_allocator import node
from tests.unit.controllers.route.objects import START

NEW, OLD = node("n1"), node("n1", "10.0.0.0/24")
RANGE = parse_range("10.0.0.0/24")


def being_deleted(one: Node) -> Node:
    return replace(one, metadata=replace(one.metadata, deletion_timestamp=START))


@pytest.mark.parametrize(
    ("observed", "steps"),
    [
        pytest.param(
            ExistingNode(NEW, (RANGE,)), (AssignRanges(NEW, (RANGE,)),), id="a range is free"
        ),
        pytest.param(ExistingNode(NEW), (WaitForRange(NEW),), id="no range is free"),
        pytest.param(ExistingNode(being_deleted(NEW)), (), id="being deleted"),
        pytest.param(ExistingNode(OLD), (), id="has ranges"),
        pytest.param(
            ExistingNode(OLD, problems=("odd",)), (ReportProblems(OLD, ("odd",)),), id="odd range"
        ),
        pytest.param(MissingNode("n1"), (), id="deleted, had no range"),
        pytest.param(
            MissingNode("n1", "uid-n1"), (ReleaseRanges("n1", "uid-n1"),), id="deleted, had ranges"
        ),
        pytest.param(
            MissingNode("n1", "uid-n1", still_exists=True),
            (KeepRanges("n1"),),
            id="lost by the watch only",
        ),
    ],
)
def test_the_steps_of_a_pass(observed: Observation, steps: tuple[Step, ...]) -> None:
    assert plan(observed) == steps


def test_only_what_users_can_act_on_is_a_line_of_a_plan() -> None:
    steps = (
        AssignRanges(NEW, (RANGE,)),
        WaitForRange(NEW),
        ReportProblems(OLD, ("odd", "odder")),
        KeepRanges("n1"),
        ReleaseRanges("n1", "uid-n1"),
    )

    assign, wait, report = lines(steps, EVERYTHING)

    assert isinstance(assign, Planned)
    assert assign.details == ("spec.podCIDRs: [] → [10.0.0.0/24]",)
    assert isinstance(wait, Trouble)
    assert wait.message == "Node n1 status is now: CIDRNotAvailable"
    assert isinstance(report, Trouble)
    assert report.message == "odd; odder"


def test_nodes_with_ranges_and_nodes_being_deleted_need_none():
    dying = being_deleted(node("n1"))

    assert needs_ranges(node("n1"))
    assert not needs_ranges(node("n1", "10.0.0.0/24"))
    assert not needs_ranges(dying)


def test_the_write_names_the_very_version_of_the_node():
    ranges = (parse_range("10.0.0.0/24"), parse_range("fd00::/64"))

    patch, subresource = ranges_patch(node("n1"), ranges)

    assert subresource == ""
    assert patch.body == {
        "metadata": {"uid": "uid-n1", "resourceVersion": "7"},
        "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"]},
    }
