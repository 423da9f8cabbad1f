"""The generated rights are what the manager uses: none is missing, none is unused.

The whole manager does its work on an API server that enforces RBAC and has no roles for it but the
generated ones. Every request is recorded as account, verb and resource.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from random import Random
from typing import Any

import pytest

from pileus.app.migration import DEFAULT
from pileus.app.registry import CONTROLLERS
from pileus.app.startup import World
from pileus.cloud.interface import Cloud
from pileus.controllers.lifecycle.annotations import DELETION
from pileus.deployment.choice import Choice
from pileus.deployment.rbac import access_objects
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import CONFIG_MAPS, NODES, PERSISTENT_VOLUMES, SERVICES
from pileus.kube.patch import MergePatch, StrategicPatch
from pileus.kube.transport import Reply, Request
from pileus.server.reviews import ReviewFailed, delegates_of
from pileus.server.users import User as Caller
from pileus.telemetry.instruments import MetricRegistry
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
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.model.machines import DeleteMachine, StopMachine
from pileus_lab.local.model.volumes import CreateVolume
from tests.unit.app.scene import Scene
from tests.unit.app.stage import ACCESS, APART, Kube, Wire, configured, manager_context, new_node
from tests.unit.app.volume_use import DRIVER, detach, release, restore, use_volumes
from tests.unit.controllers.ssh_keys.keys import public_key
from tests.unit.controllers.volume.snapshot_kinds import put_snapshot, serve_snapshots

MANAGER, LEASE = "pileus-cloud-controller-manager", "cloud-controller-manager"
ADMIN = User("admin", ("system:masters",))
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
HOUR = 3600.0
ALL = "--controllers=*,node-ipam-controller,persistentvolume-label-controller,volume-controller"
NOT_READY = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
OWN = "--use-service-account-credentials"
FLAGS = (
    "--allocate-node-cidrs",
    "--cluster-cidr=10.244.0.0/22",  # fewer pod ranges than nodes
    "--ssh-keys-from=configmap:kube-system/ssh-keys",
    "--enable-leader-migration",
    "--service-orphans=delete",
    "--controller-start-interval=0s",
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


def spared(granted: set[Right], uses: set[Right]) -> list[str]:
    """The rights without which every recorded request would still be allowed."""
    return sorted(
        str(right)
        for right in granted
        if all(any(other.covers(use) for other in granted - {right}) for use in uses)
    )


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


def rbac(*flags: str) -> list[dict[str, Any]]:
    """The generated roles for a manager with these flags, which also serves its port."""
    config = configured(*FLAGS, *flags, "--secure-port=10258")
    controllers = APART if OWN in flags else CONTROLLERS
    return list(access_objects(Choice(config=config, controllers=controllers)))


class AccountWire(Wire):
    """A connection on which the API server sees who asks, and that is recorded."""

    _kube: "RecordingKube"

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        own = await self.access.credentials.headers()
        request = replace(request, headers={**request.headers, **own})
        if self._kube.is_old and "sendInitialEvents" in request.query:
            yield InProcessReply(failure(422, "Invalid"), None)
            return
        if self._kube.conflicts(own.get("Authorization", ""), request):
            yield InProcessReply(failure(409, "Conflict"), None)
            return
        async with self._kube.transport.send(request) as reply:
            self._kube.record(own.get("Authorization", ""), request, reply.status)
            yield reply


def failure(code: int, reason: str) -> Response:
    status = {"kind": "Status", "status": "Failure", "reason": reason, "code": code}
    return Response(status=code, body=json.dumps(status).encode())


@dataclass(kw_only=True)
class RecordingKube(Kube):
    api: Api
    uses: set[Right] = field(default_factory=set[Right])
    refusals: set[Right] = field(default_factory=set[Right])
    is_old: bool = False
    """Whether it refuses to stream lists, as servers before 1.32 do."""

    disturbed: set[str] = field(default_factory=set[str])
    """The accounts whose first write of a node was refused, as if another had been quicker."""

    def connect(self, access: Access) -> Wire:
        return AccountWire(self, access)

    def conflicts(self, authorization: str, request: Request) -> bool:
        account = self._account(authorization)
        is_first = account not in self.disturbed
        if request.method != "PATCH" or not request.path.startswith("/api/v1/nodes/"):
            return False
        self.disturbed.add(account)
        return is_first

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
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"content-type": kind}
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
    serve_snapshots(api)
    for name in ("node", "service", "route"):
        path = f"{RBAC}/clusterrolebindings/system:controller:{name}-controller"
        assert administer(api, "DELETE", path).status == 200
    for manifest in objects:
        apply(api, manifest)
    account = service_account("kube-system", MANAGER)
    return RecordingKube(transport=InProcessTransport(api, account), api=api)


class ApartScene(Scene):
    """Managers in which every controller has an account of its own name."""

    def world(self) -> World:
        return replace(super().world(), controllers=APART)


@asynccontextmanager
async def set_up(objects: list[dict[str, Any]]) -> AsyncGenerator[Scene]:
    kube = server(objects)
    cloud = LocalCloud(CloudContext(clock=LoopClock(), chance=Random(1)))
    async with manager_context(
        Cloud(name="fake"), kube=Kube(InProcessTransport(kube.api))
    ) as context:
        yield ApartScene(kube, context.clients.main("user"), cloud, FLAGS)


def kept(name: str) -> dict[str, object]:
    """A node that is never deleted, so that the manager reports on it again and again."""
    return new_node(name) | {"metadata": {"name": name, "annotations": {DELETION: "never"}}}


def persistent_volume(name: str, handle: str) -> dict[str, object]:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "local.csi.pileus.dev", "volumeHandle": handle},
    }
    return {"metadata": {"name": name}, "spec": spec}


async def prepare(scene: Scene) -> None:
    keys = {"metadata": {"name": "ssh-keys"}, "data": {"ops": public_key("ann")}}
    await scene.client.create(CONFIG_MAPS, keys, namespace="kube-system")
    await scene.add_nodes(*(f"n{number}" for number in range(8)))
    await scene.client.create(NODES, kept("machineless"))
    made = await scene.cloud.call(CreateVolume(name="data", size_gib=1))
    for name, handle in (("data", made.id), ("lost", "no-such-volume")):
        await scene.client.create(PERSISTENT_VOLUMES, persistent_volume(name, handle))
    for name in ("web", "forced", "orphan"):
        await scene.add_service(name, 80)
    admin = partial(as_admin, scene)
    release(admin)
    detach(admin)
    assert isinstance(scene.kube, RecordingKube)
    put_snapshot(scene.kube.api, "no-such-snapshot", DRIVER)
    restore(admin)


def as_admin(scene: Scene, method: str, path: str, body: object = None) -> Any:
    assert isinstance(scene.kube, RecordingKube)
    done = administer(scene.kube.api, method, path, body)
    assert done.status < 300, done.body
    return json.loads(done.body)


async def force(scene: Scene, name: str) -> None:
    """Delete a Service with all that keeps it."""
    patch = StrategicPatch({"metadata": {"finalizers": None}})
    await scene.client.delete(SERVICES, name, namespace="default")
    await scene.client.patch(SERVICES, name, patch, namespace="default")


async def disturb(scene: Scene) -> None:
    """Everything that makes a manager read again, write or report; nodes come last."""
    await asyncio.sleep(60)
    await scene.cloud.call(DeleteMachine(machine="n7"))
    await scene.cloud.call(StopMachine(machine="n6"))
    await scene.client.patch(NODES, "n6", StrategicPatch(NOT_READY), subresource="status")
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
    client = Client(AccountWire(kube, ACCESS), user_agent="port", metrics=Metrics(MetricRegistry()))
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


async def take_leases(scene: Scene) -> None:
    """Let another replica have the leases for a while, so that the manager has to wait."""
    held = MergePatch({"spec": {"holderIdentity": "another", "leaseDurationSeconds": 5}})
    for lease in (LEASE, DEFAULT.leader_name):
        await scene.client.patch(LEASES, lease, held, namespace="kube-system")


async def work(scene: Scene, *flags: str) -> None:
    """A manager's life: first installed, then restarted after a Service was forced away."""
    kube = scene.kube
    assert isinstance(kube, RecordingKube)
    await prepare(scene)
    await scene.managed(60, *flags)
    await force(scene, "orphan")
    await take_leases(scene)
    async with asyncio.TaskGroup() as group:
        group.create_task(disturb(scene))
        group.create_task(use_volumes(partial(as_admin, scene)))
        await scene.managed(2 * HOUR + 300, *flags)
    kube.is_old = True
    await scene.managed(60, *flags)
    await ask_about_callers(kube)


