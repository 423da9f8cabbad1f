"""A client of the embedded API server that needs neither sockets nor a loop."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pileus_lab.apiserver.api import Api
from pileus_lab.apiserver.call import Request, Response
from pileus_lab.apiserver.identity import User
from pileus_lab.apiserver.server import api_in_memory
from pileus_lab.apiserver.state import Options

MASTER = User("admin", ("system:masters", "system:authenticated"))
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
DEFAULT = "/api/v1/namespaces/default"
NODES = "/api/v1/nodes"
SERVICES = f"{DEFAULT}/services"
MAPS = f"{DEFAULT}/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


class StillClock:
    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@dataclass
class Answer:
    status: int
    body: Any
    response: Response

    @property
    def message(self) -> str:
        return self.body["message"]


@dataclass
class Caller:
    api: Api
    clock: StillClock = field(default_factory=StillClock)
    user: User | None = MASTER

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        media: str = "application/json",
        accept: str = "",
        token: str = "",
        **query: str,
    ) -> Answer:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        headers = {"content-type": media, "accept": accept}
        if token:
            headers["authorization"] = f"Bearer {token}"
        request = Request(
            method=method, path=path, query=query, headers=headers, body=raw, peer=self.user
        )
        response = self.api.respond(request)
        is_json = "json" in response.content_type and response.body
        return Answer(response.status, json.loads(response.body) if is_json else None, response)

    def create(self, path: str, body: object, **query: str) -> Any:
        answer = self("POST", path, body, **query)
        assert answer.status == 201, answer.body
        return answer.body

    def get(self, path: str) -> Any:
        answer = self("GET", path)
        assert answer.status == 200, answer.body
        return answer.body

    def patch(self, path: str, body: object, media: str = MERGE) -> Any:
        answer = self("PATCH", path, body, media=media)
        assert answer.status == 200, answer.body
        return answer.body


def caller(seed: int = 0, **options: Any) -> Caller:
    clock = StillClock()
    api = api_in_memory(clock=clock, random=Random(seed), options=Options(**options))
    return Caller(api, clock)


def node(name: str, **spec: object) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


def service(name: str, **spec: object) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
