"""Health endpoints: the register, and texts equal to those of Go components."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.server.health import Health, Kind, Outcome, Report, render

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1)
OUTCOMES = st.lists(
    st.builds(Outcome, NAMES, st.none() | st.just("broken"))
    | st.builds(Outcome, NAMES, excluded=st.just(True)),
    min_size=1,
)


@given(OUTCOMES, st.sampled_from(Kind), st.booleans())
def test_one_failure_is_enough_and_its_reason_stays_here(
    outcomes: list[Outcome], kind: Kind, verbose: bool
):
    status, text = render(Report(kind, tuple(outcomes)), verbose=verbose)

    failed = any(outcome.failure for outcome in outcomes)
    assert status == (500 if failed else 200)
    assert "broken" not in text
    if failed or verbose:
        assert len(text.splitlines()) == len(outcomes) + 1
        assert text.endswith(f"{kind} check {'failed' if failed else 'passed'}\n")
    else:
        assert text == "ok"


def test_the_text_is_that_of_a_go_component():
    outcomes = (Outcome("ping"), Outcome("sick", "very ill"), Outcome("off", excluded=True))

    status, text = render(Report(Kind.READYZ, outcomes, ("a", 'b"c')), verbose=False)

    assert status == 500
    assert text == (
        "[+]ping ok\n"
        "[-]sick failed: reason withheld\n"
        "[+]off excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a","b\\"c"\n'
        "readyz check failed\n"
    )


def names(health: Health, kind: Kind) -> list[str]:
    return [checkup.name for checkup in health.checkups(kind)]


def test_ping_stands_in_where_there_is_no_check():
    health = Health()
    health.add("lease", lambda: None, ready=False)

    assert names(health, Kind.LIVEZ) == ["lease"]
    assert names(health, Kind.READYZ) == ["ping"]

    health.remove("lease")

    assert names(health, Kind.LIVEZ) == ["ping"]


def test_defect_23_what_is_only_not_ready_yet_is_no_reason_to_restart_the_process():
    health = Health()
    health.add("synced", lambda: "not yet", live=False)

    assert names(health, Kind.READYZ) == ["synced"]
    assert names(health, Kind.HEALTHZ) == names(health, Kind.LIVEZ) == ["ping"]


def test_one_name_is_one_check():
    health = Health()
    health.add("lease", lambda: None)

    with pytest.raises(ValueError, match="'lease' already"):
        health.add("lease", lambda: None)


def broken() -> str | None:
    raise ZeroDivisionError("oh")


@pytest.mark.real_time
async def test_a_check_that_raises_fails_alone():
    health = Health()
    health.add("broken", broken)
    health.add("well", lambda: None)

    report = await health.examine(Kind.HEALTHZ, ["well", "nobody"])

    assert [outcome.name for outcome in report.failures] == ["broken"]
    assert "oh" in (report.failures[0].failure or "")
    assert report.outcomes[1] == Outcome("well", excluded=True)
    assert report.unknown == ("nobody",)


@pytest.mark.real_time
async def test_a_check_that_hangs_fails_alone_and_is_not_started_twice():
    health = Health(patience=0.2)
    release, started = threading.Event(), []

    def hang() -> str | None:
        started.append(1)
        release.wait()
        return None

    health.add("stuck", hang)

    for _ in range(3):
        report = await health.examine(Kind.HEALTHZ)
        assert [outcome.name for outcome in report.failures] == ["stuck"]
    assert len(started) == 1

    release.set()
    patient = Health(patience=30)
    patient.add("stuck", hang)
    assert (await patient.examine(Kind.HEALTHZ)).failures == ()


@pytest.mark.real_time
async def test_one_check_is_asked_by_its_name():
    health = Health()
    health.add("sick", lambda: "very ill", live=False)

    assert await health.examine_one(Kind.READYZ, "sick") == Outcome("sick", "very ill")
    assert await health.examine_one(Kind.LIVEZ, "sick") is None
