"""The manifests in `deploy` grant what the manager uses: no right is missing, none is unused.

The whole manager does its work on an API server that enforces RBAC and has no roles for it but
those of the manifests. Every request is recorded as account, verb and resource.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from pileus.cloud.interface import Cloud
from pileus.controllers.lifecycle.annotations import DELETION
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import CONFIG_MAPS, NODES, SERVICES
from pileus.kube.patch import StrategicPatch
from pileus.kube.transport import Reply, Request
from pileus.server.reviews import ReviewFailed, delegates_of
from pileus.server.users import User as Caller
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.api import Api
from pileus_lab.apiserver.call import Request as ApiRequest
from pileus_lab.apiserver.call import Response, locate, verb_of
from pileus_lab.apiserver.identity import User, service_account
from pileus_lab.apiserver.in_process import InProcessReply, InProcessTransport
from pileus_lab.apiserver.selector import selected_name
from pileus_lab.apiserver.server import api_in_memory
from pileus_lab.apiserver.state import Options
from pileus_lab.local.cloud import LocalCloud, Surroundings
from pileus_lab.local.model.machines import DeleteMachine
from tests.unit.app.scene import Scene
from tests.unit.app.stage import ACCESS, Kube, Wire, manager_context, new_node
from tests.unit.controllers.ssh_keys.keys import public_key

DEPLOY = Path(__file__).parents[3] / "deploy"
MANAGER = "cloud-controller-manager"
ADMIN = User("admin", ("system:masters",))
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
HOUR = 3600.0
FLAGS = (
    "--controllers=*,node-ipam-controller",
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/16",
    "--ssh-keys-from=configmap:kube-system/ssh-keys",
    "--enable-leader-migration",
    "--service-orphans=delete",
)


@dataclass(frozen=True)
class Right:
    """What an account may do, or did. An empty name or namespace of a grant means any."""

    account: str
    verb: str
    resource: str
    """`group/plural` or `group/plural/subresource`; for other URLs the path."""
    namespace: str = ""
    name: str = ""

    def covers(self, use: "Right") -> bool:
        return (
            (self.account, self.verb, self.resource) == (use.account, use.verb, use.resource)
            and self.namespace in {"", use.namespace}
            and self.name in {"", use.name}
        )

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.account}: {self.verb} {self.resource} {self.name}{where}"


def unused(granted: set[Right], uses: set[Right]) -> list[str]:
    return sorted(str(right) for right in granted if not any(map(right.covers, uses)))


def granted(manifests: list[dict[str, Any]]) -> set[Right]:
    """All rights of all accounts, one by one. A `*` stays as it is, and so is never used."""
    roles = {
        (each["kind"], each["metadata"]["name"]): each["rules"]
        for each in manifests
        if "rules" in each
    }
    return {
        right
        for each in manifests
        if "roleRef" in each
        for rule in roles[each["roleRef"]["kind"], each["roleRef"]["name"]]
        for subject in each["subjects"]
        for right in rights_of(rule, subject["name"], each["metadata"].get("namespace", ""))
    }


def rights_of(rule: dict[str, Any], account: str, namespace: str) -> Iterator[Right]:
    for verb, path in product(rule["verbs"], rule.get("nonResourceURLs", ())):
        yield Right(account, verb, path)
    names = rule.get("resourceNames", [""])
    which = product(rule["verbs"], rule.get("apiGroups", ()), rule.get("resources", ()), names)
    for verb, group, resource, name in which:
        yield Right(account, verb, f"{group}/{resource}", namespace, name)


def manifests(*names: str) -> list[dict[str, Any]]:
    return [each for name in names for each in yaml.safe_load_all((DEPLOY / name).read_text())]


class AccountWire(Wire):
    """A connection on which the API server sees who asks, and that is recorded."""

    _kube: "RecordingKube"

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        own = await self.access.credentials.headers()
        request = replace(request, headers={**request.headers, **own})
        if self._kube.is_old and "sendInitialEvents" in request.query:
            yield InProcessReply(refused_streaming(), None)
            return
        async with self._kube.transport.send(request) as reply:
            self._kube.record(own.get("Authorization", ""), request, reply.status)
            yield reply


def refused_streaming() -> Response:
    status = {"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422}
    return Response(status=422, body=json.dumps(status).encode())


@dataclass(kw_only=True)
class RecordingKube(Kube):
    api: Api
    uses: set[Right] = field(default_factory=set[Right])
    refusals: set[Right] = field(default_factory=set[Right])
    is_old: bool = False
    """Whether it refuses to stream lists, as servers before 1.32 do."""

    def connect(self, access: Access) -> Wire:
        return AccountWire(self, access)

    def record(self, authorization: str, request: Request, status: int) -> None:
        use = self._use(self._account(authorization), request)
        (self.refusals if status == 403 else self.uses).add(use)

    def _account(self, authorization: str) -> str:
        claims = self.api.state.signer.read(authorization[len("Bearer ") :], LoopClock().now())
        return claims.name if claims else MANAGER

    def _use(self, account: str, request: Request) -> Right:
        place = locate(self.api.state.catalog, request.path)
        if place is None:
            return Right(account, request.method.lower(), request.path)
        verb = verb_of(place, request.method, request.query)
        parts = (place.resource.group, place.resource.plural, place.subresource)
        name = place.name or selected_name(request.query.get("fieldSelector", ""))
        # The API server authorizes a request for a namespace as one inside of it.
        namespace = place.namespace or (name if place.resource.kind == "Namespace" else "")
        return Right(account, verb, "/".join(parts).rstrip("/"), namespace, name)


def administer(api: Api, method: str, path: str, body: object = None) -> Response:
    headers = {"content-type": "application/json"}
    raw = b"" if body is None else json.dumps(body).encode()
    return api.respond(ApiRequest(method=method, path=path, headers=headers, body=raw, peer=ADMIN))


def apply(api: Api, manifest: dict[str, Any]) -> None:
    kind, namespace = manifest["kind"], manifest["metadata"].get("namespace")
    root = "/api/v1" if kind == "ServiceAccount" else RBAC
    where = f"{root}/namespaces/{namespace}" if namespace else root
    made = administer(api, "POST", f"{where}/{kind.lower()}s", manifest)
    assert made.status == 201, made.body


def server(objects: list[dict[str, Any]]) -> RecordingKube:
    """An API server with these roles, and without those that it brings for controllers."""
    options = Options(client_authority=CERTIFICATE)
    api = api_in_memory(clock=LoopClock(), random=Random(0), options=options)
    for name in ("node", "service", "route"):
        path = f"{RBAC}/clusterrolebindings/system:controller:{name}-controller"
        assert administer(api, "DELETE", path).status == 200
    for manifest in objects:
        apply(api, manifest)
    account = service_account("kube-system", MANAGER)
    return RecordingKube(transport=InProcessTransport(api, account), api=api)


@asynccontextmanager
async def set_up(objects: list[dict[str, Any]]) -> AsyncGenerator[Scene]:
    kube = server(objects)
    cloud = LocalCloud(Surroundings(clock=LoopClock(), chance=Random(1)))
    async with manager_context(
        Cloud(name="fake"), kube=Kube(InProcessTransport(kube.api))
    ) as context:
        yield Scene(kube, context.clients.main("user"), cloud)


def kept(name: str) -> dict[str, object]:
    """A node that is never deleted, so that the manager reports on it again and again."""
    return new_node(name) | {"metadata": {"name": name, "annotations": {DELETION: "never"}}}


async def prepare(scene: Scene) -> None:
    keys = {"metadata": {"name": "ssh-keys"}, "data": {"ops": public_key("ann")}}
    await scene.client.create(CONFIG_MAPS, keys, namespace="kube-system")
    await scene.add_nodes(*(f"n{number}" for number in range(8)))
    await scene.client.create(NODES, kept("machineless"))
    for name in ("web", "forced", "orphan"):
        await scene.add_service(name, 80)


async def force(scene: Scene, name: str) -> None:
    """Delete a Service with all that keeps it."""
    patch = StrategicPatch({"metadata": {"finalizers": None}})
    await scene.client.delete(SERVICES, name, namespace="default")
    await scene.client.patch(SERVICES, name, patch, namespace="default")


async def disturb(scene: Scene) -> None:
    """Everything that makes a manager read again, write or report; nodes come last."""
    await asyncio.sleep(60)
    await scene.cloud.call(DeleteMachine(machine="n7"))
    await force(scene, "forced")
    keys = StrategicPatch({"data": {"ops": "no key"}})
    await scene.client.patch(CONFIG_MAPS, "ssh-keys", keys, namespace="kube-system")
    await asyncio.sleep(2 * HOUR)
    for number in range(6):
        await scene.client.delete(NODES, f"n{number}")
    await asyncio.sleep(120)
    await scene.client.delete(SERVICES, "web", namespace="default")


async def ask_about_callers(kube: RecordingKube) -> None:
    """What the secure port asks the API server, as the manager's account."""
    client = Client(
        AccountWire(kube, ACCESS), user_agent="port", metrics=Metrics(CollectorRegistry())
    )
    delegates = delegates_of(client, client)
    assert delegates.tokens
    assert delegates.access
    assert delegates.settings
    with pytest.raises(ReviewFailed, match="invalid bearer token"):
        await delegates.tokens.review("unknown")
    await delegates.access.review(Caller("jane"), "get", "/metrics")
    await delegates.settings.read()
    with suppress(TimeoutError):
        async with asyncio.timeout(1):
            await delegates.settings.follow(lambda _: None)


