import asyncio
import logging
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pileus.cloud.errors import Unauthorized, Unavailable
from pileus.cloud.provider_context import ENTERING, LEAVING, entered


class Door:
    """A context manager that does what a test tells it to."""

    def __init__(self, enter: Any = None, leave: Any = None, *, swallows: bool = False) -> None:
        self.enter, self.leave, self.swallows = enter, leave, swallows
        self.left_with: list[object] = []

    async def __aenter__(self) -> str:
        return await self._do(self.enter) or "inside"

    async def __aexit__(self, kind: object, error: object, trace: object) -> bool:
        self.left_with.append(error)
        await self._do(self.leave)
        return self.swallows

    async def _do(self, what: Any) -> Any:
        if isinstance(what, BaseException):
            raise what
        if what == "hangs":
            await asyncio.Event().wait()


async def test_the_block_runs_between_entering_and_leaving():
    door = Door()

    async with entered("acme failed", lambda: door) as value:
        assert value == "inside"
        assert door.left_with == []

    assert door.left_with == [None]


@pytest.mark.parametrize(
    "error", [KeyError("zone"), SystemExit(3), asyncio.CancelledError(), BaseException("odd")]
)
async def test_whatever_it_raises_is_one_error_that_names_it(error):
    with pytest.raises(Unavailable, match=f"acme failed: {type(error).__name__}"):
        async with entered("acme failed", lambda: Door(error)):
            pytest.fail("entered")


async def test_a_cloud_error_stays_what_it_is():
    with pytest.raises(Unauthorized, match="token is expired"):
        async with entered("acme failed", lambda: Door(Unauthorized("token is expired"))):
            pytest.fail("entered")


async def test_one_that_hangs_is_given_up():
    with pytest.raises(Unavailable, match="acme failed: no answer within 60 s"):
        async with entered("acme failed", lambda: Door("hangs")):
            pytest.fail("entered")

    assert asyncio.get_running_loop().time() == pytest.approx(ENTERING)


async def test_our_own_cancellation_is_none_of_its_errors():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1), entered("acme failed", lambda: Door("hangs")):
            pytest.fail("entered")


async def test_a_coroutine_instead_of_a_context_manager_is_told_with_the_remedy():
    async def connect() -> None: ...

    with pytest.raises(
        Unavailable, match="coroutine is not an async context manager.*asynccontextm"
    ):
        async with entered("acme failed", connect):  # type: ignore[arg-type]
            pytest.fail("entered")


async def test_an_error_of_the_block_cannot_be_swallowed():
    door = Door(swallows=True)

    with pytest.raises(KeyError):
        async with entered("acme failed", lambda: door):
            raise KeyError("ours")

    assert isinstance(door.left_with[0], KeyError)


@pytest.mark.parametrize("error", [KeyError("zone"), SystemExit(3), asyncio.CancelledError()])
async def test_what_goes_wrong_on_leaving_is_logged_and_no_more(error, caplog):
    async with entered("acme failed", lambda: Door(leave=error)):
        pass

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.message == "Cloud provider failed while stopping"


async def test_what_goes_wrong_on_leaving_does_not_hide_the_blocks_error():
    with pytest.raises(KeyError):
        async with entered("acme failed", lambda: Door(leave=OSError("down"))):
            raise KeyError("ours")


@pytest.mark.parametrize("cancelled", [False, True])
async def test_one_that_never_ends_is_abandoned(cancelled, caplog):
    async def work() -> None:
        async with entered("acme failed", lambda: Door(leave="hangs")):
            if cancelled:
                await asyncio.Event().wait()

    try:
        async with asyncio.timeout(1 if cancelled else None):
            await work()
    except TimeoutError:
        assert cancelled

    assert asyncio.get_running_loop().time() == pytest.approx(LEAVING + cancelled)
    assert "did not stop, abandoning it" in caplog.text


async def test_a_generator_is_left_as_always():
    seen: list[str] = []

    @asynccontextmanager
    async def connect():
        try:
            yield "cloud"
        except KeyError:
            seen.append("told")
            raise
        finally:
            seen.append("closed")

    with pytest.raises(KeyError):
        async with entered("acme failed", connect):
            raise KeyError("ours")

    assert seen == ["told", "closed"]
