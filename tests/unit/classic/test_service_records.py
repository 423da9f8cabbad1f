"""What a ported provider was last given outlives the process, as a note on the Service."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace as changed

from pileus.classic.errors import ImplementedElsewhere
from pileus.classic.service_records import Note, note_of
from pileus.cloud.balancer import Effect, Ingress, Part, Wish
from pileus.cloud.errors import Unavailable
from pileus.fence import Fenced
from pileus.runtime.failure import server_pause
from pileus.testing.conformance.harness import Crash
from pileus.testing.scripted import Answer, Lost, Scripted, refused
from tests.unit.classic.fakes import (
    GONE,
    OWNER,
    kube_service,
    wish,
)
from tests.unit.classic.noted import NOTE, Cluster, ensured, settle


async def test_after_a_restart_an_unchanged_service_costs_no_call_at_all():
    cluster = await ensured()

    async with cluster.process() as (balancers, record):
        seen = await settle(balancers, wish("n1"))

    assert record.names == []
    assert cluster.patches == []
    assert seen.balancer.ingress == (Ingress(ip="203.0.113.7"),)


async def test_after_a_restart_a_service_that_vanishes_is_cleaned_up_as_it_was_last_seen():
    cluster = await ensured()

    async with cluster.process() as (balancers, record):
        await settle(balancers, wish("n1"))
        last = cluster.view.known_services.pop(OWNER.uid)
        cluster.lags = True

        assert await balancers.owners(OWNER.cluster) == {OWNER}
        await settle(balancers, GONE)

        assert record.calls == [("get", "blue", last), ("delete", "blue", last)]
        assert await balancers.owners(OWNER.cluster) == frozenset()


async def test_after_a_restart_a_deep_look_asks_and_has_what_is_gone_ensured():
    cluster = await ensured()

    async with cluster.process() as (balancers, record):
        await settle(balancers, wish("n1"), deep=True)
        record.answers["get"] = None
        await settle(balancers, wish("n1"), deep=True)

    assert record.names == ["get", "get", "ensure"]


async def test_after_a_restart_other_members_alone_are_an_update():
    cluster = await ensured()

    async with cluster.process() as (balancers, record):
        seen = (await balancers.observe([wish("n1", "n2")], deep=False))[OWNER]
        (change,) = balancers.changes(wish("n1", "n2"), seen)
        await settle(balancers, wish("n1", "n2"))
    async with cluster.process() as (balancers, later):
        await settle(balancers, wish("n1", "n2"))

    assert change.part is Part.MEMBERS
    assert [(call[0], call[3]) for call in record.calls] == [("update", ["n1", "n2"])]
    assert later.names == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c: c.put(port=81), id="port"),
        pytest.param(lambda c: c.put(annotations={"a": "b"}), id="annotations, the note lost too"),
        pytest.param(
            lambda c: c.put(annotations={**c.stored.metadata.annotations, "a": "b"}),
            id="annotations",
        ),
        pytest.param(lambda c: c.note("nonsense"), id="a note that makes no sense"),
        pytest.param(lambda c: c.note(None), id="the note removed by hand"),
    ],
)
async def test_after_a_restart_another_service_is_ensured(change: Any):
    cluster = await ensured()
    change(cluster)

    async with cluster.process() as (balancers, record):
        await settle(balancers, wish("n1"))
        await settle(balancers, wish("n1"))

    assert record.names == ["ensure"]


async def test_trap_16_the_note_of_another_service_says_nothing():
    cluster = await ensured()
    restored = changed(cluster.stored.metadata, uid="restored")
    cluster.view.known_services["restored"] = changed(cluster.stored, metadata=restored)
    wanted = replace(wish("n1"), owner=replace(OWNER, uid="restored"))

    async with cluster.process() as (balancers, _):
        seen = (await balancers.observe([wanted], deep=False))[wanted.owner]

        assert [change.effect for change in balancers.changes(wanted, seen)] == [Effect.UPDATE]


async def test_an_ensure_creates_unless_an_address_shows_that_the_load_balancer_exists():
    never_ensured, without_note = Cluster(), await ensured()
    without_note.note(None)

    assert await _effects(never_ensured) == [Effect.CREATE]
    assert await _effects(without_note) == [Effect.UPDATE]
    assert await _effects(await ensured()) == []
    assert await _effects(await ensured(), get=None) == [Effect.CREATE], "deleted by hand"


async def _effects(cluster: Cluster, **answers: Any) -> list[Effect]:
    async with cluster.process(**answers) as (balancers, _):
        seen = (await balancers.observe([wish("n1")], deep=True))[OWNER]
        return [change.effect for change in balancers.changes(wish("n1"), seen)]


async def test_another_cluster_name_means_another_balancer():
    cluster = await ensured()

    async with cluster.process(name="green") as (balancers, record):
        await settle(balancers, wish("n1"))

    assert record.names == ["ensure"]


@pytest.mark.parametrize("call", ["ensure", "update", "delete"])
async def test_while_a_call_is_under_way_there_is_no_note(call: str):
    cluster = await ensured()
    noted: list[bool] = []
    wanted = {"ensure": wish("n1"), "update": wish("n2"), "delete": GONE}[call]
    if call == "ensure":
        cluster.put(annotations={**(cluster.stored.metadata.annotations or {}), "a": "b"})

    class Watching(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            if key == call:
                noted.append(cluster.is_noted)
            return super().get(key, default)

    async with cluster.process() as (balancers, record):
        record.answers = Watching()
        await settle(balancers, wanted)

    assert noted == [False]
    assert cluster.is_noted is (call != "delete")


async def die(cluster: Cluster, call: str, wanted: Wish) -> None:
    async with cluster.process() as (balancers, record):
        record.answers[call] = Crash()
        await settle(balancers, wanted)


@pytest.mark.parametrize(("call", "wanted"), [("update", wish("n2")), ("ensure", wish("n1"))])
async def test_who_dies_in_a_call_is_followed_by_one_who_ensures(call: str, wanted: Any):
    cluster = await ensured()
    if call == "ensure":
        cluster.put(annotations={**(cluster.stored.metadata.annotations or {}), "a": "b"})
    with pytest.raises((Crash, BaseExceptionGroup)):
        await die(cluster, call, wanted)
    if call == "ensure":
        cluster.put(annotations={})

    async with cluster.process() as (balancers, record):
        await settle(balancers, wish("n1"))

    assert record.names == ["ensure"]


async def test_trap_5_what_was_deleted_is_made_again_when_the_service_wants_it_back():
    cluster = await ensured()

    async with cluster.process() as (balancers, record):
        await settle(balancers, GONE)
        await settle(balancers, wish("n1"))

    assert record.names == ["get", "delete", "ensure"]


async def test_a_note_of_what_is_gone_is_removed_without_a_call():
    cluster = await ensured()

    async with cluster.process(get=None) as (balancers, record):
        await settle(balancers, GONE)
        await settle(balancers, GONE)

    assert not cluster.is_noted
    assert record.names == ["get", "get"]
    assert cluster.patches == [None]


async def test_our_own_writes_are_seen_before_the_watch_brings_them():
    cluster = await ensured()
    cluster.lags = True

    async with cluster.process() as (balancers, record):
        await settle(balancers, GONE)
        await settle(balancers, wish("n1"))

    assert record.names == ["get", "delete", "ensure"]


async def test_a_service_that_is_checked_after_its_deletion_is_not_remembered_again():
    """Its finalizer is removed after that check, and no pass follows that could forget it."""
    cluster = await ensured()
    cluster.put(deletion_timestamp=datetime(2030, 1, 1, tzinfo=UTC))

    async with cluster.process() as (balancers, record):
        await settle(balancers, GONE)
        await settle(balancers, GONE)
        cluster.view.known_services.clear()

        assert record.names == ["get", "delete", "get"]
        assert await balancers.owners(OWNER.cluster) == frozenset()


async def test_the_note_of_a_service_that_is_gone_is_removed_once():
    cluster = await ensured()

    async with cluster.process() as (balancers, record):
        await settle(balancers, wish("n1"))
        cluster.view.known_services.clear()
        cluster.lags = True
        await settle(balancers, GONE)
        record.answers["get"] = None
        await settle(balancers, GONE)
        await settle(balancers, GONE)

    assert cluster.patches == [None]
    assert record.names == ["get", "delete", "get", "get"]


async def test_what_someone_else_makes_stays_so_after_a_restart():
    cluster = Cluster()
    for expected in (["ensure"], []):
        async with cluster.process(ensure=ImplementedElsewhere()) as (balancers, record):
            seen = await settle(balancers, wish("n1"))

            assert record.names == expected
            assert seen.balancer is None


async def test_owners_are_those_who_say_so():
    cluster = await ensured()
    async with cluster.process() as (balancers, _):
        assert await balancers.owners(OWNER.cluster) == {OWNER}
        cluster.note(None)
        assert await balancers.owners(OWNER.cluster) == frozenset()
        cluster.put(finalizers=("service.kubernetes.io/load-balancer-cleanup",))
        assert await balancers.owners(OWNER.cluster) == {OWNER}


async def test_without_the_rights_memory_serves_and_one_line_says_so(
    caplog: pytest.LogCaptureFixture,
):
    cluster = Cluster(says=refused(403, "Forbidden", "may not"))

    async with cluster.process() as (balancers, record):
        for members in ("n1", "n1", "n2"):
            await settle(balancers, wish(members))

    assert record.names == ["ensure", "update"]
    assert len(cluster.patches) == 1
    assert [r.getMessage()[:17] for r in caplog.records] == ["No permission to "]


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param({"says": refused(500, "InternalError")}, id="server"),
        pytest.param({"says": refused(422, "Invalid")}, id="another rule"),
        pytest.param({"says": Lost()}, id="network"),
    ],
)
async def test_nothing_is_called_while_an_old_note_cannot_be_removed(trouble: Any):
    cluster = await ensured()
    cluster.says = trouble["says"]

    async with cluster.process() as (balancers, record):
        with pytest.raises(Unavailable, match="cannot remove the annotation"):
            await settle(balancers, wish("n2"))

    assert record.names == []


class Closed:
    def check(self) -> None:
        raise Fenced("the lease is too old")


async def test_a_pause_that_the_api_server_asks_for_is_kept_if_a_note_cannot_be_removed():
    cluster = await ensured()
    cluster.says = refused(503, "ServiceUnavailable", retry_after=7)

    async with cluster.process() as (balancers, _):
        with pytest.raises(Unavailable) as raised:
            await settle(balancers, wish("n2"))

    assert server_pause(raised.value) == 7


async def test_trap_10_who_no_longer_leads_neither_removes_a_note_nor_goes_on():
    cluster = await ensured()

    async with cluster.process(fence=Closed()) as (balancers, record):
        with pytest.raises(Unavailable, match="the lease is too old"):
            await settle(balancers, wish("n2"))

    assert (record.names, cluster.patches) == ([], [])
    assert cluster.is_noted


async def test_a_note_that_could_not_be_written_is_offered_again_until_it_is_there():
    cluster = Cluster(says=Lost(may_have_acted=True))

    async with cluster.process() as (balancers, record):
        seen = await settle(balancers, wish("n1"))
        again = await settle(balancers, wish("n1"))
        assert seen.record == again.record is not None

        cluster.says = None
        await settle(balancers, wish("n1"))
        assert cluster.is_noted
        assert (await settle(balancers, wish("n1"))).record is None

    assert record.names == ["ensure"]
    assert cluster.patches == []


async def test_a_note_that_a_user_removes_is_not_written_again():
    cluster = Cluster()

    async with cluster.process() as (balancers, _):
        await settle(balancers, wish("n1"))
        await settle(balancers, wish("n1"))
        cluster.note(None)
        await settle(balancers, wish("n1"), deep=True)

    assert not cluster.is_noted


REPLACED = Answer(
    422,
    {
        "kind": "Status",
        "code": 422,
        "reason": "Invalid",
        "details": {"causes": [{"field": "metadata.uid", "message": "field is immutable"}]},
    },
)
"""What a patch hears that names its Service by UID, where another one has its name by now."""


@pytest.mark.parametrize("gone", [refused(404, "NotFound"), refused(409, "Conflict"), REPLACED])
async def test_a_service_that_is_gone_needs_no_note(gone: Scripted):
    cluster = await ensured()
    cluster.says = gone

    async with cluster.process() as (balancers, record):
        await settle(balancers, GONE)

    assert record.names == ["get", "delete"]


@pytest.mark.parametrize("note", [Note("a", "b"), Note("a", "b", is_elsewhere=True)])
def test_a_note_is_read_as_it_was_written(note: Note):
    metadata = changed(kube_service().metadata, annotations={NOTE: str(note)})

    assert note_of(changed(kube_service(), metadata=metadata)) == note
