"""A token bucket, which limits the rate of requests, retries and events."""

from typing import Self

from pileus.dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket at one moment: `rate` tokens are added per second, up to `burst`.

    A negative number of `tokens` means that callers wait for that many.
    """

    rate: float
    burst: int
    tokens: float
    at: float = 0.0

    @classmethod
    def full(cls, rate: float, burst: int, now: float = 0.0) -> Self:
        return cls(rate, burst, burst, now)

    def reserve(self, now: float) -> tuple[float, Self]:
        """Take a token. Returns the seconds until it may be used, and the bucket without it."""
        filled = min(self.burst, self.tokens + max(now - self.at, 0.0) * self.rate)
        left = type(self)(self.rate, self.burst, filled - 1, max(now, self.at))
        return max(0.0, -left.tokens / self.rate), left

    def returned(self) -> Self:
        """Returns the bucket after a waiting caller gave its token back."""
        return replace(self, tokens=min(self.tokens + 1, self.burst))
