"""What the services of one cloud can do: read on first use, and kept while connected."""

import re
from asyncio import Lock

import msgspec

from pileus.cloud.errors import Unavailable
from pileus.dataclass import dataclass
from pileus.providers.openstack.api import Client, Service, decoded
from pileus.providers.openstack.neutron import Neutron

_VERSION = re.compile(r"v([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True)
class OctaviaFeatures:
    """Of Octavia with the load balancer provider in use."""

    version: tuple[int, int]
    provider: str = "amphora"

    @property
    def has_timeouts(self) -> bool:
        return self._has(2, 1)

    @property
    def has_tags(self) -> bool:
        return self.version >= (2, 5)

    @property
    def has_flavors(self) -> bool:
        return self._has(2, 6)

    @property
    def has_allowed_cidrs(self) -> bool:
        return self._has(2, 12)

    @property
    def has_availability_zones(self) -> bool:
        return self._has(2, 14)

    @property
    def has_http_monitors(self) -> bool:
        return self.provider != "ovn"

    @property
    def has_http_monitors_on_udp(self) -> bool:
        return self._has(2, 16)

    @property
    def has_additional_vips(self) -> bool:
        return self.version >= (2, 26)

    def _has(self, *version: int) -> bool:
        return self.version >= version and self.provider != "ovn"


@dataclass(frozen=True, slots=True)
class NeutronFeatures:
    extensions: frozenset[str]
    """Aliases of the extensions that are enabled."""

    @property
    def has_routes(self) -> bool:
        return bool(self.extensions & {"extraroute", "extraroute-atomic"})

    @property
    def has_atomic_routes(self) -> bool:
        return "extraroute-atomic" in self.extensions

    @property
    def has_allowed_address_pairs(self) -> bool:
        return "allowed-address-pairs" in self.extensions

    @property
    def has_tags(self) -> bool:
        return "standard-attr-tag" in self.extensions


class _Version(msgspec.Struct):
    id: str


class Features:
    """Reads features on first use. A service that is down is asked again next time."""

    def __init__(self, client: Client, lb_provider: str = "amphora") -> None:
        self._client = client
        self._lb_provider = lb_provider
        self._lock = Lock()
        self._octavia: OctaviaFeatures | None = None
        self._neutron: NeutronFeatures | None = None

    async def octavia(self) -> OctaviaFeatures:
        """Raises `CloudError` if Octavia does not answer; `Unsupported` if there is none."""
        async with self._lock:
            if self._octavia is None:
                answer = await self._client.send("GET", Service.LOAD_BALANCER, "/")
                self._octavia = OctaviaFeatures(octavia_version(answer), self._lb_provider)
            return self._octavia

    async def neutron(self) -> NeutronFeatures:
        """Raises `CloudError` if Neutron does not answer."""
        async with self._lock:
            if self._neutron is None:
                self._neutron = NeutronFeatures(await Neutron(self._client).extensions())
            return self._neutron


def octavia_version(answer: object) -> tuple[int, int]:
    """Returns the newest version in Octavia's list of versions. Raises `Unavailable`."""
    listed = answer.get("versions") if isinstance(answer, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    found = [
        (int(match[1]), int(match[2]))
        for each in decoded(listed, tuple[_Version, ...], "/")  # pyright: ignore[reportUnknownArgumentType]
        if (match := _VERSION.fullmatch(each.id))
    ]
    if not found:
        raise Unavailable("/: Octavia lists no version")
    return max(found)
