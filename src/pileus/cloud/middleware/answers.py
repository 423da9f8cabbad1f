"""Checks what providers answer and raise: the only place that does not trust them.

What leaves it is what the contract promises. An exception that is no `CloudError` becomes
`Unavailable`. Items that were not asked for are dropped; an invalid outcome of one item becomes
its failure; an answer that is invalid as a whole becomes `Unavailable`. All of it is logged and
counted.
"""

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar, cast

from pileus.cloud.balancer import (
    Balancer,
    Change,
    Effect,
    Ingress,
    Notice,
    Owner,
    Part,
    PortStatus,
    Seen,
    Wish,
)
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.model import (
    Absent,
    Address,
    Failure,
    Found,
    Instance,
    InstanceState,
    NodeKeys,
    NodeName,
    NodeRef,
    Route,
    SshKey,
    Zone,
)
from pileus.cloud.provider_context import is_its_own
from pileus.dataclass import dataclass
from pileus.telemetry.log import Log
from pileus.telemetry.metrics import Metrics

T = TypeVar("T")
V = TypeVar("V")
MISSING = object()
REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,127}")
"""Reasons of events, which the API server limits to 128 characters."""
log = Log(__name__)


@dataclass(frozen=True, slots=True)
class Checked(Generic[T]):
    answer: T
    problems: tuple[str, ...] = ()
    """What was dropped from the answer or replaced in it, and why."""


class Guard:
    """Checks the errors and answers of one provider, and reports what is wrong with them."""

    def __init__(self, provider: str, metrics: Metrics) -> None:
        self._provider = provider
        self._invalid_answers = metrics.cloud_odd_answers
        self._reported: set[tuple[str, str]] = set()

    @contextmanager
    def errors(self, method: str) -> Generator[None]:
        """Raise `Unavailable` for exceptions of the block that are not the contract's.

        Cancellation by the caller and Ctrl-C pass. The traceback is logged once per kind.
        """
        try:
            yield
        except CloudError:
            raise
        except BaseException as error:
            if not is_its_own(error):
                raise
            self._report_error(method, error)
            raise Unavailable(
                f'cloud provider "{self._provider}" failed in {method}: '
                f"{type(error).__name__}: {error}"
            ) from error

    def checked(
        self, method: str, check: Callable[[Any, object], Checked[T]], asked: object, answer: object
    ) -> T:
        """Returns the valid part of an answer. Raises `Unavailable` if there is none."""
        try:
            result = check(asked, answer)
        except Unavailable as error:
            self._report_answer(method, str(error))
            raise Unavailable(
                f'cloud provider "{self._provider}" answered {method} with {error}'
            ) from None
        for problem in result.problems:
            self._report_answer(method, problem)
        return result.answer

    def owns(self, function: Callable[[NodeRef], bool | None], node: NodeRef) -> bool | None:
        """Returns the answer of `Cloud.owns`; None, for unknown, if it fails or is invalid."""
        try:
            with self.errors("owns"):
                verdict = cast("object", function(node))
        except CloudError:
            return None
        return verdict if isinstance(verdict, bool) else None

    def health(self, function: Callable[[], str | None]) -> str | None:
        """Returns the answer of `Cloud.health`, with the provider's name."""
        try:
            with self.errors("health"):
                answer = cast("object", function())
        except CloudError as error:
            return str(error)
        return None if answer is None else f'cloud provider "{self._provider}": {answer}'

    def _report_error(self, method: str, error: BaseException) -> None:
        where = (method, type(error).__qualname__)
        if where in self._reported:
            return
        self._reported.add(where)
        log.exception(  # noqa: LOG004 -- called where it is caught
            "Cloud provider raised an exception that is no CloudError: a bug in the provider",
            error=error,
            provider=self._provider,
            method=method,
        )

    def _report_answer(self, method: str, problem: str) -> None:
        capability, _, name = method.partition(".")
        self._invalid_answers.labels(self._provider, capability, name).inc()
        log.warning(
            "Cloud provider gave an invalid answer: a bug in the provider",
            provider=self._provider,
            method=method,
            problem=problem,
        )


# -- the checks: each is called with what was asked and what was answered ----------------------


def check_found(nodes: Sequence[NodeRef], answer: object) -> Checked[Mapping[NodeName, Found]]:
    return _checked_outcomes([node.name for node in nodes], answer, _problem_with_found)


