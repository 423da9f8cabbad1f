"""`Api` over HTTP: the endpoint from the catalogue, the token of the session, microversions."""

from collections.abc import Mapping
from typing import Any

from pileus.cloud.http import ABSENT
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Call, Service
from pileus.providers.openstack.connections import Connections
from pileus.providers.openstack.errors import TokenRefused
from pileus.providers.openstack.identity import Token
from pileus.providers.openstack.session import Session

_MICROVERSIONS: Mapping[Service, tuple[str, tuple[str, ...]]] = {
    Service.COMPUTE: ("compute", ("X-OpenStack-Nova-API-Version",)),
    Service.BLOCK_STORAGE: ("volume", ()),
}
"""The name of a service in `OpenStack-API-Version`, and older headers with the version alone."""


@dataclass(frozen=True, slots=True)
class HttpApi:
    session: Session
    connections: Connections

    async def call(self, call: Call) -> Any:  # noqa: ANN401 -- see `Api`
        """Returns the JSON of the answer. Raises `CloudError`.

        A request that is refused because of its token is sent again once, with a new one.
        """
        token = await self.session.token()
        try:
            return await self._send(call, token)
        except TokenRefused:
            token = await self.session.renewed(token)
        return await self._send(call, token)

    async def _send(self, call: Call, token: Token) -> Any:  # noqa: ANN401 -- see `Api`
        async with self.connections.client(self.session.url(token, call.service)) as http:
            answer = await http.request(
                call.method,
                call.path,
                query=call.query,
                json=ABSENT if call.body is None else call.body,
                headers={
                    "X-Auth-Token": token.id,
                    "Accept": "application/json",
                    **headers_of(call),
                },
            )
        return answer.json() if answer.body.strip() else None


def headers_of(call: Call) -> Mapping[str, str]:
    """Returns the headers for the API version and the expected revision of a request."""
    headers: dict[str, str] = {}
    if call.if_revision is not None:
        headers["If-Match"] = f"revision_number={call.if_revision}"
    if call.microversion and call.service in _MICROVERSIONS:
        name, older = _MICROVERSIONS[call.service]
        headers["OpenStack-API-Version"] = f"{name} {call.microversion}"
        headers |= dict.fromkeys(older, call.microversion)
    return headers
