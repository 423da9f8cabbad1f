"""Tokens: requested once, renewed in time, replaced with their credentials; nothing leaks."""

import asyncio
import logging
import ssl
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from pileus.cloud.connection import connected
from pileus.cloud.errors import (
    Misconfigured,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from pileus.cloud.interface import ProviderConfig
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.connect import connect, connected_api
from pileus.providers.openstack.connections import Connections
from pileus.providers.openstack.http_api import HttpApi
from pileus.providers.openstack.load import load
from pileus.providers.openstack.session import FILE_CHECK, REFUSED_FOR, Session
from pileus.telemetry.log import VALUES
from tests.unit.kube.https_server import Trust
from tests.unit.providers.openstack.keystone import Keystone, conf, config_file, keystone

pytestmark = pytest.mark.real_time

SERVERS = Call(service=Service.COMPUTE, method="GET", path="/servers", microversion="2.53")


@dataclass
class World:
    cloud: Keystone
    path: Path
    given: ProviderConfig
    api: HttpApi
    now: float = 0.0

    async def call(self) -> None:
        assert await self.api.call(SERVERS) == {"servers": []}

    def write(self, text: str) -> None:
        """Change cloud.conf, long enough ago to be noticed."""
        self.path.write_text(text)
        self.now += FILE_CHECK


@asynccontextmanager
async def world(folder: Path, more: str = "") -> AsyncGenerator[World]:
    async with keystone() as cloud:
        path = folder / "cloud.conf"
        given = config_file(path, conf(cloud, more=more))
        loaded = load(given)
        connections = Connections(loaded, {})
        made: list[World] = []
        session = Session(given, loaded, connections, now=lambda: made[0].now if made else 0.0)
        made.append(World(cloud, path, given, HttpApi(session, connections)))
        try:
            yield made[0]
        finally:
            await connections.close()


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [
        f"{record.message} {getattr(record, VALUES, {})}"
        for record in caplog.records
        if record.levelno >= level and record.name.startswith("pileus.providers")
    ]


async def test_one_token_serves_many_requests(tmp_path):
    async with world(tmp_path) as w:
        for _ in range(3):
            await w.call()
        assert len(w.cloud.asked) == 1
        assert w.cloud.headers["X-OpenStack-Nova-API-Version"] == "2.53"
        assert w.cloud.headers["OpenStack-API-Version"] == "compute 2.53"
        assert w.cloud.headers["User-Agent"].startswith("pileus/")


async def test_concurrent_requests_share_one_request_for_a_token(tmp_path):
    async with world(tmp_path) as w:
        w.cloud.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                tasks.create_task(w.call())
            while not w.cloud.asked:
                await asyncio.sleep(0)
            w.cloud.gate.set()
        assert len(w.cloud.asked) == 1


async def test_a_token_is_renewed_before_it_expires(tmp_path):
    async with world(tmp_path) as w:
        await w.call()
        w.now = 3600 - 301
        await w.call()
        assert len(w.cloud.asked) == 1
        w.now = 3600 - 299
        await w.call()
        assert len(w.cloud.asked) == 2
        assert w.cloud.calls[-1] == "token-2"


async def test_while_keystone_is_down_a_token_is_used_until_its_end(tmp_path, caplog):
    async with world(tmp_path) as w:
        await w.call()
        w.cloud.is_down = True
        w.now = 3600 - 100
        await w.call()
        assert w.cloud.calls[-1] == "token-1"
        assert any("Token cannot be renewed yet" in each for each in messages(caplog))
        w.now = 3601
        with pytest.raises(Unavailable, match=r"503 Service Unavailable \(request ID req-1\)"):
            await w.call()
        w.cloud.is_down = False
        await w.call()


async def test_a_refused_token_is_renewed_once_for_all_requests(tmp_path):
    async with world(tmp_path) as w:
        await w.call()
        w.cloud.tokens.clear()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(w.call())
        assert len(w.cloud.asked) == 2


async def test_a_service_that_refuses_every_token_is_asked_twice_and_no_more(tmp_path):
    async with world(tmp_path) as w:
        w.cloud.tokens = Refusing()
        with pytest.raises(Unauthorized, match="401 The request you have made"):
            await w.call()
        assert len(w.cloud.calls) == 2
        assert len(w.cloud.asked) == 2


class Refusing(set[str]):
    def __contains__(self, _: object) -> bool:
        return False


async def test_refused_credentials_are_not_tried_again_at_once(tmp_path):
    async with world(tmp_path) as w:
        w.cloud.secrets.clear()
        for _ in range(3):
            with pytest.raises(Unauthorized, match="Keystone refuses user u: .*req-1") as error:
                await w.call()
            assert "hunter2" not in str(error.value)
        assert len(w.cloud.asked) == 1
        w.now += REFUSED_FOR
        w.cloud.secrets["hunter2"] = "p"
        await w.call()


async def test_a_cancelled_renewal_does_not_fail_the_others(tmp_path):
    async with world(tmp_path) as w:
        w.cloud.gate.clear()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(w.call())
            while not w.cloud.asked:
                await asyncio.sleep(0)
            second = tasks.create_task(w.call())
            first.cancel()
            w.cloud.gate.set()
        assert second.done()


async def test_changed_credentials_are_used_without_a_restart(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    async with world(tmp_path) as w:
        await w.call()
        w.cloud.secrets = {"rotated": "p"}
        w.write(conf(w.cloud, "rotated"))
        await w.call()
        assert w.cloud.calls[-1] == "token-2"
        assert any("Using changed credentials" in each for each in messages(caplog, logging.INFO))
        assert "rotated" not in caplog.text + str(messages(caplog, 0))


async def test_credentials_that_were_replaced_meanwhile_are_read_before_giving_up(tmp_path):
    async with world(tmp_path) as w:
        await w.call()
        w.path.write_text(conf(w.cloud, "rotated"))
        w.cloud.secrets, w.cloud.tokens = {"rotated": "p"}, set()
        await w.call()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[Global]\nauth-url", "the value is missing"),
        ("[Global\n", "expected"),
        ("", "auth-url is missing"),
        (None, "does not exist any more"),
    ],
)
async def test_a_broken_file_does_not_replace_working_credentials(tmp_path, caplog, text, problem):
    async with world(tmp_path) as w:
        await w.call()
        if text is None:
            w.path.unlink()
            w.now += FILE_CHECK
        else:
            w.write(text)
        await w.call()
        w.now += REFUSED_FOR
        await w.call()
        (reported,) = messages(caplog)
        assert "cannot be used, keeping the old ones" in reported
        assert problem in reported
        assert len(w.cloud.asked) == 1


