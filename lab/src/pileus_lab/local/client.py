"""A local cloud that another process serves."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import cast

import aiohttp
import msgspec

from pileus.cloud.errors import Unavailable
from pileus_lab.local.endpoint import check_owner
from pileus_lab.local.model.operation import A, Operation
from pileus_lab.local.wire import OPERATOR, PREFIX, decode_error

DEADLINE = aiohttp.ClientTimeout(total=30)


class RemoteCloud:
    """The cloud behind a socket. `reaching` makes it."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Path) -> None:
        self._session = session
        self._endpoint = endpoint

    async def call(self, operation: Operation[A]) -> A:
        """Carry out one operation.

        Raises what the operation raises, `Unavailable` if there is no answer in time, and
        `Misconfigured` if the socket could be another user's.
        """
        check_owner(self._endpoint)
        body = msgspec.json.encode(operation)
        url = f"http://local{PREFIX}{operation.NAME}"
        try:
            async with self._session.post(url, data=body) as response:
                status, answer = response.status, await response.read()
        except TimeoutError as error:
            raise Unavailable(f"the local cloud at {self._endpoint} is too slow") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(
                f"no local cloud answers at {self._endpoint} ({_reason(error)}); "
                "`pileus local serve` starts one"
            ) from error
        if status != HTTPStatus.OK:
            raise decode_error(answer)
        try:
            return cast("A", msgspec.json.decode(answer, type=operation.ANSWER))
        except msgspec.MsgspecError as error:
            raise Unavailable(f"{operation.NAME}: the answer makes no sense: {error}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


@asynccontextmanager
async def reaching(endpoint: Path, *, operator: bool = False) -> AsyncGenerator[RemoteCloud]:
    """The cloud at that socket; whether anybody is there shows at the first call.

    As `operator`, rates and faults do not concern the caller.
    """
    headers = {OPERATOR: "true"} if operator else None
    connector = aiohttp.UnixConnector(path=str(endpoint))
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=DEADLINE
    ) as session:
        yield RemoteCloud(session, endpoint)
