"""A bucket of tokens, the measure of every rate here: one token is one request, retry or event."""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket at one moment: `rate` tokens flow in per second, `burst` fit in.

    `tokens` below zero are promised already, to those who wait for them.
    """

    rate: float
    burst: int
    tokens: float
    at: float = 0.0

    @classmethod
    def full(cls, rate: float, burst: int, now: float = 0.0) -> Self:
        return cls(rate, burst, burst, now)

    def reserve(self, now: float) -> tuple[float, Self]:
        """Take a token; return after how many seconds it may be used, and the bucket left."""
        filled = min(self.burst, self.tokens + max(now - self.at, 0.0) * self.rate)
        left = type(self)(self.rate, self.burst, filled - 1, max(now, self.at))
        return max(0.0, -left.tokens / self.rate), left

    def returned(self) -> Self:
        """The bucket after somebody who waited gave up, and left the token to the others."""
        return replace(self, tokens=min(self.tokens + 1, self.burst))
