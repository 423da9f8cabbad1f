"""Conversations with OpenStack: the same requests to the real one and to the model.

A `Talk` sends requests to a target and keeps every answer without what differs from run to run:
IDs, addresses and times. Two targets behave the same if their `lines` are equal.
"""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from pileus.providers.openstack.api import Call, Service
from pileus_lab.openstack.model_api import ModelApi
from tests.openstack.cloud import REQUEST_LIMIT, Cloud

JSON = Any
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{32}\b")
MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
ADDRESS = re.compile(
    r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\d./])|(?<![\w:])fd[0-9a-f]{2}:[0-9a-f:]+(?![\w/:])"
)
TIMES = frozenset({
    "created_at",
    "updated_at",
    "created",
    "updated",
    "attached_at",
    "OS-SRV-USG:launched_at",
    "OS-SRV-USG:terminated_at",
})
IGNORED: Mapping[str, str] = {
    "revision_number": "counts internal changes, too; the effect of If-Match is compared",
    "links": "addresses of the API",
    "hostId": "depends on the hosts",
    "OS-EXT-SRV-ATTR:host": "depends on the hosts",
    "image": "the model has no images",
    "user_id": "the model has no users",
    "user": "the model has no users",
    "enable_default_route_bfd": "Neutron returns it with extra routes only",
    "enable_default_route_ecmp": "Neutron returns it with extra routes only",
    "enable_snat": "Neutron returns it with extra routes only",
    "gw_port_id": "Neutron returns it with extra routes only",
    "ha_vr_id": "Neutron returns it with extra routes only",
    "ha": "Neutron returns it with extra routes only",
    "distributed": "Neutron returns it with extra routes only",
    "belongs_to_default_sg": "None or False, depending on the request",
    "standard_attr_id": "internal to Neutron",
    "service_uuid": "internal to Cinder",
    "shared_targets": "depends on the storage",
    "os-extended-snapshot-attributes:progress": "nothing uses it",
    "os-extended-snapshot-attributes:project_id": "nothing uses it",
    "device": "chosen by the hypervisor",
    "debuginfo": "for developers of OpenStack",
    "operating_status": "follows heartbeats of amphorae, seconds later",
    "dns_assignment": "no DNS",
    "mtu": "depends on the network's type",
    "external_fixed_ips": "the model's routers have no address of their own",
    "fingerprint": "of a key; nothing uses it",
    "availability_zones": "of agents, which neither side has",
    "faultcode": "Server for errors of providers; nothing uses it",
    "host_name": "depends on the hosts",
    "attachment_id": "differs",
    "detail": "for developers of OpenStack",
}
"""Fields that are not compared, and why."""
PATIENCE = 600.0
"""Seconds that a load balancer of the real OpenStack may be pending."""


class Target(Protocol):
    def send(self, call: Call) -> tuple[int, JSON]:
        """Returns status and body of the answer."""
        ...

    def wait(self) -> None:
        """Let some time pass."""
        ...


@dataclass
class ModelTarget:
    api: ModelApi

    def send(self, call: Call) -> tuple[int, JSON]:
        reply = self.api.reply(call)
        return reply.status, json.loads(json.dumps(reply.body))

    def wait(self) -> None:
        self.api.now += 1


TYPES = {
    Service.COMPUTE: "compute",
    Service.NETWORK: "network",
    Service.LOAD_BALANCER: "load-balancer",
    Service.BLOCK_STORAGE: "block-storage",
}


@dataclass
class BedTarget:
    """A real OpenStack, by plain HTTP: statuses and bodies as they are."""

    cloud: Cloud

    def send(self, call: Call) -> tuple[int, JSON]:
        base = self.cloud.url(TYPES[call.service]).rstrip("/")
        if call.service is Service.NETWORK or call.service is Service.LOAD_BALANCER:
            base = base.removesuffix("/v2.0")
        query = f"?{urlencode(call.query)}" if call.query else ""
        headers = {"X-Auth-Token": self.cloud.token, "Content-Type": "application/json"}
        if call.microversion:
            name = "compute" if call.service is Service.COMPUTE else "volume"
            headers["OpenStack-API-Version"] = f"{name} {call.microversion}"
        if call.if_revision is not None:
            headers["If-Match"] = f"revision_number={call.if_revision}"
        return _http(call.method, f"{base}{call.path}{query}", headers, call.body)

    def wait(self) -> None:
        time.sleep(0.3)


