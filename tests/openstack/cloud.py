"""A plain, blocking OpenStack client and a project of its own for each test.

It shares no code with the provider: the suite checks the provider's requests by their effect.
"""

import contextlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tools.openstack_bed.bed import PASSWORD, REGION, Bed

REQUEST_LIMIT = 300.0
"""Seconds; on a busy machine Octavia takes half a minute to accept a load balancer."""
LIMIT = 600.0
"""Seconds; a limit for what never happens. Busy machines are slow, and that is not an error."""
AGENT = "pileus-tests"
ROLES = ("member", "load-balancer_member")
TYPES = {
    "compute": "compute",
    "network": "network",
    "balancer": "load-balancer",
    "volume": "block-storage",
    "image": "image",
}
LISTS: dict[str, tuple[str, str]] = {
    "servers": ("compute", "/servers"),
    "ports": ("network", "/v2.0/ports"),
    "networks": ("network", "/v2.0/networks"),
    "subnets": ("network", "/v2.0/subnets"),
    "routers": ("network", "/v2.0/routers"),
    "floatingips": ("network", "/v2.0/floatingips"),
    "security_groups": ("network", "/v2.0/security-groups"),
    "security_group_rules": ("network", "/v2.0/security-group-rules"),
    "loadbalancers": ("balancer", "/v2/lbaas/loadbalancers"),
    "listeners": ("balancer", "/v2/lbaas/listeners"),
    "pools": ("balancer", "/v2/lbaas/pools"),
    "healthmonitors": ("balancer", "/v2/lbaas/healthmonitors"),
    "volumes": ("volume", "/volumes"),
}
"""Every kind of object that a cluster creates, or could leave behind."""
NETWORK_AND_BALANCER = tuple(kind for kind, (service, _) in LISTS.items() if service != "volume")
Objects = dict[str, dict[str, dict[str, Any]]]
"""Kind to ID to object."""


