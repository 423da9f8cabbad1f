"""The provider's own requests to a project of the bed: recorded, and refused where a test says."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pileus.cloud.interface import ProviderConfig
from pileus.providers.openstack.api import Api, Call, Client
from pileus.providers.openstack.connect import connected_api
from tests.openstack.cloud import Cloud


@dataclass
class RecordedApi:
    """Passes requests on, and remembers them."""

    api: Api
    before: Callable[[Call], Awaitable[None]] | None = None
    """Is called before each request; what it raises is the answer."""
    calls: list[Call] = field(default_factory=list[Call])

    async def call(self, call: Call) -> Any:
        self.calls.append(call)
        if self.before:
            await self.before(call)
        return await self.api.call(call)

    @property
    def client(self) -> Client:
        return Client(self)

    @property
    def writes(self) -> list[str]:
        return [f"{call.method} {call.path}" for call in self.calls if call.writes]


@asynccontextmanager
async def requests_of(cloud: Cloud, **sections: str) -> AsyncGenerator[RecordedApi]:
    """Requests with the credentials of the project's user, as the manager makes them."""
    with TemporaryDirectory() as folder:
        path = cloud.config(Path(folder) / "cloud.conf", **sections)
        config = ProviderConfig(path=str(path), text=path.read_text())
        async with connected_api(config) as (api, _):
            yield RecordedApi(api)
