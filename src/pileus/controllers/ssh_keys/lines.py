"""Renders the steps of a pass over SSH keys as lines of a plan."""

from collections.abc import Iterator, Mapping
from typing import assert_never

from pileus.cloud.balancer import Effect
from pileus.cloud.model import NodeName
from pileus.controllers.ssh_keys.events import FAILED
from pileus.controllers.ssh_keys.plan import (
    SECOND_CHECK,
    AddKeys,
    KeepKeys,
    ReportFailure,
    Step,
    WithdrawKeys,
)
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import about_node
from pileus.objects.preview import Place, Planned, Trouble


def rendered(step: Step, nodes: Mapping[NodeName, Node]) -> Iterator[Planned | Trouble]:
    """Yields the lines of one step."""
    match step:
        case AddKeys():
            yield from (_planned(step, nodes[name], Effect.CREATE) for name in step.nodes)
        case WithdrawKeys():
            yield from (_planned(step, nodes[name], Effect.DELETE) for name in step.nodes)
        case ReportFailure(name, error):
            yield Trouble(about_node(nodes[name]), FAILED, str(error))
        case KeepKeys():
            return
        case _:
            assert_never(step)


def _planned(step: AddKeys | WithdrawKeys, node: Node, effect: Effect) -> Planned:
    waits = isinstance(step, WithdrawKeys) and step.wait > 0
    return Planned(
        about=about_node(node),
        place=Place.CLOUD,
        effect=effect,
        summary=f"SSH keys: {len(step.keys)}",
        details=tuple(f"{key.user}: {key.fingerprint}" for key in step.keys),
        waits_for=f"a second check, {SECOND_CHECK:g} s later" if waits else "",
    )
