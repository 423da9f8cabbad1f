"""Errors by item, for clouds with one request per item."""

import pytest

from pileus.cloud.errors import (
    LONGEST_RETRY_AFTER,
    CloudError,
    NotFound,
    Rejected,
    Throttled,
    errors_of,
)

SECRET, SURROGATE = "password=hunter2", "a\udc80b"
GONE, WRONG = NotFound("gone"), Rejected("wrong")
BUSY = Throttled("slow down", retry_after=30)


class Api:
    def __init__(self, **errors: Exception) -> None:
        self.errors = errors
        self.asked: list[str] = []

    async def act(self, item: str) -> None:
        self.asked.append(item)
        if item in self.errors:
            raise self.errors[item]


async def test_an_item_that_fails_does_not_affect_the_others():
    api = Api(a=GONE, c=WRONG)

    errors: dict[str, CloudError] = await errors_of("abcd", api.act)

    assert errors == {"a": GONE, "c": WRONG}
    assert api.asked == ["a", "b", "c", "d"]


async def test_after_throttled_no_further_request_is_made():
    api = Api(a=GONE, b=BUSY)

    assert await errors_of("abcd", api.act) == {"a": GONE, "b": BUSY, "c": BUSY, "d": BUSY}
    assert api.asked == ["a", "b"]


async def test_other_errors_are_raised():
    with pytest.raises(KeyError):
        await errors_of("ab", Api(a=KeyError("x")).act)


def test_the_text_of_an_error_has_no_secret_and_can_be_encoded() -> None:
    """Events, conditions, logs, plans and explanations show it."""
    assert str(Rejected(f"the cloud said {SECRET}")) == "the cloud said password=***"
    assert str(Throttled(SURROGATE)) == r"a\udc80b"
    assert len(str(Rejected("a" * 10**6))) < 40_000


@pytest.mark.parametrize(
    ("asked", "honoured"),
    [
        (30.0, 30.0),
        (999_999_999.0, LONGEST_RETRY_AFTER),
        (float("inf"), None),
        (float("nan"), None),
        (None, None),
    ],
)
def test_a_cloud_cannot_ask_for_endless_silence(
    asked: float | None, honoured: float | None
) -> None:
    assert Throttled("wait", retry_after=asked).retry_after == honoured