async def recorded(*flags: str) -> RecordingKube:
    async with set_up(rbac(*flags)) as scene:
        await work(scene, *flags)
    assert isinstance(scene.kube, RecordingKube)
    return scene.kube


@pytest.mark.timeout(300)
async def test_each_controller_has_exactly_the_rights_that_it_uses() -> None:
    kube = await recorded(ALL, OWN)

    assert sorted(map(str, kube.refusals)) == []
    assert unused(granted(rbac(ALL, OWN)), kube.uses) == []
    assert spared(granted(rbac(ALL, OWN)), kube.uses) == []


@pytest.mark.timeout(300)
async def test_one_account_for_all_controllers_has_all_rights() -> None:
    kube = await recorded(ALL)

    assert sorted(map(str, kube.refusals)) == []
    assert unused(granted(rbac(ALL)), kube.uses) == []


def test_a_right_that_no_one_uses_is_found() -> None:
    used = {Right("a", "get", "/nodes", "", "n1")}
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"], "resourceNames": ["n2"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    ]

    found = unused({right for rule in rules for right in rights_of(rule, "a", "")}, used)

    assert found == ["a: * */* ", "a: get /nodes n2", "a: list /nodes "]


@pytest.mark.timeout(300)
async def test_a_dry_run_may_read_and_publish_events_and_nothing_else() -> None:
    flags = (ALL, OWN, "--dry-run")
    async with set_up(rbac(*flags)) as scene:
        await prepare(scene)
        await scene.managed(HOUR + 600, *flags)
        assert isinstance(scene.kube, RecordingKube)
        await ask_about_callers(scene.kube)
        scene.kube.is_old = True
        await scene.managed(60, *flags)

    rights = granted(rbac(*flags))
    writes = {str(right) for right in rights if right.verb not in {"get", "list", "watch"}}
    assert sorted(map(str, scene.kube.refusals)) == []
    assert unused(rights, scene.kube.uses) == []
    assert writes == {
        f"{MANAGER}: create /events ",
        f"{MANAGER}: patch /events ",
        f"{MANAGER}: create authentication.k8s.io/tokenreviews ",
        f"{MANAGER}: create authorization.k8s.io/subjectaccessreviews ",
    }


def test_a_right_that_another_one_includes_is_found() -> None:
    rights = {Right("a", "get", "/nodes"), Right("a", "get", "/nodes", "", "n1")}

    assert spared(rights, {Right("a", "get", "/nodes", "", "n1")}) == sorted(map(str, rights))
    assert spared({Right("a", "get", "/nodes")}, {Right("a", "get", "/nodes", "", "n1")}) == []


OTHERS = "/api/v1/namespaces/kube-system/serviceaccounts"
POWERFUL = "clusterrole-aggregation-controller"


@pytest.mark.parametrize("name", [POWERFUL, MANAGER])
async def test_the_manager_cannot_become_another_account(name: str) -> None:
    kube = server(rbac(ALL, OWN))
    account = service_account("kube-system", MANAGER)

    def post(path: str, body: object) -> int:
        content = json.dumps(body).encode()
        request = ApiRequest(method="POST", path=path, body=content, peer=account)
        return kube.api.respond(request).status

    assert post(OTHERS, {"metadata": {"name": POWERFUL}}) == 201
    assert post(f"{OTHERS}/{name}/token", {}) == 403