async def test_credentials_that_keystone_refuses_do_not_replace_working_ones(tmp_path, caplog):
    async with world(tmp_path) as w:
        await w.call()
        w.write(conf(w.cloud, "wrong"))
        await w.call()
        await w.call()
        assert len(w.cloud.asked) == 2
        assert "Keystone refuses user u" in messages(caplog)[0]
        w.cloud.secrets["wrong"] = "p"
        w.now += REFUSED_FOR
        await w.call()
        assert w.cloud.calls[-1] == "token-3"


async def test_credentials_of_another_project_are_refused_so_that_no_node_seems_deleted(
    tmp_path, caplog
):
    async with world(tmp_path) as w:
        await w.call()
        w.cloud.secrets["other"] = "q"
        w.write(conf(w.cloud, "other"))
        await w.call()
        assert w.cloud.calls[-1] == "token-1"
        assert "are for project q" in messages(caplog)[0]


async def test_other_settings_are_used_after_a_restart(tmp_path, caplog):
    async with world(tmp_path) as w:
        await w.call()
        w.write(conf(w.cloud, more="[LoadBalancer]\ninternal-lb"))
        await w.call()
        assert "outside of [Global] changed, they are used after a restart" in messages(caplog)[0]


async def test_a_request_ends_after_the_time_limit_of_the_configuration(tmp_path):
    async with world(tmp_path, "[Metadata]\nrequest-timeout = 50ms") as w:
        w.cloud.gate.clear()
        with pytest.raises(Unavailable, match=r"no (answer|connection) within 0.05 s"):
            await w.call()


