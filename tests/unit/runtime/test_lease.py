"""What a lease says, and who may take it."""

from datetime import UTC, datetime

import pytest

from pileus.runtime.lease import (
    Candidate,
    Durations,
    Json,
    Observed,
    held,
    new_identity,
    new_lease,
    observe,
    released,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
ME = Candidate("kube-system", "ccm", "me", Durations())


def test_a_new_lease_has_all_fields() -> None:
    assert new_lease(ME, NOW) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "ccm", "namespace": "kube-system"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.000006Z",
            "renewTime": "2026-01-02T03:04:05.000006Z",
            "leaseTransitions": 0,
        },
    }


def others_lease(**more: object) -> Json:
    spec = {"holderIdentity": "you", "leaseDurationSeconds": 9, "leaseTransitions": 4, **more}
    return {"metadata": {"resourceVersion": "7"}, "spec": {**spec, "strategy": "Oldest"}, "x": 1}


def test_taking_a_lease_counts_and_keeps_what_is_unknown() -> None:
    lease = held(others_lease(), ME, NOW)

    assert lease["x"] == 1
    assert lease["metadata"] == {"resourceVersion": "7"}
    assert lease["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-02T03:04:05.000006Z",
        "renewTime": "2026-01-02T03:04:05.000006Z",
        "leaseTransitions": 5,
        "strategy": "Oldest",
    }


def test_renewing_ones_own_lease_changes_only_its_renewal() -> None:
    before = held(others_lease(), ME, datetime(2025, 1, 1, tzinfo=UTC))

    spec = held(before, ME, NOW)["spec"]

    assert isinstance(spec, dict)
    assert spec["leaseTransitions"] == 5
    assert spec["acquireTime"] == "2025-01-01T00:00:00.000000Z"
    assert spec["renewTime"] == "2026-01-02T03:04:05.000006Z"


def test_a_released_lease_is_free_at_once() -> None:
    lease = released(others_lease(), NOW)

    assert Observed(lease, 0).is_free("me", 0)


@pytest.mark.parametrize(
    ("holder", "now", "free"),
    [
        pytest.param("you", 109.0, False, id="not-before-its-own-duration-is-over"),
        pytest.param("you", 109.1, True, id="expired"),
        pytest.param("me", 100.0, True, id="ones-own"),
        pytest.param("", 100.0, True, id="nobodys"),
        pytest.param(None, 100.0, True, id="never-held"),
    ],
)
def test_a_lease_may_be_taken_if(holder: str | None, now: float, free: bool) -> None:
    lease = others_lease(holderIdentity=holder, renewTime="2099-01-01T00:00:00.000000Z")

    assert Observed(lease, 100.0).is_free("me", now) is free


def test_only_a_change_starts_the_time_anew() -> None:
    first = observe(None, others_lease(), 1.0)
    second = observe(first, others_lease(), 2.0)
    third = observe(second, others_lease(renewTime="2026-01-02T03:04:05.000006Z"), 3.0)

    assert [first.since, second.since, third.since] == [1.0, 1.0, 3.0]


def test_an_identity_names_the_host_and_is_never_the_same_twice() -> None:
    one, other = new_identity("node-1"), new_identity("node-1")

    assert one.startswith("node-1_")
    assert one != other
