"""What the cloud reports about nodes that are not ready, as far as it can be trusted.

Healthy nodes are looked up as witnesses. A cloud that does not know the instances of healthy nodes
(credentials without a permission, the wrong project) is not trusted when it denies others.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from pileus.cloud.errors import CloudError, NotFound, Unavailable, Unsupported
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Asked, Instance
from pileus.dataclass import dataclass
from pileus.kube.model.core_v1 import Node
from pileus.objects.lookup import Answer, look_up
from pileus.objects.nodes import is_ready
from pileus.objects.ownership import Ownership, Whose
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

log = Log(__name__)

WITNESSES = 3
"""Healthy nodes that are looked up as well; one that is found is enough."""
EXISTS, SHUTDOWN = "instance_exists", "instance_shutdown"
"""A batched lookup counts, for each node, as the calls that the Go framework would make."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A node, and the cloud's answer about its instance."""

    node: Node
    whose: Ownership
    answer: Answer | None = None
    """None: the cloud was not asked, because the node is ready."""


def answer_text(seen: Observed) -> str:
    """Returns what was observed, in one line."""
    match seen.answer:
        case None:
            return "node is ready" if is_ready(seen.node) else ""
        case Instance() as found:
            name = found.provider_id or found.id
            return f"node is not ready; instance {name} is {found.state}"
        case Absent(evidence):
            return f"node is not ready; no instance: {evidence}"
        case error:
            return f"node is not ready; instance unknown: {type(error).__name__}: {error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """The nodes as the informer shows them."""

    node: Callable[[str], Node | None]
    nodes: Callable[[], Sequence[Node]]
    whose: Whose
    staleness: Callable[[], str]
    """Why the view may be stale; empty: it is current."""

    def ours(self) -> frozenset[str]:
        """Returns the UIDs of all nodes of this cloud."""
        return frozenset(n.metadata.uid for n in self.nodes() if self.whose(n) is Ownership.OURS)

    def witnesses(self) -> Sequence[Node]:
        ready = (each for each in self.nodes() if is_ready(each))
        return list(islice((n for n in ready if self.whose(n) is Ownership.OURS), WITNESSES))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLookup:
    """Asks the cloud about nodes that are not ready. All evidence comes from here.

    With several clouds in a manager, `instances` denies an unidentified node only if all do.
    """

    instances: Instances
    view: ClusterView

    async def answers(
        self, nodes: Sequence[Node], *, witnesses: bool, suspected: bool
    ) -> Mapping[str, Answer]:
        """Returns a trusted answer for each node's name.

        `witnesses`: whether an answer may lead to a deletion. `suspected`: whether one of the
        nodes was reported absent before; otherwise only denied nodes cost a lookup of witnesses.
        """
        if not witnesses:
            return await look_up_with_witnesses(self.instances, nodes, ())
        if suspected:
            return await look_up_with_witnesses(self.instances, nodes, self.view.witnesses())
        return await look_up_then_witnesses(self.instances, nodes, self.view.witnesses)


async def look_up_with_witnesses(
    instances: Instances, nodes: Sequence[Node], witnesses: Sequence[Node]
) -> Mapping[str, Answer]:
    """Returns an answer for each of `nodes`, as far as it can be trusted."""
    answers = await look_up(instances, [*nodes, *witnesses], fresh=True)
    healthy = frozenset(each.metadata.name for each in witnesses)
    asked = {name: answer for name, answer in answers.items() if name not in healthy}
    return trusted(asked, {name: answers[name] for name in healthy})


async def look_up_then_witnesses(
    instances: Instances, nodes: Sequence[Node], witnesses: Callable[[], Sequence[Node]]
) -> Mapping[str, Answer]:
    """As `look_up_with_witnesses`, but looks up witnesses only if a node is denied.

    So nodes whose instances are merely stopped cost no more than their own answers.
    """
    answers = await look_up(instances, nodes, fresh=True)
    denied = [node for node in nodes if isinstance(answers[node.metadata.name], Absent)]
    healthy = witnesses() if denied else ()
    return (
        {**answers, **await look_up_with_witnesses(instances, denied, healthy)}
        if healthy
        else answers
    )


def trusted(answers: Mapping[str, Answer], witnesses: Mapping[str, Answer]) -> Mapping[str, Answer]:
    """Returns the answers without `Absent` if a witness is denied and none is found. Pure."""
    denied = [name for name, answer in witnesses.items() if isinstance(answer, Absent)]
    if not denied or any(isinstance(answer, Instance) for answer in witnesses.values()):
        return answers
    doubt = Unavailable(f"not trusted: the cloud also denies healthy nodes ({', '.join(denied)})")
    return {name: doubt if isinstance(a, Absent) else a for name, a in answers.items()}


class LookupReport:
    """Counts lookups in metrics and logs failed ones, once per kind of error."""

    def __init__(self, metrics: Metrics) -> None:
        self._calls = metrics.lifecycle_calls
        self._failing: frozenset[str] = frozenset()

    def cancelled(self, nodes: int) -> None:
        self._calls.labels(EXISTS, "canceled").inc(nodes)

    def answered(self, answers: Mapping[str, Answer]) -> None:
        for answer in answers.values():
            self._count(answer)
        failed: dict[str, list[str]] = {}
        for name, answer in answers.items():
            if isinstance(answer, CloudError):
                failed.setdefault(type(answer).__name__, []).append(name)
        for kind in failed.keys() - self._failing:
            names = failed[kind]
            log.warning(
                "Cannot look up nodes that are not ready; taking no action",
                nodes=len(names),
                first=names[0],
                err=answers[names[0]],
            )
        self._failing = frozenset(failed)

    def _count(self, answer: Answer) -> None:
        for operation, result in answer.asked or _usual(answer):
            self._calls.labels(operation, result).inc()


def _usual(answer: Answer) -> Asked:
    """Returns the calls that the Go framework would have made for this answer."""
    match answer:
        case Instance():
            return ((EXISTS, "success"), (SHUTDOWN, "success"))
        case Absent() | NotFound():
            return ((EXISTS, "instance_not_found"),)
        case Unsupported():
            return ((EXISTS, "not_implemented"),)
        case CloudError():
            return ((EXISTS, "error"),)