def _problem_with_found(found: object) -> str:
    match found:
        case Instance():
            return _problem_with_instance(found)
        case Absent(evidence=str()) | Failure(error=CloudError()):
            return ""
        case _:
            return f"{kind(found)} instead of an Instance, Absent or Failure"


TEXTS = ("id", "provider_id", "type", "zone", "region")


def _problem_with_instance(instance: Instance) -> str:
    for name in TEXTS:
        value = getattr(instance, name)
        if not isinstance(value, str):
            return f"an Instance whose {name} is {kind(value)} instead of text"
    if not are_all(instance.addresses, tuple, Address):
        return "an Instance whose addresses are not a tuple of Address"
    for name in ("names", "aliases"):
        if not are_all(getattr(instance, name), frozenset, str):
            return f"an Instance whose {name} are not a frozenset of texts"
    if not _is_mapping_of_texts(instance.labels):
        return "an Instance whose labels are not a mapping of texts"
    if not are_all((instance.state,), tuple, InstanceState):
        return f"an Instance whose state is {instance.state!r}"
    return ""


def are_texts(labels: Mapping[object, object]) -> bool:
    return all(isinstance(text, str) for item in labels.items() for text in item)


def check_keys(
    nodes: Sequence[NodeRef], answer: object
) -> Checked[Mapping[NodeName, NodeKeys | Failure]]:
    return _checked_outcomes([node.name for node in nodes], answer, _problem_with_keys)


def _problem_with_keys(keys: object) -> str:
    match keys:
        case Failure(error=CloudError()):
            return ""
        case NodeKeys() if are_all(keys.ours, frozenset, SshKey) and are_all(
            keys.others, frozenset, SshKey
        ):
            return ""
        case _:
            return f"{kind(keys)} instead of NodeKeys or a Failure"


def check_observed(
    wishes: Sequence[Wish], answer: object
) -> Checked[Mapping[Owner, Seen | Failure]]:
    return _checked_outcomes([wish.owner for wish in wishes], answer, _problem_with_observed)


def _problem_with_observed(seen: object) -> str:
    match seen:
        case Failure(error=CloudError()):
            return ""
        case _:
            return _problem_with_seen(seen)


def check_seen(_: object, answer: object) -> Checked[Seen]:
    if problem := _problem_with_seen(answer):
        raise Unavailable(problem)
    return Checked(cast("Seen", answer))


def _problem_with_seen(seen: object) -> str:
    match getattr(seen, "balancer", MISSING):
        case None:
            return ""
        case Balancer() as balancer:
            problem = _problem_with_balancer(balancer)
            return f"{kind(seen)} whose {problem}" if problem else ""
        case _:
            return f"{kind(seen)}, which has no `balancer`"


def _problem_with_balancer(balancer: Balancer) -> str:
    if not _is_ingress(balancer.ingress):
        return f"ingress is {balancer.ingress!r}"
    if not are_all(balancer.notices, tuple, Notice):
        return "notices are not a tuple of Notice"
    wrong = next((each for each in balancer.notices if not _is_notice(each)), None)
    if wrong is not None:
        return f"notice is {wrong!r} instead of one CamelCase word and a message"
    return "" if _is_mapping_of_texts(balancer.annotations) else "annotations are no texts"


def _is_notice(notice: Notice) -> bool:
    reason, message = cast("object", notice.reason), cast("object", notice.message)
    is_word = isinstance(reason, str) and REASON.fullmatch(reason) is not None
    return is_word and isinstance(message, str) and bool(message.strip())


def _is_mapping_of_texts(value: object) -> bool:
    return isinstance(value, Mapping) and are_texts(cast("Mapping[object, object]", value))


def _is_ingress(ingress: object) -> bool:
    """Whether it is a tuple of `Ingress`, each with a tuple of `PortStatus`."""
    return are_all(ingress, tuple, Ingress) and all(
        are_all(each.ports, tuple, PortStatus) for each in cast("Sequence[Ingress]", ingress)
    )


def check_owners(cluster: str, answer: object) -> Checked[frozenset[Owner]]:
    """Keeps the owners of this cluster: objects of other clusters must never be touched."""
    if not isinstance(answer, Collection):
        raise Unavailable(f"{kind(answer)} instead of a set of owners")
    items = cast("Collection[object]", answer)
    good = {item for item in items if isinstance(item, Owner) and item.cluster == cluster}
    dropped = [f"{item!r}, which is no owner of this cluster" for item in items if item not in good]
    return Checked(frozenset(good), tuple(dropped))


