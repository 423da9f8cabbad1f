"""What errors that end a pass ask for survives that they are raised again as others."""

from collections.abc import Callable

import pytest

from pileus.classic.errors import Postponed, ProviderFailed, RetryError, translated
from pileus.cloud.errors import CloudError, Conflict, Rejected, Throttled, Unavailable
from pileus.kube.errors import KubeError, ServiceUnavailable, Status
from pileus.runtime.failure import all_ask_to_wait, hint, server_pause

KINDS: list[Callable[[str], Exception]] = [
    Unavailable,
    Conflict,
    Rejected,
    CloudError,
    KubeError,
    ProviderFailed,
    RuntimeError,
]
SERVER = ServiceUnavailable("PATCH /api/v1/services/web", 503, Status(), retry_after=7)
CLOUD = Throttled("slow down", retry_after=7)


def raised(error: Exception, *causes: BaseException) -> Exception:
    """The error as a handler catches it that raised it `from` the first cause, and so on."""
    last: BaseException = error
    for cause in causes:
        last.__cause__ = cause
        last = cause
    return error


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", [SERVER, CLOUD], ids=["API server", "cloud"])
def test_an_error_that_was_raised_from_an_answer_asks_for_as_long(
    kind: Callable[[str], Exception], answer: Exception
) -> None:
    for error in (
        raised(kind("a"), answer),
        raised(kind("a"), ValueError("b"), answer),
        ExceptionGroup("several", [raised(kind("a"), answer)]),
    ):
        assert hint(error) == 7
        assert all_ask_to_wait(error)
        assert server_pause(error) == (7 if answer is SERVER else 0)


def test_what_a_ported_provider_raises_from_an_answer_asks_for_as_long() -> None:
    own = raised(ValueError("cannot read the Secret"), SERVER)

    assert server_pause(raised(translated(own), own)) == 7


def test_the_longest_delay_counts() -> None:
    assert hint(raised(Throttled("b", retry_after=9), SERVER)) == 9
    assert hint(raised(Postponed("b", retry_after=2), SERVER)) == 7


def test_a_delay_that_a_ported_provider_asked_for_counts_only_where_its_translation_says_so() -> (
    None
):
    """In Go, a RetryError of UpdateLoadBalancer is a failure like any other."""
    assert hint(raised(ProviderFailed("a"), RetryError("later", 42))) is None


def test_an_error_that_is_its_own_cause_ends() -> None:
    error = Unavailable("a")

    assert hint(raised(error, error)) is None
    assert not all_ask_to_wait(error)
    assert server_pause(TimeoutError()) == 0
