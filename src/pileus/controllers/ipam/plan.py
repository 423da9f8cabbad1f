"""What a pass over one node does about its pod ranges, and how it reads in a plan. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.kube.patch import StrategicPatch
from pileus.objects.nodes import about_node
from pileus.objects.preview import Place, Planned, Scope, Trouble
from pileus.objects.ranges import Range, pod_ranges_of

FULL = "CIDRNotAvailable"
FAILED = "CIDRAssignmentFailed"
ODD = "PodCIDRUnexpected"
"""The reasons of events."""


@dataclass(frozen=True, slots=True)
class ExistingNode:
    """A node as the pass found it."""

    node: Node
    reserved: tuple[Range, ...] | None = None
    """The ranges reserved for it; None if it needs none, or none is free."""
    problems: tuple[str, ...] = ()
    """What is wrong with the ranges that it has."""


@dataclass(frozen=True, slots=True)
class MissingNode:
    """A node that the informer does not have."""

    name: str
    allocated_to: str | None = None
    """The UID of the node that has ranges under this name."""
    still_exists: bool = False
    """Whether the API server has that very node."""


Observation = ExistingNode | MissingNode


@dataclass(frozen=True, slots=True)
class AssignRanges:
    """Write the reserved ranges to the node."""

    node: Node
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class WaitForRange:
    """No range is free: report it, and try again when one is given back."""

    node: Node


@dataclass(frozen=True, slots=True)
class ReportProblems:
    """Warn that ranges of the node are not what this controller would assign."""

    node: Node
    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        return "; ".join(self.problems)


@dataclass(frozen=True, slots=True)
class KeepRanges:
    """The watch lost a node that exists: it keeps its ranges, and is checked again."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseRanges:
    """The node is deleted: give its ranges back."""

    name: str
    uid: str


Step = AssignRanges | WaitForRange | ReportProblems | KeepRanges | ReleaseRanges


def plan(observed: Observation) -> tuple[Step, ...]:
    """Returns the steps of a pass. Empty: the node has its ranges, or is to get none."""
    match observed:
        case ExistingNode(node, problems=problems) if problems:
            return (ReportProblems(node, problems),)
        case ExistingNode(node, reserved) if needs_ranges(node):
            return (AssignRanges(node, reserved) if reserved else WaitForRange(node),)
        case MissingNode(name, str(), still_exists=True):
            return (KeepRanges(name),)
        case MissingNode(name, str(uid)):
            return (ReleaseRanges(name, uid),)
        case _:
            return ()


def needs_ranges(node: Node) -> bool:
    """Returns whether the node is to get pod ranges."""
    return not pod_ranges_of(node) and not node.metadata.deletion_timestamp


def ranges_patch(node: Node, ranges: tuple[Range, ...]) -> tuple[StrategicPatch, str]:
    """Returns the patch that assigns the ranges, and its subresource.

    It names this version of the node: if the node got ranges meanwhile, the patch is a conflict.
    The API server lets pod ranges be set once and never changed.
    """
    texts = [str(each) for each in ranges]
    metadata = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    spec = {"podCIDR": texts[0], "podCIDRs": texts}
    return StrategicPatch({"metadata": metadata, "spec": spec}), ""


def status_text(node: Node, reason: str) -> str:
    """Returns the text of an event, in the words of the Go program."""
    return f"Node {node.metadata.name} status is now: {reason}"


def lines(steps: Iterable[Step], scope: Scope) -> Sequence[Planned | Trouble]:
    """Returns the steps as lines of a plan."""
    return [line for step in steps for line in _lines(step) if scope.has(line.about)]


def _lines(step: Step) -> Iterator[Planned | Trouble]:
    match step:
        case AssignRanges(node, ranges):
            given = ", ".join(str(each) for each in ranges)
            yield Planned(
                about=about_node(node),
                place=Place.CLUSTER,
                effect=Effect.UPDATE,
                summary=f"pod ranges of node {node.metadata.name}",
                details=(f"spec.podCIDRs: [] → [{given}]",),
            )
        case WaitForRange(node):
            yield Trouble(about_node(node), FULL, status_text(node, FULL))
        case ReportProblems(node):
            yield Trouble(about_node(node), ODD, step.text)
        case KeepRanges() | ReleaseRanges():
            pass
        case _:
            assert_never(step)
