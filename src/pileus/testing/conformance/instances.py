"""The laws for `Instances`."""

import asyncio
from collections.abc import Mapping

from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Failure, Found, Instance, InstanceState, NodeName, NodeRef
from pileus.testing.conformance.harness import InstancesHarness, run


class InstancesLaws:
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> InstancesHarness:
        """Returns a new cloud without machines."""
        raise NotImplementedError

    def test_each_node_is_answered_with_its_own_machine(self) -> None:
        run(each_has_its_own(self.make()), self.new_loop)

    def test_the_answer_has_only_nodes_that_were_asked_for(self) -> None:
        run(only_what_was_asked(self.make()), self.new_loop)

    def test_a_deleted_machine_is_absent_with_evidence(self) -> None:
        run(gone_is_absent(self.make()), self.new_loop)

    def test_a_new_machine_is_found_although_it_was_missing_before(self) -> None:
        run(no_memory_of_absence(self.make()), self.new_loop)

    def test_a_stopped_machine_exists(self) -> None:
        run(stopped_exists(self.make()), self.new_loop)

    def test_a_failing_cloud_is_never_taken_for_absence(self) -> None:
        run(failure_is_not_absence(self.make()), self.new_loop)

    def test_a_cancelled_lookup_ends(self) -> None:
        run(cancellation_is_heard(self.make()), self.new_loop)


async def each_has_its_own(harness: InstancesHarness) -> None:
    nodes = [harness.add(f"n{i}") for i in range(5)]

    async with harness.connect() as instances:
        found = await instances.find(nodes, fresh=False)
        again = await instances.find(nodes, fresh=False)

    assert set(found) == {node.name for node in nodes}, "an existing machine was not found"
    assert again == found, "two equal lookups got different answers"
    machines = [answer for answer in found.values() if isinstance(answer, Instance)]
    assert len(machines) == len(nodes), f"existing machines were answered with {found}"
    assert len({machine.provider_id for machine in machines}) == len(nodes), "shared provider IDs"
    assert all("://" in machine.provider_id for machine in machines), "provider ID without scheme"


async def only_what_was_asked(harness: InstancesHarness) -> None:
    asked, _ = harness.add("asked"), harness.add("other")

    async with harness.connect() as instances:
        assert set(await instances.find([asked], fresh=True)) <= {asked.name}
        assert await instances.find([], fresh=True) == {}


async def gone_is_absent(harness: InstancesHarness) -> None:
    stays, goes = harness.add("stays"), harness.add("goes")

    async with harness.connect() as instances:
        await instances.find([stays, goes], fresh=False)  # a cache may be warm now
        harness.remove("goes")
        found = await instances.find([stays, goes], fresh=True)

    gone = found.get(goes.name)
    assert isinstance(gone, Absent), f"a deleted machine was answered with {gone}"
    assert gone.evidence, "Absent has no evidence"
    assert isinstance(found.get(stays.name), Instance)


async def no_memory_of_absence(harness: InstancesHarness) -> None:
    node = harness.add("late")
    harness.remove("late")

    async with harness.connect() as instances:
        await instances.find([node], fresh=False)
        again = harness.add("late")
        found = await instances.find([again], fresh=False)

    assert not isinstance(found.get(again.name), Absent), "absence came from a cache"


async def stopped_exists(harness: InstancesHarness) -> None:
    node = harness.add("n1")

    async with harness.connect() as instances:
        assert await _state(instances, node) is not InstanceState.STOPPED
        harness.stop("n1")
        assert await _state(instances, node) is InstanceState.STOPPED


async def _state(instances: Instances, node: NodeRef) -> InstanceState:
    answer = (await instances.find([node], fresh=True)).get(node.name)
    assert isinstance(answer, Instance), f"an existing machine was answered with {answer}"
    return answer.state


async def failure_is_not_absence(harness: InstancesHarness) -> None:
    node = harness.add("n1")

    async with harness.connect() as instances:
        await instances.find([node], fresh=True)
        for fresh in (True, False):
            with harness.broken():
                found = await _found_or_nothing(instances, node, fresh=fresh)
            answer = found.get(node.name)
            assert not isinstance(answer, Absent), "a failing cloud was taken for absence"
            assert not fresh or answer is None or isinstance(answer, Failure), (
                "a fresh answer came from a cache"
            )


async def _found_or_nothing(
    instances: Instances, node: NodeRef, *, fresh: bool
) -> Mapping[NodeName, Found]:
    try:
        return await instances.find([node], fresh=fresh)
    except CloudError:
        return {}


async def cancellation_is_heard(harness: InstancesHarness) -> None:
    node = harness.add("n1")

    async with harness.connect() as instances, asyncio.TaskGroup() as group:
        for turns in range(5):
            task = group.create_task(instances.find([node], fresh=True))
            for _ in range(turns):
                await asyncio.sleep(0)
            was_done = task.done()
            task.cancel()
            await asyncio.wait([task])
            assert was_done or task.cancelled(), "cancellation was swallowed"
