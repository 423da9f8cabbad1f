"""Reasons and messages of the events and the condition that report errors on a node. Pure."""

from collections.abc import Iterator

from pileus.cloud import errors as cloud
from pileus.controllers.node.identity import IdentityRefused
from pileus.controllers.node.observation import Facts
from pileus.kube import errors as kube
from pileus.objects.events import shortened
from pileus.objects.node_ips import NodeIpRefused
from pileus.runtime.failure import PassTooLong, is_expected

PATIENCE = 10.0
"""Seconds for which a node must fail before it is reported, unless retries cannot fix it."""

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (NodeIpRefused, "ProvidedNodeIPRefused"),
    (IdentityRefused, "NodeIdentityRefused"),
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
    """Returns the reason of the event and of the condition: CamelCase, from a fixed set."""
    return next(
        (name for kind, name in _REASONS if isinstance(error, kind)), "InitializationFailed"
    )


def message_of(error: Exception) -> str:
    if not is_expected(error):
        return f"internal error {type(error).__name__} (see the manager's log)"
    return shortened(str(error) or type(error).__name__)


def is_lasting(error: Exception) -> bool:
    """Whether the error is reported at once.

    True for errors that retries do not fix, for passes that ran out of time, and for bugs.
    """
    lasting = cloud.Rejected | kube.Invalid | kube.Forbidden | kube.TooLarge
    return isinstance(error, lasting) or not isinstance(error, cloud.CloudError | kube.KubeError)


def skipped(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yields a reason and a message for what Kubernetes does not accept of the cloud's answer."""
    for reason, problems in (
        ("CloudAddressSkipped", facts.bad_addresses + facts.unknown_addresses),
        ("CloudLabelSkipped", facts.bad_labels),
    ):
        if problems:
            yield reason, shortened(f"Ignored: {'; '.join(problems)}")
