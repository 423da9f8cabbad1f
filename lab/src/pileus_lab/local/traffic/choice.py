"""Which member gets the next connection: in turn, or the one that the client had before."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from pileus_lab.local.traffic.wanted import Backend


def is_allowed(client: str, sources: Sequence[str]) -> bool:
    """Whether a client may connect; no ranges means everyone."""
    address = ip_address(client)
    return not sources or any(
        address in network
        for network in map(ip_network, sources)
        if network.version == address.version
    )


@dataclass(slots=True)
class Turns:
    """The turns of one listener."""

    _given: int = 0
    _kept: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    """By client: the member it had, and until when it is remembered."""

    def order(
        self, backends: Sequence[Backend], client: str, *, now: float, sticky: int | None
    ) -> list[Backend]:
        """The members to try, best first. Who has none yet takes a turn."""
        name, until = self._kept.get(client, ("", 0.0))
        if sticky is not None and until > now and any(one.name == name for one in backends):
            return sorted(backends, key=lambda one: one.name != name)
        if not backends:
            return []
        first = self._given % len(backends)
        self._given += 1
        return [*backends[first:], *backends[:first]]

    def keep(self, client: str, backend: Backend, *, now: float, sticky: int | None) -> None:
        """Remember who served a client."""
        if sticky is None:
            self._kept.clear()
            return
        self._kept = {one: kept for one, kept in self._kept.items() if kept[1] > now}
        self._kept[client] = (backend.name, now + sticky)
