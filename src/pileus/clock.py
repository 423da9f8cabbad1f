"""The source of wall-clock time. Timers use the event loop instead."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Returns the current time in UTC, with its time zone."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 -- the one place that may


def rfc3339(moment: datetime, timespec: str) -> str:
    """Returns the time as Kubernetes writes it: UTC with a Z, to "seconds" or "microseconds"."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return f"{moment.replace(tzinfo=None).isoformat(timespec=timespec)}Z"


def since_boot() -> float:
    """Returns seconds that never decrease and, if the system supports it, include its sleep."""
    boot_clock: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(boot_clock)