async def test_a_client_certificate_identifies_the_manager(tmp_path):
    trust = Trust(tmp_path)
    ca, pair = tmp_path / "ca.pem", tmp_path / "pair.pem"
    context = trust.server("127.0.0.1")
    context.verify_mode = ssl.CERT_REQUIRED
    ca.write_bytes(trust.authority.certificate)
    trust.client("manager")  # writes its certificate and key to pair.pem
    async with keystone(context) as cloud:
        more = f"ca-file = {ca}"
        with pytest.raises(Unavailable):
            async with connected_api(config_file(tmp_path / "c", conf(cloud, more=more))):
                pass
        more += f"\ncert-file = {pair}\nkey-file = {pair}"
        async with connected_api(config_file(tmp_path / "c", conf(cloud, more=more))) as (api, _):
            await api.call(SERVERS)


async def test_a_private_ca_needs_no_file(tmp_path):
    trust = Trust(tmp_path)
    pem = trust.authority.certificate.decode()
    entry = {"cacert": pem, "auth": {"password": "x"}}
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(yaml.safe_dump({"clouds": {"mine": entry}}))
    ways = (
        f"ca-data = {b64encode(pem.encode()).decode()}",
        f"use-clouds = true\nclouds-file = {clouds}",
    )
    async with keystone(trust.server("127.0.0.1")) as cloud:
        with pytest.raises(Unavailable, match="is not trusted"):
            async with connected_api(config_file(tmp_path / "c", conf(cloud))):
                pass
        for more in ways:
            given = config_file(tmp_path / "c", conf(cloud, more=more))
            async with connected_api(given) as (api, _):
                await api.call(SERVERS)


async def test_a_proxy_of_the_environment_is_used(tmp_path):
    async with keystone() as cloud:
        text = conf(cloud, more="auth-url = http://keystone.invalid")
        given = config_file(tmp_path / "c", text, HTTP_PROXY=cloud.url)
        async with connected_api(given) as (api, _):
            await api.call(SERVERS)
        assert len(cloud.asked) == 1
        given = replace(given, environ={"HTTP_PROXY": cloud.url, "NO_PROXY": ".invalid"})
        with pytest.raises(Unavailable, match="cannot connect to keystone.invalid"):
            async with connected_api(given):
                pass


async def test_another_region_needs_a_restart(tmp_path, caplog):
    async with world(tmp_path) as w:
        await w.call()
        w.write(conf(w.cloud, more="region = S"))
        await w.call()
        assert "region: changed" in messages(caplog)[0]


async def test_a_token_of_the_configuration_is_used_until_it_is_refused(tmp_path):
    async with keystone() as cloud:
        cloud.tokens.add("given")
        text = f"[Global]\nauth-url = {cloud.url}\ntoken = given\n"
        async with connected_api(config_file(tmp_path / "c", text)) as (api, _):
            await api.call(SERVERS)
            assert cloud.calls == ["given"]
            cloud.tokens.clear()
            with pytest.raises(Unauthorized, match="Keystone refuses the token"):
                await api.call(SERVERS)


async def test_a_region_that_is_not_set_is_the_only_one(tmp_path):
    async with (
        keystone() as cloud,
        connected_api(config_file(tmp_path / "c", conf(cloud))) as (_, settings),
    ):
        assert settings.auth.region == "R"


async def test_the_user_agent_begins_with_what_the_flag_says(tmp_path):
    async with keystone() as cloud:
        given = config_file(tmp_path / "c", conf(cloud))
        async with connected_api(replace(given, user_agent=("acme/7", "blue"))) as (api, _):
            await api.call(SERVERS)
        assert cloud.headers["User-Agent"].startswith("acme/7 blue pileus/")


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ("region = X", Misconfigured, 'region: "X" is not in the catalogue'),
        ("password = wrong", Unauthorized, "Keystone refuses user u"),
        ("auth-url = http://127.0.0.1:1", Unavailable, "cannot connect to 127.0.0.1:1"),
        ("auth-url = https://127.0.0.1:1", Unavailable, "cannot connect to 127.0.0.1:1"),
        ("ca-file = /nope", Misconfigured, 'cannot load "/nope"'),
    ],
)
async def test_a_provider_that_cannot_connect_says_why(tmp_path, more, error, words):
    async with keystone() as cloud:
        with pytest.raises(error, match=words) as found:
            async with connect(config_file(tmp_path / "c", conf(cloud, more=more))):
                pass
        assert "hunter2" not in repr(found.value)


