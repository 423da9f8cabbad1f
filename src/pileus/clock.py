"""Where wall-clock time comes from. Waiting is the event loop's business, not the clock's."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the present moment, aware, in UTC."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 -- the one place that may


def rfc3339(moment: datetime, timespec: str) -> str:
    """As Kubernetes writes it: in UTC, with a Z; "seconds" or "microseconds" long."""
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec=timespec)}Z"


def since_boot() -> float:
    """Seconds that never run backwards and, where the system can tell, go on while it sleeps."""
    boot_clock: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(boot_clock)
