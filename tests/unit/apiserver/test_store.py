"""The store knows its past, and can take back what did not last."""

from hypothesis import given
from hypothesis import strategies as st

from pileus_lab.apiserver.store import Change, Entry, Key, Shelf, Store

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=30)


class Slow:
    """A journal that never gets done."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def append(self, resource: str, change: Change) -> None:
        self.changes.append(change)


def step(store: Store, shelf: Shelf, name: str, *, gone: bool) -> None:
    key = Key("", name)
    if not gone:
        store.write(shelf, key, {"metadata": {"name": name}})
    elif key in shelf.entries:
        store.remove(shelf, key, {"metadata": {"name": name}})


def snapshot(shelf: Shelf) -> dict[Key, int]:
    return {key: entry.version for key, entry in shelf.entries.items()}


@given(STEPS)
def test_every_remembered_moment_can_be_seen_again(steps: list[tuple[str, bool]]):
    store = Store()
    shelf = store.shelf("things")
    moments = [(store.version, snapshot(shelf))]
    for name, gone in steps:
        step(store, shelf, name, gone=gone)
        moments.append((store.version, snapshot(shelf)))

    for version, then in moments:
        seen: dict[Key, Entry | None] = {**shelf.entries, **shelf.at(version)}
        assert {k: e.version for k, e in seen.items() if e is not None} == then


@given(STEPS, st.integers(0, 30))
def test_undoing_leads_back_to_what_had_settled(steps: list[tuple[str, bool]], settled: int):
    store = Store(journal=Slow())
    shelf = store.shelf("things")
    for name, gone in steps[:settled]:
        step(store, shelf, name, gone=gone)
    store.settle(store.version)
    kept, version = snapshot(shelf), store.version
    for name, gone in steps[settled:]:
        step(store, shelf, name, gone=gone)

    store.undo()
    step(store, shelf, "new", gone=False)

    assert snapshot(shelf) == kept | {Key("", "new"): store.version}
    assert store.version > version
    assert shelf.keys == sorted(shelf.entries)


def test_nobody_is_told_before_a_change_lasts():
    store = Store(journal=Slow())
    shelf = store.shelf("things")
    woken: list[int] = []
    shelf.waiters[lambda: woken.append(store.settled)] = None

    step(store, shelf, "a", gone=False)
    assert woken == []
    store.settle(store.version)

    assert woken == [store.version]


def test_the_past_is_forgotten_beyond_its_limit():
    store = Store(history=3)
    shelf = store.shelf("things")

    for _ in range(5):
        step(store, shelf, "a", gone=False)

    assert len(shelf.history) == 3
    assert shelf.forgotten == store.version - 3
