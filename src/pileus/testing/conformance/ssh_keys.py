"""The laws for `SshKeys`. A cloud that cannot list keys has to keep the first two."""

import asyncio
from unittest import SkipTest

from pileus.cloud.errors import CloudError, Unsupported
from pileus.cloud.model import NodeKeys, NodeName, NodeRef, SshKey
from pileus.testing.conformance.harness import SshKeysHarness, raising, run

CLUSTER, OTHER = "our-cluster", "their-cluster"
BODY = "AAAAC3NzaC1lZDI1NTE5AAAAI"
JANE = SshKey("jane", f"ssh-ed25519 {BODY}HkpD2FVDhm5yEMSYXpQJvAVGcCbWcR0S2Lw3ZbwFvzE")
JOHN = SshKey("john", f"ssh-ed25519 {BODY}BVaMlqAqVJpqUC2xrtN4Kx6RC0hG2dhaZFVLKYbAkFb")
ABSENT = NodeRef(name=NodeName("absent"))


class SshKeysLaws:
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> SshKeysHarness:
        """Returns a new cloud without machines and keys."""
        raise NotImplementedError

    def test_adding_a_key_is_idempotent(self) -> None:
        run(added_twice(self.make()), self.new_loop)

    def test_an_added_key_is_listed_as_ours_or_listing_is_unsupported(self) -> None:
        run(is_ours(self.make()), self.new_loop)

    def test_removing_a_key_is_idempotent(self) -> None:
        run(removed_twice(self._with_lists()), self.new_loop)

    def test_a_key_of_someone_else_is_neither_taken_over_nor_removed(self) -> None:
        run(others_stay(self._with_lists()), self.new_loop)

    def test_a_node_without_a_machine_fails_alone(self) -> None:
        run(absent_fails_alone(self._with_lists()), self.new_loop)

    def _with_lists(self) -> SshKeysHarness:
        harness = self.make()
        if not harness.can_tell:
            raise SkipTest("this cloud can only add keys")
        return harness


async def added_twice(harness: SshKeysHarness) -> None:
    nodes = [harness.add_machine("n1"), harness.add_machine("n2")]

    async with harness.connect() as keys:
        for _ in range(2):
            assert await keys.add(CLUSTER, [JANE, JOHN], nodes) == {}

    for node in nodes:
        assert harness.accepted(node.name) == {JANE, JOHN}


async def is_ours(harness: SshKeysHarness) -> None:
    node = harness.add_machine("n1")

    async with harness.connect() as keys:
        await keys.add(CLUSTER, [JANE], [node])
        if harness.can_tell:
            assert await keys.list_keys(CLUSTER, [node]) == {node.name: NodeKeys(frozenset({JANE}))}
            theirs = NodeKeys(others=frozenset({JANE}))
            assert await keys.list_keys(OTHER, [node]) == {node.name: theirs}
        else:
            with raising(Unsupported):
                await keys.list_keys(CLUSTER, [node])
            with raising(Unsupported):
                await keys.remove(CLUSTER, [JANE], [node])


async def removed_twice(harness: SshKeysHarness) -> None:
    node = harness.add_machine("n1")

    async with harness.connect() as keys:
        await keys.add(CLUSTER, [JANE, JOHN], [node])
        for _ in range(2):
            assert await keys.remove(CLUSTER, [JANE], [node]) == {}

    assert harness.accepted(node.name) == {JOHN}


async def others_stay(harness: SshKeysHarness) -> None:
    node = harness.add_machine("n1")
    harness.add_by_hand(JANE)

    async with harness.connect() as keys:
        await keys.add(OTHER, [JOHN], [node])
        assert await keys.add(CLUSTER, [JANE, JOHN], [node]) == {}
        seen = (await keys.list_keys(CLUSTER, [node]))[node.name]
        assert await keys.remove(CLUSTER, [JANE, JOHN], [node]) == {}

    assert seen == NodeKeys(others=frozenset({JANE, JOHN}))
    assert harness.accepted(node.name) == {JANE, JOHN}


async def absent_fails_alone(harness: SshKeysHarness) -> None:
    node = harness.add_machine("n1")

    async with harness.connect() as keys:
        errors = await keys.add(CLUSTER, [JANE], [ABSENT, node])
        listed = await keys.list_keys(CLUSTER, [ABSENT, node])

    assert set(errors) == {ABSENT.name}
    assert isinstance(errors[ABSENT.name], CloudError)
    assert not isinstance(listed.get(ABSENT.name), NodeKeys), (
        "the keys of a node without a machine cannot be known"
    )
    assert listed[node.name] == NodeKeys(frozenset({JANE}))
