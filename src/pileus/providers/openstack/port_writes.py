"""Changes of ports, of which Services and routes may make several to the same port at once.

    writes = PortWrites()
    await writes.change(neutron, port, lambda now: {"security_groups": [*now.security_groups, id]})

Every change names the revision from which it is made, so that what something else changes meanwhile
is not lost. Changes of this process would refuse each other that way: they wait for each other, and
each is made from the port as the one before left it.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from weakref import WeakValueDictionary

from pileus.cloud.errors import Conflict
from pileus.dataclass import dataclass
from pileus.providers.openstack.neutron import Neutron, Port

MOST_PORTS = 4096
"""Ports that are remembered. One that is forgotten costs two more requests at most."""
Fields = Callable[[Port], Mapping[str, object]]
"""Returns the fields to change, from the port as it is; empty: none."""


@dataclass(slots=True)
class PortWrites:
    """Changes ports, one change of a port at a time. One for all parts of a provider."""

    _turns: WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[str, asyncio.Lock], init=False
    )
    _written: dict[str, Port] = field(default_factory=dict[str, Port], init=False)
    """Ports as this process left them, by ID."""

    async def change(self, neutron: Neutron, port: Port, fields: Fields) -> Port:
        """Change a port that was observed. Returns it after the change.

        If something else has changed it since, it is read again, once. Raises `Conflict` if it is
        used by something else then, or is changed once more; `NotFound` if it is deleted.
        """
        async with self._turns.setdefault(port.id, asyncio.Lock()):
            current = self._latest(port)
            if current.revision_number is None:
                current = _still_used(port, await neutron.port(port.id))
            try:
                return await self._write(neutron, current, fields)
            except Conflict:
                fresh = _still_used(port, await neutron.port(port.id))
                if not _is_newer(fresh, current):
                    raise
            return await self._write(neutron, fresh, fields)

    def _latest(self, port: Port) -> Port:
        """Returns the port as observed, or as this process left it since."""
        written = self._written.get(port.id)
        is_known = written and _is_newer(written, port) and _use(written) == _use(port)
        return written if written and is_known else port

    async def _write(self, neutron: Neutron, port: Port, fields: Fields) -> Port:
        body = fields(port)
        if not body:
            return port
        self._written.pop(port.id, None)
        changed = await neutron.update("ports", "port", port, body, Port)
        self._written[port.id] = changed
        if len(self._written) > MOST_PORTS:
            del self._written[next(iter(self._written))]
        return changed


def _is_newer(one: Port, other: Port) -> bool:
    return (one.revision_number or 0) > (other.revision_number or 0)


def _use(port: Port) -> tuple[object, ...]:
    """Returns what decides whose port it is."""
    return port.device_id, port.fixed_ips, port.port_security_enabled


def _still_used(before: Port, now: Port) -> Port:
    if _use(before) != _use(now):
        raise Conflict(f"port {now.id}: it is used by something else since it was observed")
    return now