class Refused(AssertionError):
    """An answer of 400 or more."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path}: {status} {body[:500]}")
        self.status = status


class Cloud:
    """One user in one project."""

    def __init__(self, bed: Bed, user: str, project: str, password: str = PASSWORD) -> None:
        self.bed, self.user, self.project_name, self.password = bed, user, project, password
        domain = {"domain": {"id": "default"}}
        login = {"user": {"name": user, "password": password, **domain}}
        body = {
            "auth": {
                "identity": {"methods": ["password"], "password": login},
                "scope": {"project": {"name": project, **domain}},
            }
        }
        answer, headers = _send("POST", f"{bed.auth_url}/auth/tokens", body, {})
        self.token = headers["X-Subject-Token"]
        self.user_id: str = answer["token"]["user"]["id"]
        self.project: str = answer["token"]["project"]["id"]
        self._urls = {
            entry["type"]: next(
                point["url"] for point in entry["endpoints"] if point["interface"] == "public"
            )
            for entry in answer["token"]["catalog"]
        }

    def url(self, service: str) -> str:
        """Returns the endpoint of a service, by its type in the catalogue."""
        return self._urls[service]

    def send(
        self, method: str, service: str, path: str, body: Any = None, microversion: str = ""
    ) -> Any:
        """`microversion`: such as `volume 3.27`."""
        base = self.bed.auth_url if service == "identity" else self._urls[TYPES[service]]
        headers = {"X-Auth-Token": self.token}
        headers |= {"OpenStack-API-Version": microversion} if microversion else {}
        answer, _ = _send(method, base.rstrip("/") + path, body, headers)
        return answer

    def get(self, service: str, path: str) -> Any:
        return self.send("GET", service, path)

    def create(self, service: str, path: str, kind: str, **fields: Any) -> Any:
        """Creates an object and returns it."""
        return self.send("POST", service, path, {kind: fields})[kind]

    def listed(self, kind: str, **filters: str) -> list[dict[str, Any]]:
        """Returns all objects of that kind in the project."""
        service, path = LISTS[kind]
        given = filters | ({} if service in {"compute", "volume"} else {"project_id": self.project})
        query = "&".join(f"{key}={quote(value)}" for key, value in given.items())
        suffix = "/detail" if service in {"compute", "volume"} else ""
        return self.get(service, f"{path}{suffix}?{query}")[kind]

    def find(self, kind: str, name: str) -> dict[str, Any]:
        found = [each for each in self.listed(kind) if each["name"] == name]
        assert len(found) == 1, f"{kind} named {name}: {found}"
        return found[0]

    def objects(self, kinds: tuple[str, ...] = tuple(LISTS)) -> Objects:
        """Returns everything in the project, with the members of each pool."""
        found: Objects = {kind: {each["id"]: each for each in self.listed(kind)} for kind in kinds}
        found["members"] = {}
        for pool in found.get("pools", {}):
            members = self.get("balancer", f"/v2/lbaas/pools/{pool}/members")["members"]
            found["members"] |= {each["id"]: {"pool": pool, **each} for each in members}
        return found

    def config(self, path: Path, **sections: str) -> Path:
        """Writes a cloud.conf for this user, with more sections or keys as `LoadBalancer="…"`."""
        lines = [
            "[Global]",
            f"auth-url={self.bed.auth_url}",
            f"username={self.user}",
            f"password={self.password}",
            f"region={REGION}",
            f"tenant-name={self.project_name}",
            "domain-id=default",
        ]
        for name, keys in sections.items():
            lines += [f"[{name}]", *(key.strip() for key in keys.strip().splitlines())]
        path.write_text("\n".join(lines) + "\n")
        return path


def _send(method: str, url: str, body: Any, headers: dict[str, str]) -> tuple[Any, dict[str, str]]:
    request = urllib.request.Request(
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": AGENT, **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=REQUEST_LIMIT) as answer:
            text = answer.read()
            return (json.loads(text) if text else None), dict(answer.headers)
    except urllib.error.HTTPError as error:
        raise Refused(method, url, error.code, error.read().decode(errors="replace")) from None


@dataclass
class Project:
    """A project with a network, a router to the external network, and servers in three zones."""

    cloud: Cloud
    admin: Cloud
    external: str
    network: str = ""
    subnet: str = ""
    subnet6: str = ""
    router: str = ""
    servers: dict[str, str] = field(default_factory=dict[str, str])
    """Name to ID."""

    @property
    def bed(self) -> Bed:
        return self.cloud.bed

    def add_network(self, cidr: str = "10.7.0.0/16", *, with_ipv6: bool = False) -> None:
        create = partial(self.cloud.create, "network")
        self.network = create("/v2.0/networks", "network", name="nodes")["id"]
        subnet = partial(create, "/v2.0/subnets", "subnet", network_id=self.network)
        self.subnet = subnet(name="nodes", cidr=cidr, ip_version=4)["id"]
        if with_ipv6:
            self.subnet6 = subnet(name="nodes-6", cidr="fd00:7::/64", ip_version=6)["id"]
        gateway = {"network_id": self.external}
        made = create("/v2.0/routers", "router", name="nodes", external_gateway_info=gateway)
        self.router = made["id"]
        path = f"/v2.0/routers/{self.router}/add_router_interface"
        self.cloud.send("PUT", "network", path, {"subnet_id": self.subnet})

    def add_servers(self, *names: str, zone: str = "") -> None:
        """Boots servers, each in its zone, and waits until all are active."""
        image = self.cloud.get("image", "/v2/images")["images"][0]["id"]
        flavors = self.cloud.get("compute", "/flavors")["flavors"]
        flavor = next(each["id"] for each in flavors if each["name"] == "m1")
        for name in names:
            made = self.cloud.create(
                "compute",
                "/servers",
                "server",
                name=name,
                imageRef=image,
                flavorRef=flavor,
                networks=[{"uuid": self.network}],
                availability_zone=zone or f"az{len(self.servers) % 3 + 1}",
            )
            self.servers[name] = made["id"]
        for name in names:
            eventually(f"server {name} is active", partial(self._is_active, name))

    def _is_active(self, name: str) -> bool:
        server = self.server(name)
        assert server["status"] != "ERROR", server.get("fault")
        return server["status"] == "ACTIVE"

    def server(self, name: str) -> dict[str, Any]:
        return self.cloud.get("compute", f"/servers/{self.servers[name]}")["server"]

    def address(self, name: str) -> str:
        """Returns the server's IPv4 address."""
        addresses = self.server(name)["addresses"]["nodes"]
        return next(each["addr"] for each in addresses if each["version"] == 4)

    def delete_server(self, name: str) -> None:
        server = self.servers.pop(name)
        self.cloud.send("DELETE", "compute", f"/servers/{server}")
        eventually(f"server {name} is deleted", lambda: is_absent(self.cloud, "compute", server))

    def balancer_status(self, balancer: str, status: str) -> None:
        """Sets a provisioning status in Octavia's database, as a worker that dies leaves it."""
        change = f"update load_balancer set provisioning_status='{status}' where id='{balancer}'"
        self.bed.database.run(change, "octavia")

    def balancers(self) -> list[dict[str, Any]]:
        """Returns the project's load balancers, also if its user may not list them."""
        path = f"/v2/lbaas/loadbalancers?project_id={self.cloud.project}"
        return self.admin.get("balancer", path)["loadbalancers"]

    def delete_all(self) -> None:
        """Deletes everything in the project, and the project."""
        for balancer in self.balancers():
            self._delete_balancer(balancer["id"])
        for server in list(self.servers):
            self.delete_server(server)
        for address in self.cloud.listed("floatingips"):
            self.cloud.send("DELETE", "network", f"/v2.0/floatingips/{address['id']}")
        self._delete_network()
        for kind, identity in (("users", self.cloud.user_id), ("projects", self.cloud.project)):
            self.admin.send("DELETE", "identity", f"/{kind}/{identity}")

    def _delete_balancer(self, balancer: str) -> None:
        self.balancer_status(balancer, "ACTIVE")
        path = f"/v2/lbaas/loadbalancers/{balancer}"

        def gone() -> bool:
            """A worker that was still at another change may make it ACTIVE again."""
            if is_absent(self.admin, "balancer", balancer):
                return True
            shown = self.admin.get("balancer", path)["loadbalancer"]
            if shown["provisioning_status"] in ("ACTIVE", "ERROR"):
                self.admin.send("DELETE", "balancer", f"{path}?cascade=true")
            return False

        eventually(f"load balancer {balancer} is deleted", lambda: amid_changes(gone))

    def _delete_network(self) -> None:
        send = partial(self.cloud.send)
        for router in self.cloud.listed("routers"):
            send("PUT", "network", f"/v2.0/routers/{router['id']}", {"router": {"routes": []}})
            for port in self.cloud.listed("ports", device_id=router["id"]):
                path = f"/v2.0/routers/{router['id']}/remove_router_interface"
                send("PUT", "network", path, {"port_id": port["id"]})
            send("DELETE", "network", f"/v2.0/routers/{router['id']}")
        for port in self.cloud.listed("ports"):
            with contextlib.suppress(Refused):
                send("DELETE", "network", f"/v2.0/ports/{port['id']}")
        for network in self.cloud.listed("networks"):
            send("DELETE", "network", f"/v2.0/networks/{network['id']}")


