"""What an error is called on a node, whether waiting could mend it, and what users are told."""

from collections.abc import Iterator

from pileus.cloud import errors as cloud
from pileus.controllers.node.observation import Facts
from pileus.kube import errors as kube
from pileus.kube.model.core_v1 import Node
from pileus.objects.events import ObjectEvents, shortened
from pileus.objects.node_ips import NodeIpRefused
from pileus.objects.nodes import about_node
from pileus.runtime.failure import PassTooLong, is_expected

PATIENCE = 10.0
"""Seconds for which a node must fail before it is reported, unless waiting cannot fix it."""

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (NodeIpRefused, "ProvidedNodeIPRefused"),
    (cloud.NotFound, "InstanceNotFound"),
    (cloud.Throttled, "CloudThrottled"),
    (cloud.Unavailable, "CloudUnavailable"),
    (cloud.Unauthorized, "CloudUnauthorized"),
    (cloud.Rejected, "CloudLookupRejected"),
    (cloud.CloudError, "CloudLookupFailed"),
    (kube.Conflict, "NodeContested"),
    (kube.Invalid, "NodeWriteInvalid"),
    (kube.Forbidden, "NodeWriteForbidden"),
    (kube.TooLarge, "NodeTooLarge"),
    (kube.ApiError, "NodeWriteFailed"),
    (PassTooLong, "TimedOut"),
)


def reason_of(error: Exception) -> str:
    """The reason of the event and of the condition: one CamelCase word, from a fixed set."""
    return next(
        (name for kind, name in _REASONS if isinstance(error, kind)), "InitializationFailed"
    )


def message_of(error: Exception) -> str:
    if not is_expected(error):
        return f"internal error {type(error).__name__} (see the manager's log)"
    return shortened(str(error) or type(error).__name__)


def is_lasting(error: Exception) -> bool:
    """Whether waiting before the report is of no use.

    True for what does not heal by itself, for what has taken long enough already, and for bugs.
    """
    lasting = cloud.Rejected | kube.Invalid | kube.Forbidden | kube.TooLarge
    return isinstance(error, lasting) or not isinstance(error, cloud.CloudError | kube.KubeError)


def complain(notices: ObjectEvents, node: Node, facts: Facts) -> None:
    """Warn about what the cloud says and Kubernetes does not accept, if there is anything."""
    for reason, text in skipped(facts):
        notices.warn(about_node(node), reason, text)


def skipped(facts: Facts) -> Iterator[tuple[str, str]]:
    """What of the cloud's answer is left out: the reason of a warning, and its text."""
    for reason, complaints in (
        ("CloudAddressSkipped", facts.bad_addresses + facts.unknown_addresses),
        ("CloudLabelSkipped", facts.bad_labels),
    ):
        if complaints:
            yield reason, shortened(f"Left out: {'; '.join(complaints)}")