async def test_a_url_that_is_not_keystone_is_named(tmp_path):
    async with keystone() as cloud:
        given = config_file(tmp_path / "c", conf(cloud, more=f"auth-url = {cloud.url}/other"))
        with pytest.raises(Misconfigured, match='auth-url: "http://.*/other" is not Keystone v3'):
            async with connect(given):
                pass


async def test_without_a_configuration_the_flag_is_named():
    with pytest.raises(Misconfigured, match=r"Fix: --cloud-config=/etc/kubernetes/cloud.conf"):
        async with connect(ProviderConfig()):
            pass


async def test_a_service_that_is_missing_is_unsupported(tmp_path):
    async with world(tmp_path) as w:
        client = Client(w.api)
        with pytest.raises(Unsupported, match="no public endpoint of type load-balancer"):
            await client.send("GET", Service.LOAD_BALANCER, "/")


@pytest.mark.parametrize(
    ("services", "volumes"), [(("compute", "network"), False), (("compute", "volumev3"), True)]
)
async def test_what_needs_a_missing_service_is_left_out_of_the_cloud(
    tmp_path, caplog, services, volumes
):
    async with keystone() as cloud:
        cloud.services = services
        async with connect(config_file(tmp_path / "c", conf(cloud))) as found:
            assert found.instances is not None
            assert found.balancers is None
            assert (found.volumes is not None) is volumes
    assert any("'service': <Service.LOAD_BALANCER" in each for each in messages(caplog))


@pytest.mark.parametrize("more", ["[LoadBalancer]\nenabled = false", "[LoadBalancer]"])
async def test_a_node_selector_does_no_harm_without_load_balancers(tmp_path, more):
    async with keystone() as cloud:
        text = conf(cloud, more=f"{more}\nnode-selector = pool=web")
        async with connected("openstack", connect, config_file(tmp_path / "c", text)) as found:
            assert found.balancers is None
            assert found.abilities.member_labels == frozenset()


async def test_changed_authorities_are_trusted_without_a_restart(tmp_path):
    old, new = Trust(tmp_path), Trust(tmp_path)
    authorities = tmp_path / "ca.pem"
    authorities.write_bytes(old.authority.certificate)
    async with keystone(new.server("127.0.0.1")) as cloud:
        given = config_file(tmp_path / "c", conf(cloud, more=f"ca-file = {authorities}"))
        with pytest.raises(Unavailable, match="certificate of the server is not trusted"):
            async with connected_api(given):
                pass
        loaded = load(given)
        connections = Connections(loaded, {})
        time = [0.0]
        api = HttpApi(Session(given, loaded, connections, now=lambda: time[0]), connections)
        try:
            with pytest.raises(Unavailable):
                await api.call(SERVERS)
            authorities.write_bytes(new.authority.certificate)
            time[0] += FILE_CHECK
            await api.call(SERVERS)
        finally:
            await connections.close()


async def test_requests_under_way_end_with_the_clients_that_they_began_with(tmp_path):
    async with world(tmp_path) as w:
        await w.call()
        connections = w.api.connections
        async with connections.client(f"{w.cloud.url}/v2.1") as http:
            ca = tmp_path / "ca.pem"
            ca.write_bytes(Trust(tmp_path).authority.certificate)
            connections.use(
                load(config_file(tmp_path / "d", conf(w.cloud, more=f"ca-file = {ca}")))
            )
            await http.request("GET", "/servers", headers={"X-Auth-Token": "token-1"})
        await w.call()
