"""Ask the cloud about nodes that are not ready, with witnesses: nodes that are known to be alive.

A cloud that denies machines whose kubelets are alive (a token that lost a right, the wrong project)
is not believed when it denies others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Instance
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import Answer, look_up
from pileus.objects.nodes import is_ready
from pileus.objects.ownership import Ownership

WITNESSES = 3
"""Nodes asked about besides; one that is found is enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The cluster as it is seen here."""

    node: Callable[[str], Node | None]
    nodes: Callable[[], Sequence[Node]]
    whose: Callable[[Node], Ownership]
    blindness: Callable[[], str]
    """Why what is seen may be old; empty: it is not."""

    def witnesses(self) -> Sequence[Node]:
        alive = (each for each in self.nodes() if is_ready(each))
        return list(islice((n for n in alive if self.whose(n) is Ownership.OURS), WITNESSES))


async def look_at(
    instances: Instances, nodes: Sequence[Node], witnesses: Sequence[Node]
) -> Mapping[str, Answer]:
    """An answer for each of `nodes`, as far as it can be believed."""
    answers = await look_up(instances, [*nodes, *witnesses], fresh=True)
    alive = frozenset(each.metadata.name for each in witnesses)
    asked = {name: answer for name, answer in answers.items() if name not in alive}
    return believed(asked, {name: answers[name] for name in alive})


async def look_first(
    instances: Instances, nodes: Sequence[Node], witnesses: Callable[[], Sequence[Node]]
) -> Mapping[str, Answer]:
    """As `look_at`, while nobody is suspected: only who is denied is asked about with witnesses.

    So machines that are merely stopped cost no more than their own answers.
    """
    answers = await look_up(instances, nodes, fresh=True)
    denied = [node for node in nodes if isinstance(answers[node.metadata.name], Absent)]
    alive = witnesses() if denied else ()
    return {**answers, **await look_at(instances, denied, alive)} if alive else answers


def believed(
    answers: Mapping[str, Answer], witnesses: Mapping[str, Answer]
) -> Mapping[str, Answer]:
    """Without what is denied, if a machine that is alive is denied and none is found. Pure."""
    denied = [name for name, answer in witnesses.items() if isinstance(answer, Absent)]
    if not denied or any(isinstance(answer, Instance) for answer in witnesses.values()):
        return answers
    doubt = Unavailable(f"not believed: the cloud also denies {', '.join(denied)}, who is alive")
    return {name: doubt if isinstance(a, Absent) else a for name, a in answers.items()}
