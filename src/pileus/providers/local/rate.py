"""How many requests the cloud takes: a bucket of tokens that fills with time."""

from dataclasses import dataclass

from pileus.cloud.errors import Throttled


@dataclass(frozen=True, slots=True)
class Bucket:
    per_second: float
    """0: no limit."""
    size: float
    tokens: float
    filled_at: float

    def take(self, now: float) -> "Bucket":
        """The bucket with one token less.

        Errors: `Throttled` with the time until there is one.
        """
        if self.per_second <= 0:
            return self
        gained = max(0.0, now - self.filled_at) * self.per_second
        tokens = min(self.size, self.tokens + gained)
        if tokens < 1:
            wait = (1 - tokens) / self.per_second
            raise Throttled(
                f"more than {self.per_second:g} requests per second; again in {wait:.2f} s",
                retry_after=wait,
            )
        return Bucket(self.per_second, self.size, tokens - 1, now)


def full_bucket(per_second: float, burst: int, now: float) -> Bucket:
    return Bucket(per_second, max(1, burst), max(1, burst), now)
