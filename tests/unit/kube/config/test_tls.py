"""TLS contexts follow their files, and refuse what cannot work with a reason."""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from pileus.kube.access import Access
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.errors import Unreachable
from pileus.kube.http import HttpTransport
from pileus.kube.transport import Request
from pileus.pki import Authority, KeyPair, Subject
from tests.unit.kube.config.stage import Stage
from tests.unit.kube.https_server import Trust, serving

NOW = datetime.now(UTC)
CA = Authority("ca", now=NOW)
JANE = CA.issue(Subject(common_name="jane"), now=NOW)


def text(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def write_pair(folder: Path, pair: KeyPair) -> dict[str, object]:
    (folder / "jane.crt").write_bytes(pair.certificate)
    (folder / "jane.key").write_bytes(pair.key)
    return {"client-certificate": "jane.crt", "client-key": "jane.key"}


def context_of(access: Access) -> ssl.SSLContext:
    context = access.credentials.tls()
    assert context
    return context


def load(stage: Stage, cluster: Mapping[str, object], **user: object) -> Access:
    stage.write({"server": "https://127.0.0.1:6443", **cluster}, user)
    return stage.load()


def test_nothing_below_tls_1_2_is_spoken_and_names_are_checked(stage: Stage) -> None:
    context = context_of(load(stage, {}))

    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_the_same_context_is_given_as_long_as_nothing_changed(stage: Stage) -> None:
    user = write_pair(stage.folder, JANE)
    access = load(stage, {"certificate-authority-data": text(CA.certificate)}, **user)

    first = context_of(access)
    stage.clock.forward(60)

    assert context_of(access) is first


def test_inline_data_wins_over_a_file(stage: Stage) -> None:
    cluster = {
        "certificate-authority": "missing.crt",
        "certificate-authority-data": text(CA.certificate),
    }

    access = load(stage, cluster)

    assert access.trust == f"certificate-authority-data ({stage.kubeconfig})"


@pytest.mark.parametrize("changed", ["jane.crt", "ca.crt"])
def test_changed_files_give_a_new_context_within_ten_seconds(stage: Stage, changed: str) -> None:
    (stage.folder / "ca.crt").write_bytes(CA.certificate)
    user = write_pair(stage.folder, JANE)
    access = load(stage, {"certificate-authority": "ca.crt"}, **user)
    first = context_of(access)
    path = stage.folder / changed
    path.write_bytes(path.read_bytes() + b"\n")

    stage.clock.forward(9)
    soon = context_of(access)
    stage.clock.forward(1)

    assert soon is first
    assert context_of(access) is not first


def test_half_written_files_leave_the_last_good_context_until_they_are_whole(
    stage: Stage,
) -> None:
    user = write_pair(stage.folder, JANE)
    access = load(stage, {}, **user)
    first = context_of(access)
    other = CA.issue(Subject(common_name="jane"), now=NOW)

    (stage.folder / "jane.crt").write_bytes(other.certificate)
    stage.clock.forward(10)
    half = context_of(access)
    (stage.folder / "jane.key").write_bytes(other.key)
    stage.clock.forward(10)

    assert half is first
    assert context_of(access) is not first


def test_a_vanished_file_leaves_the_last_good_context(stage: Stage) -> None:
    access = load(stage, {}, **write_pair(stage.folder, JANE))
    first = context_of(access)

    (stage.folder / "jane.key").unlink()
    stage.clock.forward(10)

    assert context_of(access) is first


def test_no_key_stays_on_disk(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stage.folder / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    user = {
        "client-certificate-data": text(JANE.certificate),
        "client-key-data": text(JANE.key),
    }

    load(stage, {}, **user)

    assert os.listdir(folder) == []


def encrypted(pair: KeyPair) -> bytes:
    key = serialization.load_pem_private_key(pair.key, None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        pytest.param(
            {"insecure-skip-tls-verify": True, "certificate-authority": "ca.crt"},
            {},
            "insecure-skip-tls-verify with certificate-authority .*/ca.crt: remove one",
            id="insecure with authority",
        ),
        pytest.param(
            {"certificate-authority": "nope"}, {}, "cannot read .*/nope: No such", id="no file"
        ),
        pytest.param(
            {"certificate-authority-data": text(b"words")}, {}, "no PEM certificate", id="words"
        ),
        pytest.param(
            {
                "certificate-authority-data": text(
                    b"-----BEGIN CERTIFICATE-----\nYWJj\n-----END CERTIFICATE-----"
                )
            },
            {},
            "certificate-authority-data cannot be used",
            id="no certificate",
        ),
        pytest.param(
            {}, {"client-certificate-data": text(JANE.certificate)}, "needs client-key", id="key"
        ),
        pytest.param(
            {}, {"client-key-data": text(JANE.key)}, "needs client-certificate", id="certificate"
        ),
        pytest.param(
            {},
            {
                "client-certificate-data": text(JANE.certificate),
                "client-key-data": text(CA.issue(Subject(common_name="x"), now=NOW).key),
            },
            "cannot be used: KEY_VALUES_MISMATCH",
            id="no pair",
        ),
        pytest.param(
            {},
            {
                "client-certificate-data": text(JANE.certificate),
                "client-key-data": text(encrypted(JANE)),
            },
            "the key is encrypted",
            id="encrypted",
        ),
    ],
)
def test_what_cannot_work_is_told_at_the_start(
    stage: Stage, cluster: dict[str, object], user: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidConfiguration, match=said) as caught:
        load(stage, cluster, **user)

    assert "PRIVATE" not in str(caught.value)


async def greet(request: web.Request) -> web.Response:
    peer = request.transport and request.transport.get_extra_info("peercert")
    subject = dict(pair for part in (peer or {}).get("subject", ()) for pair in part)
    groups = ",".join(request.headers.getall("Impersonate-Group", []))
    return web.Response(text=f"{subject.get('commonName', 'nobody')} {groups}")


async def ask(access: Access) -> str:
    async with (
        HttpTransport(access) as transport,
        transport.send(Request(method="GET", path="/")) as reply,
    ):
        return (await reply.read()).decode()


@pytest.mark.real_time
async def test_a_client_certificate_is_shown_and_every_group_arrives(stage: Stage) -> None:
    trust = Trust(stage.folder)
    pair = trust.authority.issue(Subject(common_name="jane"), now=NOW)
    user = {
        "client-certificate-data": text(pair.certificate),
        "client-key-data": text(pair.key),
        "as": "joe",
        "as-groups": ["a", "b"],
    }
    async with serving(greet, trust.server("127.0.0.1")) as served:
        authority = text(trust.authority.certificate)
        cluster = {"server": served.url, "certificate-authority-data": authority}
        access = load(stage, cluster, **user)

        assert await ask(access) == "jane a,b"
        assert access.anonymous
        assert context_of(Access(access.server, access.anonymous)) is not context_of(access)


@pytest.mark.real_time
async def test_a_wrong_authority_is_named_with_the_server(stage: Stage) -> None:
    trust = Trust(stage.folder)
    (stage.folder / "ca.crt").write_bytes(CA.certificate)
    async with serving(greet, trust.server("127.0.0.1")) as served:
        access = load(stage, {"server": served.url, "certificate-authority": "ca.crt"})

        with pytest.raises(Unreachable) as caught:
            await ask(access)

    said = str(caught.value)
    assert served.url.removeprefix("https://") in said
    assert f"trusted is certificate-authority {stage.folder / 'ca.crt'}" in said
    assert str(stage.kubeconfig) in said


@pytest.mark.real_time
async def test_an_authority_need_not_be_a_root_as_with_client_go(stage: Stage) -> None:
    async with serving(greet, Trust(stage.folder).server("127.0.0.1")) as served:
        issued, _, _ = (stage.folder / "pair.pem").read_bytes().partition(b"-----BEGIN PRIVATE")
        access = load(stage, {"server": served.url, "certificate-authority-data": text(issued)})

        assert await ask(access) == "nobody "


@pytest.mark.real_time
async def test_an_insecure_server_is_reached_all_the_same(stage: Stage) -> None:
    trust = Trust(stage.folder)
    async with serving(greet, trust.server("elsewhere")) as served:
        access = load(stage, {"server": served.url, "insecure-skip-tls-verify": True})

        assert await ask(access) == "nobody "


@pytest.mark.real_time
async def test_a_server_is_expected_under_the_name_that_is_configured(stage: Stage) -> None:
    trust = Trust(stage.folder)
    cluster = {"certificate-authority-data": text(trust.authority.certificate)}
    async with serving(greet, trust.server("api.example")) as served:
        cluster |= {"server": served.url}
        named = load(stage, {**cluster, "tls-server-name": "api.example"})
        unnamed = load(stage, dict(cluster))

        assert await ask(named) == "nobody "
        with pytest.raises(Unreachable, match="not trusted"):
            await ask(unnamed)


@pytest.mark.real_time
async def test_a_certificate_from_a_plugin_is_shown_and_renewed(stage: Stage) -> None:
    trust = Trust(stage.folder)
    printed = stage.folder / "printed"
    script = stage.script(f"exec /bin/cat {printed}")
    version = "client.authentication.k8s.io/v1beta1"

    def print_certificate_of(name: str) -> None:
        pair = trust.authority.issue(Subject(common_name=name), now=NOW)
        status = (
            f'"clientCertificateData": "{pair.certificate.decode()}", '
            f'"clientKeyData": "{pair.key.decode()}"'
        ).replace("\n", "\\n")
        credential = f'"apiVersion": "{version}", "kind": "ExecCredential"'
        printed.write_text(f'{{{credential}, "status": {{{status}}}}}')

    async with serving(greet, trust.server("127.0.0.1")) as served:
        authority = text(trust.authority.certificate)
        cluster = {"server": served.url, "certificate-authority-data": authority}
        access = load(stage, cluster, exec={"apiVersion": version, "command": str(script)})
        print_certificate_of("first")
        first = await ask(access)
        print_certificate_of("second")
        stage.clock.forward(5)
        access.credentials.rejected()

        assert (first, await ask(access)) == ("first ", "second ")
