"""Heartbeats of the amphorae that do not exist, each second, to Octavia's own health code.

A member whose name or address is a line of the file `down-members` is reported as DOWN.
"""

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from octavia.amphorae.drivers.health import heartbeat_udp
from octavia.common import constants
from octavia.db import api as database
from octavia.db import repositories
from oslo_log import log

INTERVAL = 1.0
LOG = log.getLogger(__name__)
NO_TRAFFIC = {"tx": 0, "rx": 0, "conns": 0, "totconns": 0, "ereq": 0}


def start(down_members: Path) -> None:
    threading.Thread(target=_send, args=(down_members,), daemon=True).start()


def _send(down_members: Path) -> None:
    health = heartbeat_udp.UpdateHealthDb()
    for number in itertools.count(1):
        time.sleep(INTERVAL)
        try:
            down = set(down_members.read_text().split()) if down_members.exists() else set()
            for heartbeat in list(_heartbeats(number, down)):
                health.update_health(heartbeat, "127.0.0.1")
        except Exception:
            LOG.exception("Heartbeat failed")


def _heartbeats(number: int, down: set[str]) -> Iterator[dict[str, Any]]:
    amphorae = repositories.AmphoraRepository()
    balancers = repositories.LoadBalancerRepository()
    session = database.get_session()
    with session.begin():
        found, _ = amphorae.get_all(session)
        for amphora in found:
            if amphora.status != constants.AMPHORA_ALLOCATED or not amphora.load_balancer_id:
                continue
            balancer = balancers.get(session, id=amphora.load_balancer_id)
            if balancer is not None and balancer.provisioning_status == constants.ACTIVE:
                yield _heartbeat(amphora.id, balancer, number, down)


def _heartbeat(amphora: str, balancer: Any, number: int, down: set[str]) -> dict[str, Any]:
    return {
        "id": amphora,
        "seq": number,
        "ver": 2,
        "recv_time": time.time(),
        "listeners": {
            listener.id: {"status": "OPEN", "stats": NO_TRAFFIC}
            for listener in balancer.listeners
            if listener.enabled
        },
        "pools": {
            f"{pool.id}:{listener.id}": _pool(pool, down)
            for listener in balancer.listeners
            for pool in listener.pools
        },
    }


def _pool(pool: Any, down: set[str]) -> dict[str, Any]:
    members = {
        member.id: _member(member, has_monitor=bool(pool.health_monitor), down=down)
        for member in pool.members
    }
    serves = not members or any(status in {"UP", "no check"} for status in members.values())
    return {"status": "UP" if serves else "DOWN", "members": members}


def _member(member: Any, *, has_monitor: bool, down: set[str]) -> str:
    if not member.enabled:
        return "MAINT"
    if not has_monitor:
        return "no check"
    return "DOWN" if down & {member.ip_address, member.name} else "UP"
