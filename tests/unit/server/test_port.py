"""The whole port over real TLS on loopback: every path, with every kind of proof."""

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from pileus.clock import SystemClock
from pileus.pki import KeyPair, Subject
from pileus.server.endpoints import Configz, Surface, surface_routes
from pileus.server.errors import BadCertificate, CannotListen
from pileus.server.health import Health
from pileus.server.port import Address, PortContext, opened, secured
from pileus.server.reviews import Delegates, ReviewFailed, Verdict
from pileus.server.router import Routes
from pileus.server.settings import (
    AuthenticationOptions,
    RequestHeaderOptions,
    ServerSettings,
    ServingOptions,
)
from pileus.server.tls import names_in
from pileus.server.users import User
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.server.people import (
    ADMIN,
    CLIENT_CA,
    JANE,
    MALLORY,
    OTHER_CA,
    PROXY,
    PROXY_CA,
    behind_an_intermediate,
    client_context,
    serving_pair,
)

pytestmark = pytest.mark.real_time

PATIENCE = 30.0


class Tokens:
    async def review(self, token: str) -> User | None:
        return User("robot") if token == "good" else None


class Access:
    """The robot may see metrics; about one path there is never an answer."""

    async def review(self, user: User, verb: str, path: str) -> Verdict:
        if path == "/unanswered":
            raise ReviewFailed("forbidden", code=403)
        return Verdict(allowed=(user.name, verb, path) == ("robot", "get", "/metrics"))


@dataclass
class Site:
    """A port that serves, and what is behind it."""

    address: Address
    verbosity: list[int]
    health: Health

    async def ask(
        self,
        path: str,
        pair: KeyPair | None = None,
        *,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        data: str | None = None,
    ) -> tuple[int, str, Mapping[str, str]]:
        url = f"https://127.0.0.1:{self.address.port}{path}"
        connector = aiohttp.TCPConnector(ssl=client_context(pair))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, url, headers=headers, data=data) as response,
        ):
            return response.status, await response.text(), response.headers


async def broken(_: object):
    raise ZeroDivisionError("a bug")


@asynccontextmanager
async def site(options: ServerSettings | None = None, *, profiling: bool = True):
    metrics, health, configz = Metrics(MetricRegistry()), Health(), Configz()
    configz.add("some.config", lambda: {"kind": "Some"})
    listener = socket.create_server(("127.0.0.1", 0))
    around = PortContext(metrics, SystemClock(), Delegates(Tokens(), Access()))
    verbosity: list[int] = []
    surface = Surface(health, metrics, configz, verbosity.append)
    routes = surface_routes(surface, profiling=profiling) | Routes({"/broken": broken})
    async with (
        secured(listener, options or ServerSettings(), around) as port,
        port.serving(routes) as address,
    ):
        yield Site(address, verbosity, health)


@pytest.fixture
def with_cas(tmp_path: Path) -> ServerSettings:
    clients, proxies = tmp_path / "clients.crt", tmp_path / "proxies.crt"
    clients.write_bytes(CLIENT_CA.certificate)
    proxies.write_bytes(PROXY_CA.certificate)
    headers = RequestHeaderOptions(client_ca_file=str(proxies))
    return ServerSettings(
        authentication=AuthenticationOptions(client_ca_file=str(clients), request_header=headers)
    )


async def test_health_is_for_all_and_the_rest_is_not():
    async with site() as here:
        status, text, headers = await here.ask("/healthz")
        assert (status, text) == (200, "ok")
        assert headers["Cache-Control"] == "no-cache, private"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in headers

        for path in ("/livez", "/readyz"):
            assert (await here.ask(f"{path}?verbose"))[1] == (
                f"[+]ping ok\n{path[1:]} check passed\n"
            )

        for path in ("/metrics", "/no-such-path", "/healthz/ping"):
            status, text, _ = await here.ask(path)
            assert status == 403, path
        assert json.loads((await here.ask("/metrics"))[1]) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": 'forbidden: User "system:anonymous" cannot get path "/metrics"',
            "reason": "Forbidden",
            "details": {},
            "code": 403,
        }


