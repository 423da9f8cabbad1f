"""The server on a real port: TLS, certificates, tokens, streams."""

import io
import json
import ssl
from pathlib import Path

import aiohttp
import pytest

from pileus_lab.apiserver.server import ServerInfo, Settings, serving_api
from tests.unit.apiserver.caller import MAPS, NODES, config_map

pytestmark = pytest.mark.real_time


def trusting(server: ServerInfo, folder: Path, *, certificate: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=server.authority)
    if certificate:
        file = folder / "client.pem"
        file.write_text(server.certificate + server.key)
        context.load_cert_chain(file)
    return context


async def test_a_certificate_or_a_token_opens_the_door(tmp_path: Path):
    async with serving_api() as server:

        async def get(path: str, *, certificate: bool = False, token: str = "") -> int:
            context = trusting(server, tmp_path, certificate=certificate)
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with (
                aiohttp.ClientSession(server.url, headers=headers) as session,
                session.get(path, ssl=context) as response,
            ):
                return response.status

        assert await get("/healthz") == 200
        assert await get(NODES) == 403
        assert await get(NODES, certificate=True) == 200
        assert await get(NODES, token=server.token) == 200
        assert await get(NODES, token="x") == 401


def session_of(server: ServerInfo, folder: Path) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {server.token}"}
    connector = aiohttp.TCPConnector(ssl=trusting(server, folder))
    return aiohttp.ClientSession(server.url, headers=headers, connector=connector)


async def test_a_watch_streams_over_the_wire(tmp_path: Path):
    async with serving_api() as server, session_of(server, tmp_path) as session:
        async with session.get(f"{MAPS}?watch=1") as watch:
            async with session.post(MAPS, json=config_map("a")) as made:
                assert made.status == 201
            line = await watch.content.readline()

        event = json.loads(line)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        assert watch.headers["Content-Type"] == "application/json"


async def test_warnings_and_large_bodies_go_through_the_shell(tmp_path: Path):
    async with serving_api() as server, session_of(server, tmp_path) as session:
        async with session.post(MAPS, json={**config_map("a"), "foo": 1}) as made:
            assert made.headers.getall("Warning") == ['299 - "unknown field \\"foo\\""']
        large = io.BytesIO(b" " * (3 * 1024 * 1024 + 10))
        async with session.post(MAPS, data=large) as refused:
            assert refused.status == 413
            assert (await refused.json())["reason"] == "RequestEntityTooLarge"


async def test_a_busy_port_is_an_error_that_says_so():
    async with serving_api() as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(OSError, match=str(port)):
            async with serving_api(Settings(port=port)):
                pass


async def test_the_kubeconfig_names_the_server():
    async with serving_api() as server:
        config = json.loads(server.kubeconfig())
        with_token = json.loads(server.kubeconfig("abc"))

    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert "client-key-data" in config["users"][0]["user"]
    assert with_token["users"][0]["user"] == {"token": "abc"}
