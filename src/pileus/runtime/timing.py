"""The three times of a leader election, and which of them go together."""

import math
from dataclasses import dataclass

JITTER_FACTOR = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The three times of an election, in seconds (`--leader-elect-*`)."""

    lease: float = 15.0
    """How long others wait, after the lease last changed, before they take it."""
    renew_deadline: float = 10.0
    """How long the leader may go without a renewal before it stops."""
    retry: float = 2.0
    """How long it waits between two renewals, and at least between two attempts."""

    @property
    def request_timeout(self) -> float:
        return max(1.0, self.renew_deadline / 2)

    @property
    def lease_seconds(self) -> int:
        """What the lease says; rounded up, for others must never wait for less than `lease`."""
        return math.ceil(self.lease)


def problems(durations: Durations) -> tuple[str, ...]:
    """What is wrong with the durations, by the names of their flags; empty if nothing is."""
    lease, renew, retry = durations.lease, durations.renew_deadline, durations.retry
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