async def work(scene: Scene, *flags: str) -> None:
    """A manager's life: first installed, then restarted after a Service was forced away."""
    kube = scene.kube
    assert isinstance(kube, RecordingKube)
    await prepare(scene)
    await scene.managed(60, *FLAGS, *flags)
    await force(scene, "orphan")
    async with asyncio.TaskGroup() as group:
        group.create_task(disturb(scene))
        await scene.managed(2 * HOUR + 300, *FLAGS, *flags)
    await scene.client.create(NODES, new_node("n0"))
    await scene.managed(HOUR + 600, *FLAGS, *flags, "--dry-run")
    kube.is_old = True
    await scene.managed(60, *FLAGS, *flags)
    await ask_about_callers(kube)


async def recorded(objects: list[dict[str, Any]], *flags: str) -> RecordingKube:
    async with set_up(objects) as scene:
        await work(scene, *flags)
    assert isinstance(scene.kube, RecordingKube)
    return scene.kube


@pytest.mark.timeout(300)
async def test_the_manifests_grant_exactly_what_the_manager_uses() -> None:
    always, keys = manifests("rbac.yaml"), manifests("ssh-keys.yaml")
    one, own = manifests("rbac-one-identity.yaml"), manifests("rbac-own-identities.yaml")

    with_one = await recorded([*always, *one, *keys])
    with_own = await recorded([*always, *own, *keys], "--use-service-account-credentials")

    assert sorted(map(str, with_one.refusals | with_own.refusals)) == []
    assert unused(granted([*always, *one]), with_one.uses) == []
    assert unused(granted([*always, *own]), with_own.uses) == []
    assert unused(granted(keys), with_one.uses | with_own.uses) == []


def test_a_right_that_no_one_uses_is_found() -> None:
    used = {Right("a", "get", "/nodes", "", "n1")}
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"], "resourceNames": ["n2"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    ]

    found = unused({right for rule in rules for right in rights_of(rule, "a", "")}, used)

    assert found == ["a: * */* ", "a: get /nodes n2", "a: list /nodes "]


OTHERS = "/api/v1/namespaces/kube-system/serviceaccounts"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{OTHERS}/clusterrole-aggregation-controller/token", {}),
        (f"{OTHERS}/{MANAGER}/token", {}),
        (OTHERS, {"metadata": {"name": "clusterrole-aggregation-controller"}}),
    ],
)
async def test_the_manager_cannot_become_another_account(path: str, body: object) -> None:
    kube = server(manifests("rbac.yaml", "rbac-own-identities.yaml", "ssh-keys.yaml"))
    account = service_account("kube-system", MANAGER)

    answer = kube.api.respond(
        ApiRequest(method="POST", path=path, body=json.dumps(body).encode(), peer=account)
    )

    assert answer.status == 403
