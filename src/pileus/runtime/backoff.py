"""How long a key waits after its n-th failure in a row. Pure, except for the shared bucket.

The delays are those of the Go framework. The jitter is ours, and only lengthens a delay.
"""

import math
import random

from pileus.bucket import Bucket
from pileus.dataclass import dataclass
from pileus.runtime.failure import all_ask_to_wait, hint

JITTER = 0.1


@dataclass(frozen=True, slots=True)
class Exponential:
    """`first` seconds after the first failure, `factor` times that after each, at most `last`."""

    first: float
    last: float
    factor: float = 2.0

    def delay(self, failures: int) -> float:
        steps = min(max(failures - 1, 0), 64)
        return min(self.last, self.first * self.factor**steps)


SERVICE_RETRIES = Exponential(5.0, 300.0)


@dataclass(slots=True)
class Pacing:
    """The backoff of an optional write, such as a condition that explains a failure.

    Passes that run for other reasons make such a write, perhaps once a second because a cloud asks
    for it. After a failure the write needs a backoff of its own.
    """

    delays: Exponential = Exponential(5.0, 60.0)
    failures: int = 0
    resumes: float = -math.inf
    """The time of the next attempt."""

    def is_due(self, now: float) -> bool:
        return now >= self.resumes

    def failed(self, error: BaseException, now: float) -> None:
        self.failures += 1
        self.resumes = now + max(self.delays.delay(self.failures), hint(error) or 0.0)

    def succeeded(self) -> None:
        self.failures, self.resumes = 0, -math.inf


class RetryPolicy:
    """Decides when a failed key is tried again.

    If the error says when (`retry_after`, in seconds), that delay is used. Otherwise the delay is
    the longer of the key's own exponential delay and the wait for a token of the bucket that all
    keys share, if there is one. If several operations failed and only some errors say when, the
    longest of all these delays is used.
    """

    def __init__(
        self,
        delays: Exponential,
        random: random.Random,
        *,
        bucket: Bucket | None = None,
        jitter: float = JITTER,
    ) -> None:
        self._delays = delays
        self._random = random
        self._bucket = bucket
        self._jitter = jitter

    def delay(self, failures: int, error: BaseException, now: float) -> float:
        """Returns the seconds until the next attempt, after `failures` failures in a row."""
        asked = hint(error) or 0.0
        if not all_ask_to_wait(error):
            asked = max(asked, self._delays.delay(failures), self._reserve(now))
        return asked * (1.0 + self._jitter * self._random.random())

    def _reserve(self, now: float) -> float:
        if self._bucket is None:
            return 0.0
        wait, self._bucket = self._bucket.reserve(now)
        return wait


def default_policy(random: random.Random) -> RetryPolicy:
    """Per key 5 ms, doubled up to 1000 s; for all keys ten a second, after a burst of a hundred."""
    return RetryPolicy(Exponential(0.005, 1000.0), random, bucket=Bucket.full(10.0, 100))


def service_policy(random: random.Random) -> RetryPolicy:
    """Per key 5 s, doubled up to 300 s."""
    return RetryPolicy(SERVICE_RETRIES, random)
