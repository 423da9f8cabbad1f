"""The ring of decisions: what is kept, for how long, and how much of it."""

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pileus.telemetry.journal import (
    LONGEST_ENTRY,
    Bounds,
    Call,
    Entry,
    Journal,
    Line,
    Question,
    Subject,
    Write,
    decoded,
)

START = datetime(2026, 11, 17, tzinfo=UTC)
CHANGE = Line(place="cluster", action="update", summary="addresses")


def entry(name: str, number: int = 0, *plan: Line, **more: object) -> Entry:
    at = START + timedelta(seconds=number)
    made = Entry(
        at=at,
        first=at,
        object=Subject(kind="Node", name=name),
        controller="cloud-node",
        seconds=0.1,
        plan=plan,
        result="done",
    )
    return msgspec.structs.replace(made, **more)


def change(number: int) -> Line:
    return Line(place="cluster", action="update", summary=f"change {number}")


def shown(journal: Journal, **asked: object) -> list[Entry]:
    return [*decoded(journal.history(Question(**asked), START))]  # type: ignore[arg-type]


def test_an_entry_is_found_by_its_object_and_says_everything() -> None:
    journal = Journal(START)
    call = Call(method="instances.find", items=3, started=0.01, seconds=0.2)
    write = Write(request="PATCH /api/v1/nodes/web-1", started=0.3, seconds=0.1, status=200)
    journal.add(entry("web-1", 1, CHANGE, calls=(call,), writes=(write,), observed="instance i-1"))
    journal.add(entry("web-2", 2, CHANGE))

    (found,) = shown(journal, kind="Node", name="web-1")
    assert (found.plan, found.calls, found.writes) == ((CHANGE,), (call,), (write,))
    assert found.observed == "instance i-1"
    assert [each.object.name for each in shown(journal)] == ["web-1", "web-2"]
    assert shown(journal, kind="Service", name="web-1") == []


def test_passes_that_found_nothing_to_do_are_not_kept() -> None:
    journal = Journal(START)
    read = Call(method="instances.find", started=0.0, seconds=0.1)
    journal.add(entry("web-1", 1, calls=(read,), observed="instance i-1"))

    assert len(journal) == 0


def test_a_failed_call_and_a_write_to_the_cloud_are_kept_without_a_plan() -> None:
    journal = Journal(START)
    failed = Call(method="instances.find", started=0.0, seconds=0.1, result="Unavailable")
    applied = Call(method="balancers.apply", started=0.0, seconds=0.1, is_write=True)
    journal.add(entry("a", 1, calls=(failed,)))
    journal.add(entry("b", 2, calls=(applied,)))
    journal.add(entry("c", 3, result="failed", message="no"))

    assert [each.object.name for each in shown(journal)] == ["a", "b", "c"]


def test_a_repeated_entry_replaces_the_last_one_and_counts() -> None:
    journal = Journal(START)
    for number, request in enumerate(("req-1", "req-2", "req-3")):
        text = f"GET /servers: 503 (request ID {request})"
        journal.add(entry("web-1", number, CHANGE, result="failed", message=text))
        journal.add(entry("other", number, change(number)))

    found = shown(journal, kind="Node", name="web-1")
    assert [(each.count, each.first) for each in found] == [(3, START)]
    assert found[0].message.endswith("(request ID req-3)")
    assert found[0].at == START + timedelta(seconds=2)


def test_entries_of_two_controllers_that_alternate_are_merged_too() -> None:
    journal = Journal(START)
    for number in range(3):
        journal.add(entry("web-1", number, CHANGE, controller="cloud-node"))
        journal.add(entry("web-1", number, change(1), controller="node-monitor"))

    assert [(each.controller, each.count) for each in shown(journal)] == [
        ("cloud-node", 3),
        ("node-monitor", 3),
    ]


def test_an_entry_with_a_write_is_never_merged() -> None:
    journal = Journal(START)
    write = Write(request="PATCH /api/v1/nodes/web-1", started=0.0, seconds=0.1, status=200)
    for number in range(2):
        journal.add(entry("web-1", number, CHANGE, writes=(write,)))

    assert len(shown(journal)) == 2


def test_one_busy_object_does_not_push_out_the_others() -> None:
    journal = Journal(START, Bounds(per_object=5))
    journal.add(entry("quiet", 0, CHANGE))
    for number in range(1000):
        journal.add(entry("busy", number, change(number)))

    assert len(shown(journal, kind="Node", name="busy")) == 5
    assert len(shown(journal, kind="Node", name="quiet")) == 1
    assert journal.dropped == 995


def test_asking_after_a_sequence_number_returns_what_is_new() -> None:
    journal = Journal(START)
    journal.add(entry("web-1", 1, CHANGE))
    seen = journal.history(Question(), START).sequence
    assert shown(journal, after=seen) == []
    journal.add(entry("web-2", 2, CHANGE))

    assert [each.object.name for each in shown(journal, after=seen)] == ["web-2"]


def test_the_newest_entries_are_returned_if_there_are_too_many() -> None:
    journal = Journal(START)
    for number in range(10):
        journal.add(entry(f"n{number}", number, CHANGE))

    assert [each.object.name for each in shown(journal, limit=2)] == ["n8", "n9"]


def test_a_huge_entry_is_shortened() -> None:
    journal = Journal(START)
    details = tuple("x" * 400 for _ in range(20))
    lines = tuple(
        Line(place="cloud", action="create", summary=f"{n}", details=details) for n in range(40)
    )
    journal.add(entry("web-1", 1, *lines))

    assert 0 < journal.size <= LONGEST_ENTRY
    assert shown(journal)[0].plan[0].summary == "0"


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 5), st.booleans()), max_size=200),
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(1000, 6000),
)
def test_no_bound_is_ever_exceeded_and_nothing_else_is_lost(
    adds: list[tuple[str, int, bool]], per_object: int, entries: int, size: int
) -> None:
    bounds = Bounds(per_object=per_object, entries=entries, total_bytes=size)
    journal = Journal(START, bounds)
    merged = 0
    for number, (name, kind, is_long) in enumerate(adds):
        journal.add(entry(name, number, change(kind), observed="o" * 300 if is_long else ""))
        found = shown(journal)
        merged += found[-1].count > 1
        assert len(found) == len(journal) <= entries
        assert journal.size == sum(len(msgspec.json.encode(each)) for each in found) <= size
        names = [each.object.name for each in found]
        assert max(map(names.count, names), default=0) <= per_object
        assert journal.objects == len(set(names))
    assert len(journal) + journal.dropped + merged == len(adds)
    assert [each.sequence for each in shown(journal)] == sorted(e.sequence for e in shown(journal))
