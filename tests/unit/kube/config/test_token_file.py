"""Tokens in files are renewed by others; we follow, and survive their mishaps."""

import logging

import pytest

from pileus.kube.config.credentials import TokenFile
from pileus.kube.errors import CredentialsError
from tests.unit.kube.config.stage import HandClock, Stage, authorization


async def test_a_rotated_token_is_taken_within_ten_seconds(stage: Stage) -> None:
    file = stage.folder / "token"
    file.write_text("first\n")
    access = stage.load_user(tokenFile="token")
    file.write_text("second\n")

    stage.clock.forward(9)
    before = await authorization(access)
    stage.clock.forward(1)

    assert before == "Bearer first"
    assert await authorization(access) == "Bearer second"


async def test_a_rejected_token_is_read_anew_at_once(stage: Stage) -> None:
    file = stage.folder / "token"
    file.write_text("first")
    access = stage.load_user(tokenFile=str(file))
    file.write_text("second")

    access.credentials.rejected()

    assert await authorization(access) == "Bearer second"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two words", b"\xff\xfe"])
async def test_the_last_good_token_stays_when_there_is_no_new_one(
    stage: Stage, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = stage.folder / "token"
    file.write_text("first")
    access = stage.load_user(tokenFile=str(file))
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)

    stage.clock.forward(10)

    assert await authorization(access) == "Bearer first"
    assert [r.levelno for r in caplog.records if "Keeping the last token" in r.message] == [
        logging.ERROR
    ]


async def test_the_file_wins_over_the_token_which_is_the_fallback(stage: Stage) -> None:
    file = stage.folder / "token"
    access = stage.load_user(token="inline", tokenFile=str(file))
    before = await authorization(access)

    file.write_text("from-file")
    stage.clock.forward(10)

    assert before == "Bearer inline"
    assert await authorization(access) == "Bearer from-file"


async def test_a_clock_set_back_does_not_stop_the_reading(stage: Stage) -> None:
    file = stage.folder / "token"
    file.write_text("first")
    access = stage.load_user(tokenFile=str(file))
    file.write_text("second")

    stage.clock.forward(-3600)

    assert await authorization(access) == "Bearer second"


def test_an_unreadable_token_is_told_with_its_file_and_without_its_content(stage: Stage) -> None:
    file = stage.folder / "token"
    file.write_text("hush hush")

    with pytest.raises(CredentialsError, match=str(file)) as caught:
        TokenFile(file, HandClock())

    assert "hush" not in str(caught.value)
