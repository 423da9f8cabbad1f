"""Three durations that leave a leader time to renew, and its followers none to act too early."""

import pytest

from pileus.runtime.settings import Durations


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        pytest.param(Durations(), (), id="defaults"),
        pytest.param(
            Durations(lease=10, renew_deadline=10),
            ("leader-elect-lease-duration must be greater than leader-elect-renew-deadline",),
            id="lease-too-short",
        ),
        pytest.param(
            Durations(renew_deadline=2.4, retry=2),
            ("leader-elect-renew-deadline must be greater than leader-elect-retry-period*1.2",),
            id="no-time-to-retry",
        ),
        pytest.param(
            Durations(lease=15, renew_deadline=10, retry=0),
            ("leader-elect-retry-period must be greater than zero",),
            id="no-pause",
        ),
        pytest.param(
            Durations(lease=0.9, renew_deadline=0.5, retry=0.1),
            ("leader-elect-lease-duration must be at least 1s: the Lease counts whole seconds",),
            id="too-short-to-write-down",
        ),
    ],
)
def test_durations_must_leave_time_to_renew(
    durations: Durations, expected: tuple[str, ...]
) -> None:
    assert durations.problems() == expected


def test_the_lease_never_promises_less_than_its_duration() -> None:
    assert Durations(lease=15.2, renew_deadline=15.1).lease_seconds == 16


def test_requests_have_half_the_renew_deadline_but_a_second_at_least() -> None:
    assert Durations().request_timeout == 5
    assert Durations(renew_deadline=1.5, retry=1).request_timeout == 1
