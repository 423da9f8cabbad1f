"""Who wrote, and who was the leader, from the audit log of the API server. Pure.

A pod is identified by its service account token, which the API server checked; the leader by the
pod that wrote its identity into the Lease.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

ACCOUNTS = "system:serviceaccount:kube-system:"
LEASE = "cloud-controller-manager"
POD = "authentication.kubernetes.io/pod-name"
FOREVER = datetime.max.replace(tzinfo=UTC)
READS = {"get", "list", "watch"}
NOT_COUNTED = {"leases", "events", "tokenreviews", "subjectaccessreviews"}
"""Leases are the election itself. Events and reviews change nothing that a controller manages."""


@dataclass(frozen=True)
class Write:
    """An accepted request that changed something."""

    pod: str
    what: str
    received: datetime
    completed: datetime


@dataclass(frozen=True)
class Term:
    """The time in which a pod was the leader: from its Lease write to its release or the next."""

    pod: str
    begin: datetime
    end: datetime = FOREVER

    def covers(self, write: Write) -> bool:
        inside = self.begin <= write.received and write.completed <= self.end
        return inside and self.pod == write.pod


def read(lines: Iterable[str], pods: str) -> list[dict[str, Any]]:
    """Returns the accepted requests of pods whose names begin so, in the order of their arrival."""
    events = [json.loads(line) for line in lines]
    ours = [
        event
        for event in events
        if event["user"]["username"].startswith(ACCOUNTS)
        and _pod(event).startswith(pods)
        and (event["responseStatus"]["code"] < 300 or event["verb"] == "get")
    ]
    return sorted(ours, key=lambda event: event["requestReceivedTimestamp"])


def writes(events: Sequence[dict[str, Any]]) -> list[Write]:
    return [
        Write(_pod(each), _what(each), _time(each, "requestReceived"), _time(each, "stage"))
        for each in events
        if each["objectRef"]["resource"] not in NOT_COUNTED
    ]


def terms(events: Sequence[dict[str, Any]]) -> list[Term]:
    """Returns the terms of all leaders, oldest first."""
    found: list[Term] = []
    for event in events:
        if not _is_lease(event) or event["verb"] in READS:
            continue
        holder = event["requestObject"]["spec"].get("holderIdentity")
        at = _time(event, "requestReceived")
        is_new = not found or found[-1].end != FOREVER or found[-1].pod != _pod(event)
        if not is_new and holder:
            continue
        if found and found[-1].end == FOREVER:
            found[-1] = Term(found[-1].pod, found[-1].begin, at)
        if holder:
            found.append(Term(_pod(event), at))
    return found


def outside_of_terms(events: Sequence[dict[str, Any]]) -> list[Write]:
    """Returns the writes of pods that were not the leader from their arrival to their answer."""
    leaders = terms(events)
    return [each for each in writes(events) if not any(term.covers(each) for term in leaders)]


def without_overlap(events: Sequence[dict[str, Any]]) -> list[Term]:
    """Returns the terms of leaders that did not yet compete when their predecessor released."""
    first = dict[str, datetime]()
    for event in filter(_is_lease, events):
        first.setdefault(_pod(event), _time(event, "requestReceived"))
    leaders = terms(events)
    pairs = itertools.pairwise(leaders)
    return [after for before, after in pairs if first[after.pod] > before.end]


def _is_lease(event: dict[str, Any]) -> bool:
    return event["objectRef"]["resource"] == "leases" and event["objectRef"].get("name") == LEASE


def _pod(event: dict[str, Any]) -> str:
    return next(iter(event["user"].get("extra", {}).get(POD, [])), "")


def _what(event: dict[str, Any]) -> str:
    ref = event["objectRef"]
    parts = [ref["resource"], ref.get("subresource"), ref.get("namespace"), ref.get("name")]
    return " ".join([event["verb"], *(part for part in parts if part)])


def _time(event: dict[str, Any], stamp: str) -> datetime:
    return datetime.fromisoformat(event[f"{stamp}Timestamp"])
