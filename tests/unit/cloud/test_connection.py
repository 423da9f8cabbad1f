from collections.abc import Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from pileus.cloud.connection import connected, read_config
from pileus.cloud.errors import Misconfigured, Unauthorized, Unavailable
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.model import Absent, Found, NodeName, NodeRef
from tests.contract.parts import Api, PartsBalancers


class Finder:
    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        assert fresh
        return {node.name: Absent("asked") for node in nodes}


class Blocks:
    def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        return {}


class ForgetsFresh:
    async def find(self, nodes: Sequence[NodeRef]) -> Mapping[NodeName, Found]:
        return {}


class AsksTheCloudToCompare(PartsBalancers):
    async def changes(self, wish: Any, seen: Any) -> Any:  # type: ignore[override] -- the mistake
        return ()


class HandsOver:
    """A plain method may return what can be awaited, if it says so."""

    def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Awaitable[Mapping[NodeName, Found]]:
        return Finder().find(nodes, fresh=fresh)


def yielding(thing: object):
    @asynccontextmanager
    async def connect(config: ProviderConfig):
        yield cast("Cloud", thing)

    return connect


async def test_the_cloud_is_there_for_as_long_as_the_block_lasts():
    seen: list[str] = []

    @asynccontextmanager
    async def connect(config: ProviderConfig):
        seen.append(config.text or "")
        yield Cloud(name="acme", instances=Finder())
        seen.append("closed")

    async with connected("acme", connect, ProviderConfig(text="key: 1")) as cloud:
        seen.append(cloud.name)

    assert seen == ["key: 1", "acme", "closed"]


@pytest.mark.parametrize(
    ("thing", "text"),
    [
        pytest.param(None, "yielded None instead of a pileus Cloud", id="None"),
        pytest.param({"name": "acme"}, "yielded dict", id="wrong type"),
        pytest.param(Cloud(name=""), "name must be a non-empty text", id="no name"),
        pytest.param(
            Cloud(name="acme", routes=cast("Any", Finder())),
            r"routes \(Finder\) lacks the method list_routes\(\); routes \(Finder\) lacks",
            id="missing methods",
        ),
        pytest.param(
            Cloud(name="acme", instances=cast("Any", Blocks())),
            r"instances \(Blocks\): find\(\) must be `async def`",
            id="not async",
        ),
        pytest.param(
            Cloud(name="acme", instances=cast("Any", ForgetsFresh())),
            r"find\(\) must take \(nodes, \*, fresh\): got an unexpected keyword argument 'fresh'",
            id="wrong parameters",
        ),
        pytest.param(
            Cloud(name="acme", balancers=cast("Any", AsksTheCloudToCompare(Api()))),
            r"changes\(\) must not be `async def`",
            id="async",
        ),
        pytest.param(
            Cloud(name="acme", controllers=cast("Any", [1])), "tuple of Own", id="controllers"
        ),
    ],
)
async def test_what_is_no_whole_cloud_is_refused_with_the_provider_named(thing, text):
    with pytest.raises(Misconfigured, match=f'"acme".*{text}'):
        async with connected("acme", yielding(thing), ProviderConfig()):
            pytest.fail("entered")


async def test_a_plain_method_that_returns_an_awaitable_is_accepted():
    cloud = Cloud(name="acme", instances=cast("Any", HandsOver()))

    async with connected("acme", yielding(cloud), ProviderConfig()) as found:
        assert found is cloud


async def test_a_foreign_error_while_connecting_names_the_provider():
    def connect(config: ProviderConfig):
        raise KeyError("region")

    with pytest.raises(Unavailable, match="\"acme\" could not connect: KeyError: 'region'") as told:
        async with connected("acme", connect, ProviderConfig()):
            pytest.fail("entered")

    assert isinstance(told.value.__cause__, KeyError)


async def test_connect_that_returns_no_context_manager_is_told():
    def connect(config: ProviderConfig) -> object:
        return Cloud(name="acme")

    with pytest.raises(Unavailable, match='"acme" could not connect: TypeError'):
        async with connected("acme", cast("Any", connect), ProviderConfig()):
            pytest.fail("entered")


async def test_the_providers_own_errors_pass_unchanged():
    def connect(config: ProviderConfig):
        raise Unauthorized("the token is expired")

    with pytest.raises(Unauthorized, match="the token is expired") as told:
        async with connected("acme", connect, ProviderConfig()):
            pytest.fail("entered")

    assert told.value.__notes__ == ['cloud provider "acme" could not connect']


async def test_an_error_of_the_block_is_not_taken_for_the_providers():
    with pytest.raises(KeyError):
        async with connected("acme", yielding(Cloud(name="acme")), ProviderConfig()):
            raise KeyError("ours")


def test_the_config_file_is_read_and_never_shown(tmp_path):
    file = tmp_path / "cloud.yaml"
    file.write_text("password: hunter2")

    config = read_config(str(file), environ={"TOKEN": "hunter3"}, cluster_name="blue")

    assert (config.text, config.cluster_name) == ("password: hunter2", "blue")
    assert "hunter" not in repr(config)


def test_no_path_means_no_file():
    assert read_config("").text is None


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(
        Misconfigured, match=r'--cloud-config: cannot read ".*absent": No such file'
    ):
        read_config(str(tmp_path / "absent"))
    with pytest.raises(Misconfigured, match="Is a directory"):
        read_config(str(tmp_path))
    (tmp_path / "binary").write_bytes(b"ab\xff")
    with pytest.raises(Misconfigured, match=r"is not UTF-8 text \(byte 2\)"):
        read_config(str(tmp_path / "binary"))
