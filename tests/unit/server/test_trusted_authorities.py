"""Whose certificates count: from files or the cluster's settings, with upstream's fall-backs."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pileus.server.client_certificates import NO_TRUST, ProxyTrust, Trust, TrustSource
from pileus.server.errors import BadCertificate, LookupFailed
from pileus.server.reviews import ReviewFailed
from pileus.server.settings import AuthenticationOptions, RequestHeaderOptions
from pileus.server.users import HeaderNames
from pileus.telemetry.log import VALUES
from tests.unit.server.people import CLIENT_CA, OTHER_CA, PROXY_CA

SETTINGS = {
    "client-ca-file": CLIENT_CA.certificate.decode(),
    "requestheader-client-ca-file": PROXY_CA.certificate.decode(),
    "requestheader-allowed-names": '["front-proxy"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
FROM_CLUSTER = Trust(
    CLIENT_CA.certificate,
    ProxyTrust(
        PROXY_CA.certificate,
        ("front-proxy",),
        HeaderNames(
            username=("X-Remote-User",),
            uid=("X-Remote-Uid",),
            group=("X-Remote-Group",),
            extra_prefix=("X-Remote-Extra-",),
        ),
    ),
)


class Cluster:
    def __init__(
        self, settings: Mapping[str, str] | None, failure: ReviewFailed | None = None
    ) -> None:
        self.settings = settings
        self.failure = failure or ReviewFailed("forbidden", code=403)
        self.reads = 0
        self.changed = asyncio.Event()

    async def read(self) -> Mapping[str, str]:
        self.reads += 1
        if self.settings is None:
            raise self.failure
        return self.settings

    async def follow(self, use: Callable[[Mapping[str, str]], None]) -> None:
        while True:
            await self.changed.wait()
            self.changed.clear()
            use(self.settings or {})


class Used(list[Trust]):
    """Remembers what was to be trusted."""

    def __call__(self, trust: Trust) -> None:
        self.append(trust)


def ca_file(folder: Path, pem: bytes = OTHER_CA.certificate) -> str:
    path = folder / "ca.crt"
    path.write_bytes(pem)
    return str(path)


async def test_both_cas_come_from_the_cluster():
    used = Used()

    await TrustSource(AuthenticationOptions(), Cluster(SETTINGS), used).start()

    assert used == [FROM_CLUSTER]
    assert used[0].bundle == CLIENT_CA.certificate + b"\n" + PROXY_CA.certificate


async def test_a_file_goes_before_the_cluster(tmp_path: Path):
    used = Used()
    options = AuthenticationOptions(client_ca_file=ca_file(tmp_path))

    await TrustSource(options, Cluster(SETTINGS), used).start()

    assert used == [replace(FROM_CLUSTER, client_ca=OTHER_CA.certificate)]


async def test_with_both_files_the_cluster_is_not_asked(tmp_path: Path):
    used, cluster = Used(), Cluster(None)
    file = ca_file(tmp_path)
    headers = RequestHeaderOptions(client_ca_file=file, allowed_names=("a",))
    options = AuthenticationOptions(client_ca_file=file, request_header=headers)

    await TrustSource(options, cluster, used).start()

    assert used == [Trust(OTHER_CA.certificate, ProxyTrust(OTHER_CA.certificate, ("a",)))]
    assert cluster.reads == 0


async def test_the_look_up_can_be_skipped():
    used, cluster = Used(), Cluster(SETTINGS)

    await TrustSource(AuthenticationOptions(skip_lookup=True), cluster, used).start()

    assert used == [NO_TRUST]
    assert cluster.reads == 0


async def test_without_credentials_nobody_is_trusted_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
):
    used = Used()

    await TrustSource(AuthenticationOptions(), None, used).start()

    assert used == [NO_TRUST]
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert vars(warning)[VALUES]["disabled"] == ["client certificates", "request headers"]


async def test_a_failed_look_up_ends_the_start_and_names_role_and_flag():
    source = TrustSource(AuthenticationOptions(), Cluster(None), Used())

    with pytest.raises(LookupFailed, match=r"authentication-reader.*tolerate-lookup-failure"):
        await source.start()


@pytest.mark.parametrize(
    ("options", "failure"),
    [
        pytest.param(
            AuthenticationOptions(tolerate_lookup_failure=True),
            ReviewFailed("forbidden", code=403),
            id="tolerated by flag",
        ),
        pytest.param(AuthenticationOptions(), ReviewFailed("cannot connect"), id="no answer"),
        pytest.param(
            AuthenticationOptions(),
            ReviewFailed("unavailable", code=503, passing=True),
            id="unavailable",
        ),
    ],
)
async def test_a_tolerated_failure_is_made_good_later(
    options: AuthenticationOptions, failure: ReviewFailed
):
    used, cluster = Used(), Cluster(None, failure)
    source = TrustSource(options, cluster, used)
    await source.start()
    assert used == [NO_TRUST]

    source.look_up(SETTINGS)
    source.refresh()

    assert used == [NO_TRUST, FROM_CLUSTER]


async def test_a_file_that_is_no_ca_is_named(tmp_path: Path):
    options = AuthenticationOptions(client_ca_file=ca_file(tmp_path, b"what is this"))

    with pytest.raises(BadCertificate, match=f"{tmp_path}/ca.crt: not a bundle"):
        await TrustSource(options, None, Used()).start()


async def test_a_changed_file_counts_and_a_broken_one_does_not(tmp_path: Path):
    used = Used()
    options = AuthenticationOptions(client_ca_file=ca_file(tmp_path), skip_lookup=True)
    source = TrustSource(options, None, used)
    await source.start()

    source.refresh()
    ca_file(tmp_path, b"what is this")
    source.refresh()
    ca_file(tmp_path, CLIENT_CA.certificate)
    source.refresh()

    assert used == [Trust(OTHER_CA.certificate), Trust(CLIENT_CA.certificate)]


async def test_settings_that_are_no_lists_leave_the_old_ones_in_place(
    caplog: pytest.LogCaptureFixture,
):
    used = Used()
    source = TrustSource(AuthenticationOptions(), Cluster(SETTINGS), used)
    await source.start()

    source.look_up({**SETTINGS, "requestheader-allowed-names": "front-proxy"})
    source.refresh()
    source.refresh()

    assert used == [FROM_CLUSTER]
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
