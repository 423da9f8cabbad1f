"""Renders the steps of passes over nodes as lines of a plan, for `pileus plan` and the journal."""

from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import NotFound
from pileus.controllers.node.events import PATIENCE, message_of, reason_of
from pileus.controllers.node.patches import StatusWrite, Write, expected
from pileus.controllers.node.plan import CONDITION, Apply, Finish, Report, Retry, Skip, Step, Warn
from pileus.dataclass import replace as changed
from pileus.kube.model.core_v1 import Node, NodeAddress
from pileus.objects.nodes import UNINITIALIZED, about_node, addresses_of, condition_of
from pileus.objects.preview import Place, Planned, Trouble, condition_detail
from pileus.settings.go_quote import quote


def lines(node: Node, steps: Iterable[Step]) -> Iterator[Planned | Trouble]:
    """Yields the lines of the steps, each as a change of what the steps before it leave."""
    about = about_node(node)
    for step in steps:
        match step:
            case Apply(_, write):
                yield _planned(node, write)
                node = expected(node, write)
            case Report():
                yield from _report(node, step)
            case Warn(reason, message):
                yield Trouble(about, reason, message)
            case Skip(NotFound()):
                pass  # the lifecycle controller reports it
            case Skip(error):
                yield Trouble(about, reason_of(error), message_of(error))
            case Finish() | Retry():
                pass
            case _:
                assert_never(step)


def _report(node: Node, report: Report) -> Iterator[Planned | Trouble]:
    if report.write is not None:
        waits_for = f"the failure to last for {PATIENCE:g} s" if report.wait else ""
        yield changed(_planned(node, report.write), waits_for=waits_for)
    yield Trouble(about_node(node), report.reason, report.message)


def _planned(node: Node, write: Write) -> Planned:
    parts = dict(_parts(node, write))
    return Planned(
        about=about_node(node),
        place=Place.CLUSTER,
        effect=Effect.UPDATE,
        summary=", ".join(parts),
        details=tuple(line for lines in parts.values() for line in lines),
    )


def _parts(node: Node, write: Write) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields what the write changes, and the fields before and after."""
    if isinstance(write, StatusWrite):
        if write.addresses is not None:
            change = f"{_list(addresses_of(node))} → {_list(write.addresses)}"
            yield "addresses", (f"status.addresses: {change}",)
        if write.condition is not None:
            before = condition_of(node, CONDITION)
            detail = condition_detail(CONDITION, before, write.condition)
            yield f"condition {CONDITION}", (detail,)
        return
    if write.provider_id:
        yield "provider ID", (f'spec.providerID: "" → {quote(write.provider_id)}',)
    if write.labels:
        yield "labels", tuple(_labels(node, write.labels.items()))
    if write.taint:
        yield "not accepted", (f"spec.taints: with {UNINITIALIZED}",)
    if write.untaint:
        yield "initialized", (f"spec.taints: without {UNINITIALIZED}",)


def _labels(node: Node, desired: Iterable[tuple[str, str]]) -> Iterator[str]:
    present = node.metadata.labels or {}
    for key, value in sorted(desired):
        before = f"{quote(present[key])} → " if key in present else ""
        yield f"metadata.labels[{key}]: {before}{quote(value)}"


def _list(addresses: Sequence[NodeAddress]) -> str:
    return ", ".join(f"{each.type} {each.address}" for each in addresses) or "none"