def _http(method: str, url: str, headers: Mapping[str, str], body: JSON) -> tuple[int, JSON]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, dict(headers), method=method)
    try:
        with urlopen(request, timeout=REQUEST_LIMIT) as answer:
            text, status = answer.read(), answer.status
    except HTTPError as error:
        text, status = error.read(), error.code
    return status, json.loads(text) if text.strip() else None


@dataclass
class Talk:
    target: Target
    lines: list[JSON] = field(default_factory=list[JSON])
    names: dict[str, str] = field(default_factory=dict[str, str])
    """By what differs from run to run: its name in this conversation."""

    def ask(
        self,
        service: Service,
        method: str,
        path: str,
        body: JSON = None,
        *query: tuple[str, str],
        version: str = "",
        revision: int | None = None,
    ) -> JSON:
        """Send a request and keep the answer. Returns its body."""
        call = Call(
            service=service,
            method=method,
            path=path,
            body=body,
            query=query,
            microversion=version,
            if_revision=revision,
        )
        status, answer = self.target.send(call)
        asked = self._plain({
            "path": path,
            "query": [f"{name}={value}" for name, value in query],
            "body": body,
        })
        line = {"method": f"{method} {service}", **asked, "status": status}
        self.lines.append({**line, "answer": self._plain(answer)})
        return answer

    def lb(self, method: str, path: str, body: JSON = None, *query: tuple[str, str]) -> JSON:
        return self.ask(Service.LOAD_BALANCER, method, f"/v2.0/lbaas{path}", body, *query)

    def net(self, method: str, path: str, body: JSON = None, *query: tuple[str, str]) -> JSON:
        return self.ask(Service.NETWORK, method, f"/v2.0{path}", body, *query)

    def quietly(self, service: Service, method: str, path: str, body: JSON = None) -> JSON:
        """Send a request whose answer is not compared."""
        call = Call(service=service, method=method, path=path, body=body)
        return self.target.send(call)[1]

    def settle(self, balancer: str) -> None:
        """Wait until a load balancer is not pending."""
        path = f"/v2.0/lbaas/loadbalancers/{balancer}"
        started = time.monotonic()
        while time.monotonic() - started < PATIENCE:
            answer = self.quietly(Service.LOAD_BALANCER, "GET", path)
            record = answer.get("loadbalancer")
            if not record or not record["provisioning_status"].startswith("PENDING"):
                return
            self.target.wait()
        raise AssertionError(f"load balancer {balancer} is still pending")

    def await_status(self, service: Service, path: str, key: str, *statuses: str) -> None:
        """Wait until an object has one of the statuses, or does not exist."""
        for _ in range(int(PATIENCE)):
            record = self.quietly(service, "GET", path).get(key)
            if not record or record["status"] in statuses:
                return
            self.target.wait()
        raise AssertionError(f"{path} is not {statuses}")

    def _plain(self, value: JSON) -> JSON:
        if isinstance(value, Mapping):
            kept = [name for name in sorted(value) if name not in TIMES and name not in IGNORED]
            return {self._text(name): self._field(name, value[name]) for name in kept}
        if isinstance(value, list):
            found = [self._plain(one) for one in sorted(value, key=_order)]
            are_references = all(isinstance(one, dict) and one.keys() == {"id"} for one in found)
            return sorted(found, key=lambda one: one["id"]) if are_references else found
        return self._text(value) if isinstance(value, str) else value

    def _field(self, name: str, value: JSON) -> JSON:
        if name.endswith("_links"):
            return [one["rel"] for one in value]
        if name == "allocation_pools":  # Neutron gives one port in ten the first address of a pool
            return [
                {end: self._name("ip", f"{end} of a pool: {one[end]}") for end in sorted(one)}
                for one in value
            ]
        return self._plain(value)

    def _text(self, text: str) -> str:
        for pattern, name in ((ID, "id"), (MAC, "mac"), (ADDRESS, "ip")):
            text = pattern.sub(lambda found, name=name: self._name(name, found[0]), text)
        return text

    def _name(self, kind: str, text: str) -> str:
        return self.names.setdefault(text, f"{kind}-{len(self.names)}")


def _order(value: JSON) -> str:
    """Returns a key by which items of a list are sorted, the same for both targets."""

    def known(part: JSON) -> JSON:
        if isinstance(part, Mapping):
            return {k: known(part[k]) for k in sorted(part) if k not in TIMES and k not in IGNORED}
        if isinstance(part, list):
            return [known(one) for one in part]
        if isinstance(part, str):
            return ADDRESS.sub("ip", MAC.sub("mac", ID.sub("id", part)))
        return part

    return json.dumps(known(value), sort_keys=True)