CHANGE: Mapping[str, type] = {"effect": Effect, "summary": str, "part": Part}


def check_changes(_: object, answer: object) -> Checked[tuple[Change, ...]]:
    """Drops nothing: a plan without one of its changes is another plan."""
    if not isinstance(answer, tuple):
        raise Unavailable(f"{kind(answer)} instead of a tuple of changes")
    for item in cast("tuple[object, ...]", answer):
        for name, wanted in CHANGE.items():
            value = getattr(item, name, None)
            if not isinstance(value, wanted):
                raise Unavailable(
                    f"a {kind(item)} whose {name} is {kind(value)} instead of {wanted.__name__}"
                )
    return Checked(cast("tuple[Change, ...]", answer))


def check_routes(_: object, answer: object) -> Checked[Sequence[Route]]:
    """Drops nothing: a route missing from the list would be created again."""
    return _checked_sequence(answer, Route, "a sequence of routes")


def check_route_errors(
    routes: Sequence[Route], answer: object
) -> Checked[Mapping[Route, CloudError]]:
    return _checked_errors(frozenset(routes), answer)


def check_node_errors(
    nodes: Sequence[NodeRef], answer: object
) -> Checked[Mapping[NodeName, CloudError]]:
    return _checked_errors(frozenset(node.name for node in nodes), answer)


def check_zone(_: object, answer: object) -> Checked[Zone]:
    return Checked(as_kind(answer, Zone, "a Zone"))


def check_text(_: object, answer: object) -> Checked[str]:
    return Checked(as_kind(answer, str, "a text"))


def check_texts(_: object, answer: object) -> Checked[Sequence[str]]:
    return _checked_sequence(answer, str, "a sequence of texts")


def check_nothing(_: object, __: object) -> Checked[None]:
    """The method answers nothing; if a provider does, it is ignored."""
    return Checked(None)


# -- what the checks have in common ------------------------------------------------------------


def kind(thing: object) -> str:
    return "None" if thing is None else type(thing).__name__


def _checked_outcomes(
    asked: Collection[T], answer: object, problem_with: Callable[[object], str]
) -> Checked[Mapping[T, Any]]:
    """Keeps the outcomes of what was asked for. An invalid one becomes a `Failure` of its item."""
    known = frozenset(asked)
    good: dict[T, object] = {}
    problems: list[str] = []
    for item, outcome in as_mapping(answer).items():
        if item not in known:
            problems.append(f"an answer for {item!r}, which was not asked for")
        elif problem := problem_with(outcome):
            problems.append(f"{problem} for {item!r}")
            good[cast("T", item)] = Failure(Unavailable(f"the provider answered with {problem}"))
        else:
            good[cast("T", item)] = outcome
    return Checked(good, tuple(problems))


def _checked_errors(asked: frozenset[T], answer: object) -> Checked[Mapping[T, CloudError]]:
    """Keeps the errors of what was asked for. An invalid one becomes `Unavailable`."""
    good: dict[T, CloudError] = {}
    problems: list[str] = []
    for item, error in as_mapping(answer).items():
        if item not in asked:
            problems.append(f"a result for {item!r}, which was not asked for")
        elif not isinstance(error, CloudError):
            problems.append(f"{kind(error)} instead of an error for {item!r}")
            good[cast("T", item)] = Unavailable(f"the provider answered with {kind(error)}")
        else:
            good[cast("T", item)] = error
    return Checked(good, tuple(problems))


def _checked_sequence(answer: object, item: type[T], wanted: str) -> Checked[Sequence[T]]:
    if not isinstance(answer, list | tuple):
        raise Unavailable(f"{kind(answer)} instead of {wanted}")
    for each in cast("Sequence[object]", answer):
        if not isinstance(each, item):
            raise Unavailable(f"{kind(each)} instead of a {item.__name__}")
    return Checked(cast("Sequence[T]", answer))


def as_kind(answer: object, wanted: type[T], called: str) -> T:
    if not isinstance(answer, wanted):
        raise Unavailable(f"{kind(answer)} instead of {called}")
    return answer


def as_mapping(answer: object) -> Mapping[object, object]:
    if not isinstance(answer, Mapping):
        raise Unavailable(f"{kind(answer)} instead of a mapping")
    return cast("Mapping[object, object]", answer)


def are_all(values: object, container: type, item: type) -> bool:
    return isinstance(values, container) and all(
        isinstance(value, item) for value in cast("Collection[object]", values)
    )
