import asyncio
from pathlib import Path

import pytest

from pileus.cloud.errors import CloudError, Conflict, Throttled, Unavailable
from pileus_lab.local.cloud import Behaviour, LocalCloud
from pileus_lab.local.journal import open_journal
from pileus_lab.local.model.account import AddFault, ListFaults
from pileus_lab.local.model.machines import CreateMachine, DeleteMachine, ListMachines
from pileus_lab.local.model.records import FaultKind
from tests.unit.providers.local.clouds import Hands, local_cloud


async def test_too_many_requests_are_told_when_to_come_again():
    clock = Hands()
    cloud = local_cloud(clock, behaviour=Behaviour(requests_per_second=2, burst=3))
    for _ in range(3):
        await cloud.call(ListMachines())

    with pytest.raises(Throttled) as refused:
        await cloud.call(ListMachines())
    clock.forward(refused.value.retry_after or 0.0)

    assert refused.value.retry_after == pytest.approx(0.5)
    await cloud.call(ListMachines())
    with pytest.raises(Throttled):
        await cloud.call(ListMachines())


async def test_the_operator_is_neither_throttled_nor_failed():
    cloud = local_cloud(behaviour=Behaviour(requests_per_second=1, burst=1))
    await cloud.operate(AddFault(kind=FaultKind.ERROR))

    for _ in range(5):
        await cloud.operate(ListMachines())


async def test_each_request_takes_as_long_as_the_cloud_is_slow():
    cloud = local_cloud(behaviour=Behaviour(latency_seconds=2))
    await cloud.operate(AddFault(kind=FaultKind.LATENCY, where="instances.*", seconds=3))
    begun = asyncio.get_running_loop().time()

    await cloud.call(ListMachines())

    assert asyncio.get_running_loop().time() - begun == pytest.approx(5)


async def test_a_fault_strikes_where_it_is_aimed_and_as_often_as_it_may():
    cloud = local_cloud()
    await cloud.operate(
        AddFault(kind=FaultKind.ERROR, where="instances.l*", error="Conflict", times=2)
    )
    await cloud.call(CreateMachine(name="a"))

    for _ in range(2):
        with pytest.raises(Conflict, match="injected fault"):
            await cloud.call(ListMachines())

    assert len((await cloud.call(ListMachines())).items) == 1
    assert (await cloud.operate(ListFaults())).items == ()


async def test_a_lost_answer_has_had_its_effect_and_a_failed_call_has_not():
    cloud = local_cloud()
    await cloud.operate(AddFault(kind=FaultKind.LOST, times=1))
    with pytest.raises(Unavailable):
        await cloud.call(CreateMachine(name="a"))
    await cloud.operate(AddFault(kind=FaultKind.ERROR, times=1))
    with pytest.raises(Unavailable):
        await cloud.call(CreateMachine(name="b"))

    assert [one.name for one in cloud.state.machines.values()] == ["a"]


async def test_a_throttling_fault_says_when_to_come_again():
    cloud = local_cloud()
    await cloud.operate(AddFault(kind=FaultKind.THROTTLE, seconds=7))

    with pytest.raises(Throttled) as refused:
        await cloud.call(ListMachines())

    assert refused.value.retry_after == 7


async def test_a_stale_answer_shows_what_was():
    clock = Hands()
    cloud = local_cloud(clock)
    await cloud.call(CreateMachine(name="a"))
    clock.forward(60)
    await cloud.call(DeleteMachine(machine="a"))
    await cloud.operate(AddFault(kind=FaultKind.STALE, seconds=30, times=1))

    stale, true = await cloud.call(ListMachines()), await cloud.call(ListMachines())

    assert [len(stale.items), len(true.items)] == [1, 0]


async def test_a_fault_of_a_rate_strikes_about_so_often():
    cloud = local_cloud()
    await cloud.operate(AddFault(kind=FaultKind.ERROR, rate=0.3))
    failed = 0
    for _ in range(200):
        try:
            await cloud.call(ListMachines())
        except CloudError:
            failed += 1

    assert 40 <= failed <= 80


async def fill(cloud: LocalCloud) -> None:
    for number in range(200):
        await cloud.call(CreateMachine(name=f"m{number}", labels={"filler": "x" * 4000}))


async def test_a_write_that_could_not_be_kept_did_not_happen(tmp_path: Path):
    with open_journal(tmp_path / "state.db") as journal:
        cloud = local_cloud(journal=journal)
        await cloud.call(CreateMachine(name="a"))
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")

        with pytest.raises(Unavailable, match=r"state\.db.*full"):
            await fill(cloud)
        kept = set(cloud.state.machines)
        journal._connection.execute("PRAGMA max_page_count = 1000000")
        await cloud.call(CreateMachine(name="b"))

        assert journal.load() == cloud.state
        assert len(cloud.state.machines) == len(kept) + 1
