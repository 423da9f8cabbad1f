"""The proof from the audit log finds a second writer, a late write and an early one."""

import json

from tests.e2e.writers import outside_of_terms, read, terms, without_overlap, writes

USER = "system:serviceaccount:kube-system:pileus-cloud-controller-manager"


def event(pod: str, second: float, resource: str, *, took=0.1, holder=None, code=200, verb="patch"):
    at = [f"2026-01-01T00:00:{each:09.6f}Z" for each in (second, second + took)]
    said = {
        "verb": verb,
        "user": {"username": USER, "extra": {"authentication.kubernetes.io/pod-name": [pod]}},
        "objectRef": {"resource": resource, "name": "cloud-controller-manager"},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": at[0],
        "stageTimestamp": at[1],
    }
    return said | (
        {} if holder is None else {"requestObject": {"spec": {"holderIdentity": holder}}}
    )


HAND_OVER = [
    event("ccm-a", 1, "leases", holder="a"),
    event("ccm-a", 3, "leases", holder="a"),
    event("ccm-a", 10, "leases", holder=""),
    event("ccm-b", 12, "leases", holder="b"),
]


def found(*more):
    lines = [json.dumps(each) for each in (*HAND_OVER, *more)]
    return read(lines, "ccm-")


def test_a_term_lasts_from_the_first_lease_write_to_the_release():
    first, second = terms(found())
    assert (first.pod, first.begin.second, first.end.second) == ("ccm-a", 1, 10)
    assert (second.pod, second.begin.second) == ("ccm-b", 12)


def test_a_standby_that_watches_the_lease_has_no_term():
    watching = event("ccm-b", 5, "leases", verb="watch", took=4)
    assert [each.pod for each in terms(found(watching))] == ["ccm-a", "ccm-b"]


def test_a_killed_leader_is_the_leader_until_the_next_one_takes_the_lease():
    killed = [each for each in HAND_OVER if "T00:00:10" not in str(each)]
    first, second = terms(read(map(json.dumps, killed), "ccm-"))
    assert first.end == second.begin


def test_writes_of_the_leader_are_accepted():
    events = found(event("ccm-a", 2, "nodes"), event("ccm-b", 13, "services"))
    assert len(writes(events)) == 2
    assert outside_of_terms(events) == []


def test_a_write_of_the_other_replica_is_found():
    assert [each.pod for each in outside_of_terms(found(event("ccm-b", 5, "nodes")))] == ["ccm-b"]


def test_a_write_before_the_lease_and_one_that_outlasts_the_release_are_found():
    early, late = event("ccm-b", 11, "nodes"), event("ccm-a", 9.95, "services")
    assert {each.pod for each in outside_of_terms(found(early, late))} == {"ccm-a", "ccm-b"}


def test_a_leader_that_starts_after_the_release_is_found():
    assert [term.pod for term in without_overlap(found())] == ["ccm-b"]
    assert without_overlap(found(event("ccm-b", 8, "leases", verb="get"))) == []


def test_refused_writes_events_and_other_accounts_do_not_count():
    other = event("web", 5, "nodes")
    events = found(other, event("ccm-b", 5, "nodes", code=409), event("ccm-b", 5, "events"))
    assert outside_of_terms(events) == []
