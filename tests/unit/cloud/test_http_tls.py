"""TLS and proxies of the HTTP client for providers."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pileus.cloud.errors import Misconfigured, Unavailable
from pileus.cloud.http import HttpSettings, Tls, http_client
from pileus.pki import Subject
from tests.unit.cloud.test_http import answering, settings
from tests.unit.kube.https_server import NOW, Trust, proxying, serving

pytestmark = pytest.mark.real_time


async def peer(request: web.Request) -> web.Response:
    """Answers with the name in the client's certificate."""
    assert request.transport
    certificate = request.transport.get_extra_info("peercert") or {}
    names = dict(pair for one in certificate.get("subject", ()) for pair in one)
    return web.json_response({"name": names.get("commonName", "")})


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


async def test_the_server_is_verified_by_the_ca_file_and_the_client_shows_its_certificate(
    tmp_path: Path,
) -> None:
    trust = Trust(tmp_path)
    pair = trust.authority.issue(Subject(common_name="acme"), now=NOW)
    tls = Tls(
        ca_file=written(tmp_path / "ca.pem", trust.authority.certificate),
        certificate_file=written(tmp_path / "cert.pem", pair.certificate),
        key_file=written(tmp_path / "key.pem", pair.key),
    )

    async with (
        serving(peer, trust.server("127.0.0.1")) as served,
        http_client(settings(served, tls=tls)) as http,
    ):
        answer = await http.request("GET", "/whoami")

    assert answer.json() == {"name": "acme"}


async def test_the_server_is_verified_by_an_authority_that_is_given_as_text(tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    tls = Tls(ca_pem=trust.authority.certificate.decode())

    async with (
        serving(peer, trust.server("127.0.0.1")) as served,
        http_client(settings(served, tls=tls)) as http,
    ):
        assert (await http.request("GET", "/whoami")).status == 200


async def test_an_authority_need_not_be_a_root_as_with_go(tmp_path: Path) -> None:
    context = Trust(tmp_path).server("127.0.0.1")
    issued, _, _ = (tmp_path / "pair.pem").read_bytes().partition(b"-----BEGIN PRIVATE")
    tls = Tls(ca_file=written(tmp_path / "ca.pem", issued))

    async with (
        serving(peer, context) as served,
        http_client(settings(served, tls=tls)) as http,
    ):
        assert (await http.request("GET", "/whoami")).status == 200


async def test_a_server_that_is_not_trusted_is_refused_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    async with serving(peer, Trust(tmp_path).server("127.0.0.1")) as served:
        async with http_client(settings(served)) as http:
            with pytest.raises(Unavailable, match="is not trusted: .* Fix: set the CA file"):
                await http.request("GET", "/whoami")
        async with http_client(settings(served, tls=Tls(insecure=True))) as http:
            assert (await http.request("GET", "/whoami")).status == 200


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"tls": Tls(ca_file="/nowhere/ca.pem")}, 'cannot load "/nowhere/ca.pem": No such file'),
        ({"tls": Tls(ca_file="ca.pem", insecure=True)}, 'insecure and CA file "ca.pem"'),
        ({"tls": Tls(key_file="key.pem")}, 'key file "key.pem" needs a certificate file'),
        ({"base_url": "cloud.example"}, '"cloud.example" cannot be the URL of a cloud'),
        ({"base_url": "https://cloud?x=1"}, "cannot be the URL of a cloud"),
        ({"proxy": "socks5://u:hush@proxy:1080"}, "socks5 is not supported"),
    ],
)
async def test_settings_that_cannot_work_are_refused_before_the_first_request(
    parts: dict[str, Any], text: str
) -> None:
    whole: dict[str, Any] = {"base_url": "https://cloud", **parts}
    with pytest.raises(Misconfigured, match=text) as raised:
        async with http_client(HttpSettings(**whole)):
            pytest.fail("entered")

    assert "hush" not in str(raised.value)


async def test_the_proxy_of_the_settings_is_used(tmp_path: Path) -> None:
    seen: list[str] = []
    trust = Trust(tmp_path)
    tls = Tls(ca_file=written(tmp_path / "ca.pem", trust.authority.certificate))

    async with (
        serving(peer, trust.server("127.0.0.1")) as served,
        proxying(seen) as proxy,
        http_client(settings(served, tls=tls, proxy=proxy)) as http,
    ):
        await http.request("GET", "/whoami")

    assert [f"https://{target}" for target in seen] == [served.url]


async def test_the_proxy_of_the_given_environment_is_used_and_its_exceptions_are() -> None:
    async with serving(answering(text="from the proxy"), None) as proxy:
        environ = {"HTTP_PROXY": proxy.url}
        through = HttpSettings(base_url="http://cloud.invalid", environ=environ)
        around = HttpSettings(
            base_url="http://cloud.invalid", environ={**environ, "NO_PROXY": ".invalid"}
        )
        async with http_client(through) as http:
            assert (await http.request("GET", "/machines")).text == "from the proxy"
        async with http_client(around) as http:
            with pytest.raises(Unavailable, match=r"cannot connect to cloud\.invalid:80"):
                await http.request("GET", "/machines")

    assert len(proxy.requests) == 1
    assert [one.headers["Host"] for one in proxy.requests] == ["cloud.invalid"]
