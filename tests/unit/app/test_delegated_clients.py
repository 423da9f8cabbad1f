"""Whom the HTTPS port asks is chosen by kubeconfig files; their connections end with the port."""

import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pileus.app.clients import delegates
from pileus.kube.config.errors import InvalidConfiguration
from pileus.server.reviews import NO_DELEGATES
from pileus.server.settings import AuthenticationOptions, AuthorizationOptions, ServerSettings
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics


def kubeconfig(folder: Path) -> str:
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "c", "user": ""}}
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "x"})
    )
    return str(path)


def delegation(*, authentication: str = "", authorization: str = "") -> ServerSettings:
    return ServerSettings(
        authentication=AuthenticationOptions(kubeconfig=authentication),
        authorization=AuthorizationOptions(kubeconfig=authorization),
    )


def metrics() -> Metrics:
    return Metrics(MetricRegistry())


async def test_outside_a_pod_and_without_files_nobody_is_asked() -> None:
    async with AsyncExitStack() as stack:
        assert delegates(delegation(), {}, metrics(), stack) == NO_DELEGATES


async def test_each_file_stands_for_its_own_questions(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)

    async with AsyncExitStack() as stack:
        tokens = delegates(delegation(authentication=path), {}, metrics(), stack)
        rights = delegates(delegation(authorization=path), {}, metrics(), stack)

        assert tokens.tokens
        assert tokens.settings
        assert not tokens.access
        assert (rights.tokens, rights.settings) == (None, None)
        assert rights.access


async def test_the_connection_is_closed_with_the_port(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        asked = delegates(
            delegation(authentication=kubeconfig(tmp_path)), {}, metrics(), stack
        ).tokens

    assert asked is not None
    with pytest.raises(RuntimeError, match="after its `async with` block"):
        await asked.review("token")


@pytest.mark.parametrize("question", ["authentication", "authorization"])
async def test_a_file_that_cannot_be_read_names_its_flag(question: str, tmp_path: Path) -> None:
    config = delegation(**{question: str(tmp_path / "absent")})

    async with AsyncExitStack() as stack:
        with pytest.raises(InvalidConfiguration, match=f"--{question}-kubeconfig"):
            delegates(config, {}, metrics(), stack)
