"""The SSH key controller as its operators meet it."""

import asyncio
import logging

import pytest

from pileus.cloud.errors import NotFound, Rejected, Throttled, Unavailable, Unsupported
from pileus.controllers.ssh_keys.plan import SECOND_CHECK
from pileus.controllers.ssh_keys.reconciler import CHECK_EVERY, RETRY_NODES
from pileus.objects.preview import EVERYTHING, Planned, Scope, Trouble
from pileus.testing.virtual_time import VirtualTimeLoop
from tests.unit.controllers.ssh_keys.bed import CLUSTER, Ported, bed, refs
from tests.unit.controllers.ssh_keys.keys import PRIVATE, key, public_key

ANN, BOB = key("ann"), key("bob")
SOON = 5.0
LATER = 2 * SECOND_CHECK + SOON


async def test_all_nodes_get_the_keys_in_one_call_and_then_there_is_peace():
    async with bed("n1", "n2", "n3") as it:
        await it.publish(ann=ANN.public_key, bob=f"{BOB.public_key} bob@home")
        await asyncio.sleep(SOON)

        assert all(it.accepted(name) == {ANN, BOB} for name in it.machines)
        assert it.cloud.writes == [("add", 2, 3)]
        assert it.events.reasons() == ["SshKeysAdded"] * 3
        assert ANN.fingerprint in it.events.told[-1].message

        await asyncio.sleep(3 * CHECK_EVERY)
        assert len(it.cloud.writes) == 1
        assert it.sample("pileus_ssh_keys_nodes", state="current") == 3
        assert it.sample("pileus_ssh_keys_wanted") == 2


async def test_nodes_that_join_get_the_keys_together_once_they_are_initialized():
    async with bed() as it:
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(SOON)
        for name in ("n1", "n2"):
            await it.join(name)
        await it.join("raw", initialized=False)
        await it.join("foreign-1")
        await asyncio.sleep(SOON)

        assert it.cloud.writes == [("add", 1, 2)]
        await it.client.raw("DELETE", "/api/v1/nodes/raw")
        await it.join("raw")
        await asyncio.sleep(SOON)

        assert it.accepted("raw") == {ANN}
        assert it.accepted("foreign-1") == set()


async def test_a_withdrawn_key_goes_after_a_second_look_and_others_keys_stay():
    async with bed("n1") as it:
        it.machines["n1"][key("by-hand")] = ""
        await it.publish(ann=ANN.public_key, bob=BOB.public_key)
        await asyncio.sleep(SOON)
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(1)
        assert it.accepted("n1") == {ANN, BOB, key("by-hand")}

        await asyncio.sleep(LATER)

        assert it.accepted("n1") == {ANN, key("by-hand")}
        assert it.events.reasons()[-1] == "SshKeysWithdrawn"


async def test_a_key_that_is_wanted_again_at_the_second_look_stays():
    async with bed("n1") as it:
        await it.publish(ann=ANN.public_key, bob=BOB.public_key)
        await asyncio.sleep(SOON)
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(1)
        await it.publish(ann=ANN.public_key, bob=BOB.public_key)
        await asyncio.sleep(LATER)

        assert [call[0] for call in it.cloud.writes] == ["add"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(None, id="gone"),
        pytest.param({}, id="empty"),
        pytest.param({"ann": ""}, id="empty entry"),
        pytest.param({"ann": "ssh-ed25519 AAAAoops"}, id="spoilt"),
        pytest.param({"ann": PRIVATE}, id="private key"),
    ],
)
async def test_a_source_that_is_gone_empty_or_spoilt_withdraws_nothing(change, caplog):
    caplog.set_level(logging.DEBUG)
    async with bed("n1") as it:
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(SOON)
        await (it.withdraw() if change is None else it.publish(**change))
        await asyncio.sleep(3 * CHECK_EVERY)

        assert it.accepted("n1") == {ANN}
        assert it.cloud.writes == [("add", 1, 1)]
        assert it.events.told[-1].kind == "Warning"
        assert it.events.told[-1].about.name == "keys"
        assert it.sample("pileus_ssh_keys_problems") == 1
        said = caplog.text + repr(it.events.told)
        assert "b3BlbnNzaC1rZXktdjEAAAAABG5vbmU" not in said
        assert "AAAAoops" not in said


async def test_the_word_none_withdraws_all():
    async with bed("n1") as it:
        await it.publish(ann=ANN.public_key, bob=BOB.public_key)
        await asyncio.sleep(SOON)
        await it.publish(ann="none")
        await asyncio.sleep(LATER)

        assert it.accepted("n1") == set()


async def test_a_spoilt_line_delays_withdrawals_until_it_is_mended():
    async with bed("n1") as it:
        await it.publish(ann=ANN.public_key, bob=BOB.public_key)
        await asyncio.sleep(SOON)
        await it.publish(ann=f"{ANN.public_key}\noops", cyd=public_key("cyd"))
        await asyncio.sleep(LATER)
        assert it.accepted("n1") == {ANN, BOB, key("cyd")}

        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(LATER)

        assert it.accepted("n1") == {ANN}


async def test_a_secret_is_a_source_as_well():
    async with bed("n1", source="secret:default/keys") as it:
        await it.publish("Secret", ann=ANN.public_key)
        await asyncio.sleep(SOON)

        assert it.accepted("n1") == {ANN}


async def test_a_node_that_fails_is_told_once_and_harms_no_other():
    async with bed("n1", "n2") as it:
        it.cloud.refuses["n1"] = Rejected("no agent on that machine")
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(10 * RETRY_NODES)

        assert it.accepted("n2") == {ANN}
        failed = [one for one in it.events.told if one.reason == "SshKeysFailed"]
        assert [(one.about.name, one.kind) for one in failed] == [("n1", "Warning")]
        assert "no agent on that machine" in failed[0].message
        assert it.sample("pileus_ssh_keys_nodes", state="failed") == 1

        it.cloud.refuses.clear()
        await asyncio.sleep(2 * RETRY_NODES)
        assert it.accepted("n1") == {ANN}
        assert it.sample("pileus_ssh_keys_nodes", state="failed") == 0


