"""A signal ends the work, and nothing else."""

import asyncio
import os
import signal

import pytest

from pileus_lab.demo.host import SIGNALS, Interruption

pytestmark = pytest.mark.real_time


def send(sign: signal.Signals) -> None:
    os.kill(os.getpid(), sign)


@pytest.mark.parametrize("sign", SIGNALS)
def test_a_signal_ends_the_work_which_may_tidy_up(sign: signal.Signals):
    tidied: list[bool] = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(0.01, send, sign)
        try:
            await asyncio.sleep(60)
        finally:
            send(sign)  # an impatient user
            await asyncio.sleep(0.05)
            tidied.append(True)

    with Interruption() as interruption, pytest.raises(asyncio.CancelledError):
        asyncio.run(interruption.guard(work()))

    assert tidied == [True]
    assert interruption.told is sign


def test_after_a_signal_the_work_does_not_begin():
    begun: list[bool] = []

    async def work() -> None:
        begun.append(True)

    with Interruption() as interruption:
        send(signal.SIGTERM)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(interruption.guard(work()))

    assert begun == []


def test_before_and_after_the_work_nothing_is_disturbed():
    async def work() -> None:
        pass

    with Interruption() as interruption:
        asyncio.run(interruption.guard(work()))
        send(signal.SIGINT)

    assert interruption.told is signal.SIGINT


def test_in_the_end_signals_mean_what_they_meant_before():
    before = [signal.getsignal(sign) for sign in SIGNALS]

    with Interruption():
        assert [signal.getsignal(sign) for sign in SIGNALS] != before

    assert [signal.getsignal(sign) for sign in SIGNALS] == before