def is_absent(cloud: Cloud, service: str, identity: str) -> bool:
    path = {"compute": "/servers/", "balancer": "/v2/lbaas/loadbalancers/"}[service]
    try:
        cloud.get(service, f"{path}{identity}")
    except Refused as refused:
        return refused.status == 404
    return False


def amid_changes(read: Callable[[], Any]) -> Any:
    """Returns what `read` returns; None if the cloud refuses it since a part is being changed."""
    try:
        return read()
    except Refused as refused:
        if refused.status not in (404, 409):
            raise
        return None


def eventually(what: str, holds: Callable[[], Any], limit: float = LIMIT) -> Any:
    """Polls until something holds, and returns it."""
    deadline = time.monotonic() + limit
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {limit:g} s: {what}"
        time.sleep(0.25)


@contextlib.contextmanager
def project(bed: Bed, name: str, roles: tuple[str, ...] = ROLES) -> Generator[Project]:
    """A new project with a user of the same name. Everything in it is deleted in the end."""
    admin = Cloud(bed, "admin", "admin")
    made = admin.create("identity", "/projects", "project", name=name, domain_id="default")
    user = admin.create(
        "identity", "/users", "user", name=name, password=PASSWORD, domain_id="default"
    )
    known = {each["name"]: each["id"] for each in admin.get("identity", "/roles")["roles"]}
    for role in roles:
        path = f"/projects/{made['id']}/users/{user['id']}/roles/{known[role]}"
        admin.send("PUT", "identity", path)
    external = next(
        each["id"]
        for each in admin.get("network", "/v2.0/networks?router:external=true")["networks"]
    )
    created = Project(Cloud(bed, name, name), admin, external)
    try:
        yield created
    finally:
        created.delete_all()


def differences(before: Objects, after: Objects) -> Iterator[str]:
    """Yields one line per object that was created, deleted or changed."""
    for kind in sorted({*before, *after}):
        old, new = before.get(kind, {}), after.get(kind, {})
        for identity in sorted({*old, *new}):
            if identity not in new:
                yield f"{kind} {old[identity].get('name')} {identity}: deleted"
            elif identity not in old:
                yield f"{kind} {new[identity].get('name')} {identity}: created"
            else:
                yield from _changed(f"{kind} {identity}", old[identity], new[identity])


VOLATILE = frozenset({"updated_at", "revision_number", "operating_status", "updated"})


def _changed(what: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in sorted({*old, *new} - VOLATILE):
        if _ordered(old.get(key)) != _ordered(new.get(key)):
            yield f"{what}: {key}: {old.get(key)} -> {new.get(key)}"


def _ordered(value: Any) -> Any:
    return sorted(value, key=str) if isinstance(value, list) else value