async def test_a_node_without_a_machine_is_no_reason_to_hurry():
    async with bed("n1") as it:
        await it.join("gone")
        del it.machines["gone"]
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(CHECK_EVERY)

        assert len(it.cloud.calls) <= 4
        assert it.accepted("n1") == {ANN}


@pytest.mark.parametrize("method", ["list", "add"])
async def test_a_cloud_that_is_away_is_asked_again(method: str):
    async with bed("n1") as it:
        it.cloud.fails[method] = Unavailable("down")
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(60)
        assert it.accepted("n1") == set()

        it.cloud.fails.clear()
        await asyncio.sleep(120)
        assert it.accepted("n1") == {ANN}


async def test_a_cloud_that_asks_to_wait_is_given_its_time():
    async with bed("n1") as it:
        it.cloud.fails["list"] = Throttled("slow", retry_after=100)
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(SOON)
        before = len(it.cloud.calls)
        await asyncio.sleep(90)

        assert len(it.cloud.calls) == before


async def test_a_large_cluster_is_told_in_one_event_not_in_one_for_each_node():
    names = [f"n{number}" for number in range(40)]
    async with bed(*names) as it:
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(SOON)

        added = [one for one in it.events.told if one.reason == "SshKeysAdded"]
        assert [one.about.kind for one in added] == ["ConfigMap"]
        assert "on 40 nodes" in added[0].message

        it.cloud.refuses = dict.fromkeys(names, Unavailable("down"))
        await it.publish(ann=ANN.public_key, bob=BOB.public_key)
        await asyncio.sleep(SOON)
        failed = [one for one in it.events.told if one.reason == "SshKeysFailed"]
        assert len(failed) == 11
        assert "on 40 nodes" in failed[-1].message


async def test_a_ported_provider_gets_each_key_once_and_keeps_what_is_withdrawn():
    async with bed("n1", cloud=Ported) as it:
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(2 * CHECK_EVERY)
        assert it.cloud.writes == [("add", 1, 1)]

        await it.publish(bob=BOB.public_key)
        await asyncio.sleep(LATER)
        await it.join("n2")
        await asyncio.sleep(LATER)

        assert it.cloud.writes == [("add", 1, 1)] * 3
        assert it.accepted("n2") == {BOB}
        told = next(one for one in it.events.told if one.reason == "SshKeysNotWithdrawn")
        assert ANN.fingerprint in told.message


async def test_a_cloud_that_cannot_add_or_withdraw_is_not_asked_all_the_time():
    async with bed("n1") as it:
        it.cloud.fails["remove"] = Unsupported("not here")
        await it.publish(ann=ANN.public_key, bob=BOB.public_key)
        await asyncio.sleep(SOON)
        await it.publish(ann=ANN.public_key)
        await asyncio.sleep(CHECK_EVERY)
        assert [call[0] for call in it.cloud.writes] == ["add", "remove"]
        assert it.events.reasons()[-1] == "SshKeysNotWithdrawn"

        it.cloud.fails["add"] = Unsupported("not here")
        await it.publish(ann=ANN.public_key, cyd=public_key("cyd"))
        await asyncio.sleep(CHECK_EVERY)
        assert sum(call[0] == "add" for call in it.cloud.writes) <= 5
        assert "SshKeysFailed" in it.events.reasons()


async def test_the_plan_shows_what_would_be_done_and_does_nothing():
    async with bed("n1", "n2") as it:
        await it.cloud.add(CLUSTER, [ANN], refs("n1"))
        await it.cloud.add(CLUSTER, [BOB], refs("n1", "n2"))
        it.cloud.fails = dict.fromkeys(("add", "remove"), Unavailable("down"))
        await it.publish(ann=ANN.public_key)
        before = len(it.cloud.writes)

        lines = await it.controller.preview(EVERYTHING)
        one = await it.controller.preview(Scope("Node", "", "n2"))

        assert [(x.about.name, x.effect) for x in lines if isinstance(x, Planned)] == [
            ("n2", "+"),
            ("n1", "-"),
            ("n2", "-"),
        ]
        assert all("second check" in x.waits_for for x in lines[1:] if isinstance(x, Planned))
        assert [x.about.name for x in one] == ["n2", "n2"]
        assert f"ann: {ANN.fingerprint}" in one[0].details  # type: ignore[union-attr]
        assert len(it.cloud.writes) == before


async def test_the_plan_says_why_it_cannot_be_made():
    async with bed("n1", cloud=Ported) as it:
        lines = await it.controller.preview(EVERYTHING)
        assert [type(line) for line in lines] == [Trouble, Trouble]
        assert "does not exist" in lines[0].message  # type: ignore[union-attr]

        it.cloud.fails["list"] = NotFound("no such project")
        lines = await it.controller.preview(EVERYTHING)
        assert "no such project" in lines[0].message  # type: ignore[union-attr]


def test_a_manager_that_dies_after_adding_leaves_what_its_successor_finds():
    """The mark is in the cloud, not in memory."""

    async def story() -> None:
        async with bed("n1") as it:
            await it.publish(ann=ANN.public_key, bob=BOB.public_key)
            await asyncio.sleep(SOON)
            kept = dict(it.machines)
        async with bed("n1") as successor:
            successor.machines |= kept
            await successor.publish(ann=ANN.public_key)
            await asyncio.sleep(LATER)
            assert successor.accepted("n1") == {ANN}

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(story())