async def test_a_token_opens_what_its_user_may_see_and_a_bad_one_nothing():
    async with site() as here:
        good, bad = ({"Authorization": f"Bearer {token}"} for token in ("good", "bad"))

        status, text, headers = await here.ask("/metrics", headers=good)
        assert status == 200
        assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "process_cpu_seconds_total" in text

        open_metrics = {**good, "Accept": "application/openmetrics-text; version=1.0.0"}
        assert (await here.ask("/metrics", headers=open_metrics))[1].endswith("# EOF\n")
        prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;q=0.5,*/*;q=0.1"
        shown = await here.ask("/metrics", headers={**good, "Accept": prometheus})
        assert shown[2]["Content-Type"].startswith("text/plain"), "as from the Go framework"
        assert (await here.ask("/configz", headers=good))[0] == 403

        status, text, _ = await here.ask("/healthz", headers=bad)
        assert (status, json.loads(text)["reason"]) == (401, "Unauthorized")


async def test_a_master_sees_everything(with_cas: ServerSettings):
    async with site(with_cas) as here:
        status, text, _ = await here.ask("/configz", ADMIN)
        assert (status, json.loads(text)) == (200, {"some.config": {"kind": "Some"}})
        assert json.loads((await here.ask("/version", ADMIN))[1])["major"] == "1"
        assert (await here.ask("/healthz/ping", ADMIN))[:2] == (200, "ok")
        assert (await here.ask("/healthz/nothing", ADMIN))[0] == 404
        assert (await here.ask("/no-such-path", ADMIN))[:2] == (404, "404 page not found\n")
        assert "test_a_master_sees_everything" in (await here.ask("/debug/stacks", ADMIN))[1]
        assert "builtins.dict" in (await here.ask("/debug/memory", ADMIN))[1]
        assert "/debug/stacks" in (await here.ask("/debug/pprof/heap", ADMIN))[1]


async def test_a_check_of_readiness_alone_is_in_no_other_probe_and_no_other_sli(
    with_cas: ServerSettings,
):
    async with site(with_cas) as here:
        here.health.add("synced", lambda: "not yet", live=False)

        assert [(await here.ask(path))[0] for path in ("/healthz", "/livez", "/readyz")] == [
            200,
            200,
            500,
        ]
        assert (await here.ask("/healthz/synced", ADMIN))[0] == 404
        slis = (await here.ask("/metrics/slis", ADMIN))[1]
        assert 'kubernetes_healthcheck{name="synced",type="readyz"} 0' in slis
        assert slis.count('kubernetes_healthcheck{name="synced"') == 1


async def test_slis_follow_the_probes_and_can_be_reset(with_cas: ServerSettings):
    async with site(with_cas) as here:
        await here.ask("/livez")
        expected = 'kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 1'
        assert expected in (await here.ask("/metrics/slis", ADMIN))[1]

        reset = await here.ask("/metrics/slis", ADMIN, method="DELETE")

        assert reset[:2] == (200, "metrics reset\n")
        assert (await here.ask("/metrics/slis", ADMIN))[1] == ""
        assert (await here.ask("/metrics", ADMIN, method="DELETE"))[0] == 405


async def test_verbosity_is_set_by_put_alone(with_cas: ServerSettings):
    async with site(with_cas) as here:
        path = "/debug/flags/v"
        assert (await here.ask(path, ADMIN))[0] == 406
        assert (await here.ask(path, ADMIN, method="PUT", data="much"))[0] == 400
        assert here.verbosity == []

        status, text, _ = await here.ask(path, ADMIN, method="PUT", data="5\n")

        assert (status, text) == (200, "successfully set klog.logging.verbosity to 5\n")
        assert here.verbosity == [5]


async def test_without_profiling_there_is_nothing_to_debug(with_cas: ServerSettings):
    async with site(with_cas, profiling=False) as here:
        assert (await here.ask("/debug/stacks", ADMIN))[1] == "404 page not found\n"


async def test_certificates_tell_clients_and_proxies_apart(with_cas: ServerSettings):
    async with site(with_cas) as here:
        for_root = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}

        assert 'User \\"jane\\"' in (await here.ask("/configz", JANE))[1]
        assert (await here.ask("/configz", PROXY, headers=for_root))[0] == 200
        assert (await here.ask("/configz", JANE, headers=for_root))[0] == 403
        assert (await here.ask("/healthz", PROXY))[0] == 401
        with pytest.raises(aiohttp.ClientError):
            await here.ask("/healthz", MALLORY)
        assert (await here.ask("/healthz"))[0] == 200


async def test_a_client_may_bring_the_cas_between_it_and_ours(with_cas: ServerSettings):
    kim = behind_an_intermediate(Subject(common_name="kim", organizations=("system:masters",)))

    async with site(with_cas) as here:
        assert (await here.ask("/configz", kim))[0] == 200


async def test_a_bug_in_a_handler_costs_one_request(
    with_cas: ServerSettings, caplog: pytest.LogCaptureFixture
):
    async with site(with_cas) as here:
        status, text, _ = await here.ask("/broken", ADMIN)

        assert (status, text) == (500, "internal error; see the log\n")
        assert "ZeroDivisionError" in caplog.text
        assert (await here.ask("/healthz"))[0] == 200


async def test_no_answer_on_a_right_is_an_error_and_not_a_permission():
    async with site() as here:
        status, text, _ = await here.ask("/unanswered")

    assert status == 500
    assert text.startswith('Internal Server Error: "/unanswered": ')


async def test_a_changed_certificate_file_is_shown_to_the_next_client(tmp_path: Path):
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def put(name: str) -> None:
        pair = serving_pair(name).pair
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)

    def shown(port: int) -> tuple[str, ...]:
        return names_in(ssl.get_server_certificate(("127.0.0.1", port), timeout=10).encode())

    put("old.test")
    serving = ServingOptions(cert_file=str(certificate), key_file=str(key))
    async with site(ServerSettings(serving=serving)) as here:
        port = here.address.port
        assert await asyncio.to_thread(shown, port) == ("old.test",)

        put("new.test")

        async with asyncio.timeout(PATIENCE):
            while await asyncio.to_thread(shown, port) != ("new.test",):
                await asyncio.sleep(0.1)


async def test_a_changed_ca_file_counts_for_the_next_client(with_cas: ServerSettings):
    async with site(with_cas) as here:
        assert (await here.ask("/configz", ADMIN))[0] == 200

        Path(with_cas.authentication.client_ca_file).write_bytes(OTHER_CA.certificate)

        async with asyncio.timeout(PATIENCE):
            while not await passes(here, MALLORY):
                await asyncio.sleep(0.1)
        assert not await passes(here, ADMIN)


async def passes(here: Site, pair: KeyPair) -> bool:
    try:
        return (await here.ask("/configz", pair))[0] == 200
    except aiohttp.ClientError:
        return False


async def test_a_taken_port_is_found_before_anything_else():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        serving = ServingOptions(
            bind_address="127.0.0.1", port=taken.getsockname()[1], cert_file="/does/not/exist"
        )
        around = PortContext(Metrics(MetricRegistry()), SystemClock())

        with pytest.raises(CannotListen):
            async with opened(ServerSettings(serving=serving), around):
                pass


async def test_port_zero_is_not_served():
    around = PortContext(Metrics(MetricRegistry()), SystemClock())

    async with opened(ServerSettings(serving=ServingOptions(port=0)), around) as port:
        assert port is None


async def test_a_bad_certificate_leaves_no_socket_behind():
    listener = socket.create_server(("127.0.0.1", 0))
    serving = ServingOptions(cert_file="/does/not/exist", key_file="/nor/this")
    around = PortContext(Metrics(MetricRegistry()), SystemClock())

    with pytest.raises(BadCertificate, match="/does/not/exist"):
        async with secured(listener, ServerSettings(serving=serving), around):
            pass

    assert listener.fileno() == -1
