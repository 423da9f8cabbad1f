"""What nodes would be given, as the lines that users read. Pure."""

from collections.abc import Iterator, Sequence

from pileus.cloud.balancer import Effect
from pileus.controllers.ipam.plan import FULL, ODD, Holdings, status_text, wants_ranges
from pileus.controllers.ipam.sizes import Sizes
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import about_node
from pileus.objects.preview import Place, Planned, Scope, Trouble
from pileus.objects.ranges import Range, pod_ranges_of


def lines(sizes: Sizes, nodes: Sequence[Node], scope: Scope) -> Sequence[Planned | Trouble]:
    """What a manager that begins now would do about the nodes of `scope`."""
    return [each for each in _lines(Holdings(sizes), nodes) if scope.has(each.about)]


def _lines(holdings: Holdings, nodes: Sequence[Node]) -> Iterator[Planned | Trouble]:
    for node in filter(pod_ranges_of, nodes):
        if problems := holdings.know(node):
            yield Trouble(about_node(node), ODD, "; ".join(problems))
    for node in filter(wants_ranges, nodes):
        ranges = holdings.promise(node)
        if ranges is None:
            yield Trouble(about_node(node), FULL, status_text(node, FULL))
        else:
            yield _planned(node, ranges)


def _planned(node: Node, ranges: Sequence[Range]) -> Planned:
    given = ", ".join(str(each) for each in ranges)
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=f"pod ranges of node {node.metadata.name}",
        details=(f"spec.podCIDRs: [] → [{given}]",),
    )
