"""A real API server takes us for whom the configuration says we are."""

import asyncio
import base64
import json
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from pileus.clock import SystemClock
from pileus.kube.access import Access
from pileus.kube.client import Client
from pileus.kube.config.choose import AccessContext, load_access
from pileus.kube.config.service_account import service_account_access
from pileus.kube.errors import Unauthorized, Unreachable
from pileus.kube.http import HttpTransport
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.control_plane import ControlPlane

pytestmark = pytest.mark.real_cluster  # said here, for it chooses the event loop
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
BETA = "client.authentication.k8s.io/v1beta1"


class UserInfo(msgspec.Struct):
    username: str
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class ReviewStatus(msgspec.Struct, rename="camel"):
    user_info: UserInfo


class Review(msgspec.Struct):
    status: ReviewStatus


@asynccontextmanager
async def client(access: Access) -> AsyncGenerator[Client]:
    async with HttpTransport(access) as transport:
        yield Client(transport, user_agent="test", metrics=Metrics(MetricRegistry()))


async def who(access: Access) -> UserInfo:
    """Ask the API server whom it takes us for."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with client(access) as api:
        answer = await api.raw("POST", REVIEWS, body=json.dumps(body).encode())
    return msgspec.json.decode(answer, type=Review).status.user_info


class Files:
    """Kubeconfig files beside each other, for one real server."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self.folder = folder
        self.plane = plane
        self.config = json.loads(plane.admin.read_text())

    @property
    def admin(self) -> dict[str, object]:
        return self.config["users"][0]["user"]

    def load(self, user: dict[str, object], **cluster: object) -> Access:
        config = json.loads(json.dumps(self.config))
        config["users"][0]["user"] = user
        config["clusters"][0]["cluster"] |= cluster
        path = self.folder / "config"
        path.write_text(json.dumps(config))
        return load_access(str(path), "", {"PATH": "/usr/bin:/bin"})

    def token(self, account: str) -> str:
        return self.plane.kubectl("create", "token", account, "--namespace=kube-system").strip()


@pytest.fixture(scope="module")
def account(control_plane: ControlPlane) -> str:
    control_plane.kubectl("create", "serviceaccount", "tester", "--namespace=kube-system")
    return "tester"


@pytest.fixture
def files(tmp_path: Path, control_plane: ControlPlane) -> Files:
    return Files(tmp_path, control_plane)


async def test_a_client_certificate_is_believed(files: Files, control_plane: ControlPlane) -> None:
    path = control_plane.user("jane", groups=("a", "b"))

    user = await who(load_access(str(path), "", {}))

    assert user.username == "jane"
    assert {"a", "b"} <= set(user.groups)


async def test_a_token_is_believed(files: Files, account: str) -> None:
    user = await who(files.load({"token": files.token(account)}))

    assert user.username == "system:serviceaccount:kube-system:tester"


async def test_a_false_token_is_refused(files: Files) -> None:
    with pytest.raises(Unauthorized):
        await who(files.load({"token": "false"}))


async def test_a_token_file_is_followed(files: Files, account: str) -> None:
    file = files.folder / "token"
    file.write_text("false")
    access = files.load({"tokenFile": "token"})

    file.write_text(files.token(account))

    assert (await who(access)).username.endswith(":tester")


async def test_a_plugins_token_is_believed(files: Files, account: str) -> None:
    status = {"token": files.token(account)}
    printed = {"apiVersion": BETA, "kind": "ExecCredential", "status": status}
    script = files.folder / "login"
    script.write_text(f"#!/bin/sh\necho '{json.dumps(printed)}'\n")
    script.chmod(stat.S_IRWXU)

    user = await who(files.load({"exec": {"apiVersion": BETA, "command": "./login"}}))

    assert user.username.endswith(":tester")


async def test_a_plugins_certificate_is_believed(files: Files) -> None:
    admin = files.admin
    status = {
        "clientCertificateData": _text(admin["client-certificate-data"]),
        "clientKeyData": _text(admin["client-key-data"]),
    }
    (files.folder / "printed").write_text(
        json.dumps({"apiVersion": BETA, "kind": "ExecCredential", "status": status})
    )
    block = {"apiVersion": BETA, "command": "cat", "args": [str(files.folder / "printed")]}

    assert "system:masters" in (await who(files.load({"exec": block}))).groups


def _text(data: object) -> str:
    return base64.b64decode(str(data)).decode()


async def test_impersonation_is_granted_with_groups_and_extras(files: Files) -> None:
    acting = {
        "as": "joe",
        "as-groups": ["a", "b"],
        "as-user-extra": {"acme.com/team": ["x", "y"]},
    }

    user = await who(files.load({**files.admin, **acting}))

    assert user.username == "joe"
    assert {"a", "b"} <= set(user.groups)
    assert user.extra == {"acme.com/team": ["x", "y"]}


async def test_a_pods_own_files_are_believed(
    files: Files, account: str, control_plane: ControlPlane
) -> None:
    (files.folder / "token").write_text(files.token(account))
    (files.folder / "ca.crt").write_bytes(control_plane.authority_file.read_bytes())
    host, port = control_plane.server.removeprefix("https://").split(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    access = load_access("", "", environ, AccessContext(service_account=files.folder))

    assert (await who(access)).username.endswith(":tester")


async def test_a_wrong_authority_is_named(files: Files, tmp_path: Path) -> None:
    control_plane_certificate = _text(files.admin["client-certificate-data"])
    (tmp_path / "wrong.crt").write_text(control_plane_certificate)
    other = {"certificate-authority-data": None, "certificate-authority": "wrong.crt"}

    with pytest.raises(Unreachable, match=r"not trusted.*wrong\.crt"):
        await who(files.load(files.admin, **other))


async def test_a_controller_gets_an_account_of_its_own_and_another_one_when_it_is_deleted(
    files: Files, control_plane: ControlPlane
) -> None:
    main = files.load(files.admin)
    async with client(main) as api:
        access = service_account_access(main, api, "shoe-controller", SystemClock())
        first = await who(access)
        control_plane.kubectl(
            "delete", "serviceaccount", "shoe-controller", "--namespace=kube-system"
        )
        second = await _other_than(first, access)

    name = "system:serviceaccount:kube-system:shoe-controller"
    assert (first.username, second.username) == (name, name)


async def _other_than(before: UserInfo, access: Access) -> UserInfo:
    """The server needs some seconds to forget, and we do not ask for tokens in a storm."""
    async with asyncio.timeout(60):
        while (now := await _who_if_believed(access)) is None or now.uid == before.uid:
            await asyncio.sleep(0.5)
    return now


async def _who_if_believed(access: Access) -> UserInfo | None:
    try:
        return await who(access)
    except Unauthorized:
        return None
