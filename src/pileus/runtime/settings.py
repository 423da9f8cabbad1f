"""Settings of the leader election (`--leader-elect…`)."""

import math
import re
from collections.abc import Iterator

from pileus.dataclass import dataclass
from pileus.settings.config import Config
from pileus.settings.declare import nested, setting, switch
from pileus.settings.go_quote import quote
from pileus.settings.kinds import DURATION, STRING

JITTER_FACTOR = 1.2
_SECTION = "Generic"
_CONFIGZ = "Generic.LeaderElection"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The three durations of an election, in seconds."""

    lease: float = setting(
        "leader-elect-lease-duration",
        DURATION,
        15.0,
        "Time after the last renewal until another replica may take the Lease.",
        section=_SECTION,
        configz=f"{_CONFIGZ}.leaseDuration",
    )
    renew_deadline: float = setting(
        "leader-elect-renew-deadline",
        DURATION,
        10.0,
        "Time for which the leader tries to renew the Lease before it stops; shorter than the "
        "lease duration.",
        section=_SECTION,
        configz=f"{_CONFIGZ}.renewDeadline",
    )
    retry: float = setting(
        "leader-elect-retry-period",
        DURATION,
        2.0,
        "Pause between two attempts to acquire or renew the Lease.",
        section=_SECTION,
        configz=f"{_CONFIGZ}.retryPeriod",
    )

    @property
    def request_timeout(self) -> float:
        return max(1.0, self.renew_deadline / 2)

    @property
    def lease_seconds(self) -> int:
        """Returns what the Lease says: rounded up, so that no one takes it too early."""
        return math.ceil(self.lease)

    def problems(self) -> tuple[str, ...]:
        """Returns which rules the durations break; empty if none."""
        lease, renew, retry = self.lease, self.renew_deadline, self.retry
        rules = (
            (retry > 0, "leader-elect-retry-period must be greater than zero"),
            (renew > 0, "leader-elect-renew-deadline must be greater than zero"),
            (
                lease >= 1,
                "leader-elect-lease-duration must be at least 1s: the Lease counts whole seconds",
            ),
            (
                lease > renew,
                "leader-elect-lease-duration must be greater than leader-elect-renew-deadline",
            ),
            (
                renew > JITTER_FACTOR * retry,
                "leader-elect-renew-deadline must be greater than leader-elect-retry-period*1.2",
            ),
        )
        return tuple(message for holds, message in rules if not holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElectionSettings:
    """Whether and how a Lease is held."""

    enabled: bool = switch(
        "leader-elect",
        "Run controllers only while holding a Lease, so that one of several replicas is active.",
        default=True,
        section=_SECTION,
        configz=f"{_CONFIGZ}.leaderElect",
    )
    durations: Durations = nested(Durations)
    resource_lock: str = setting(
        "leader-elect-resource-lock",
        STRING,
        "leases",
        "Kind of the lock; only 'leases' is supported.",
        section=_SECTION,
        configz=f"{_CONFIGZ}.resourceLock",
    )
    resource_name: str = setting(
        "leader-elect-resource-name",
        STRING,
        "cloud-controller-manager",
        "Name of the Lease.",
        section=_SECTION,
        configz=f"{_CONFIGZ}.resourceName",
    )
    resource_namespace: str = setting(
        "leader-elect-resource-namespace",
        STRING,
        "kube-system",
        "Namespace of the Lease.",
        section=_SECTION,
        configz=f"{_CONFIGZ}.resourceNamespace",
    )

    def problems(self, _config: Config) -> Iterator[str]:
        if not self.enabled:
            return
        if self.resource_lock != "leases":
            yield '--leader-elect-resource-lock: resourceLock value must be "leases"'
        names = {
            "leader-elect-resource-name": (self.resource_name, _SUBDOMAIN, 253),
            "leader-elect-resource-namespace": (self.resource_namespace, _LABEL, 63),
        }
        for flag, (name, form, longest) in names.items():
            if not re.fullmatch(form, name) or len(name) > longest:
                signs = "'-' or '.'" if form is _SUBDOMAIN else "'-'"
                yield (
                    f"--{flag}: {quote(name)} is not a valid name: use at most {longest} lower "
                    f"case letters, digits and {signs} between them"
                )
        yield from self.durations.problems()
