"""Keystone's catalogue: which URL a service has. Pure."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec

from pileus.cloud.errors import Misconfigured, Unavailable, Unsupported
from pileus.providers.openstack.api import Service
from pileus.suggest import did_you_mean

TYPES: Mapping[Service, tuple[str, ...]] = {
    Service.COMPUTE: ("compute",),
    Service.NETWORK: ("network",),
    Service.LOAD_BALANCER: ("load-balancer",),
    Service.BLOCK_STORAGE: ("block-storage", "volumev3", "block-store", "volume"),
    Service.KEY_MANAGER: ("key-manager",),
}
"""Types under which a service may be listed, best first."""
_VERSION = re.compile(r"v[0-9]+(\.[0-9]+)?")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    interface: str = "public"
    region: str | None = None
    region_id: str | None = None

    @property
    def place(self) -> str:
        return self.region_id or self.region or ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    endpoints: tuple[Endpoint, ...] = ()


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The catalogue of one project."""

    entries: tuple[Entry, ...] = ()
    project_id: str = ""

    def regions(self) -> tuple[str, ...]:
        known = {each.place for entry in self.entries for each in entry.endpoints}
        return tuple(sorted(known - {""}))

    def region(self, named: str) -> str:
        """Returns the region to use. Raises `Misconfigured` if it does not exist or is not named.

        Endpoints without any region are in the region "".
        """
        self._check_region(named)
        regions = self.regions()
        if not named and len(regions) > 1:
            raise Misconfigured(
                f"[Global] region is missing, and the cloud has {', '.join(regions)}. "
                f"Fix: region = {regions[0]}"
            )
        return named or next(iter(regions), "")

    def has(self, service: Service, interface: str, region: str) -> bool:
        return bool(self._matching(service, interface, region))

    def url(self, service: Service, interface: str, region: str) -> str:
        """Returns the URL that the paths of calls to the service follow (see `Call.path`).

        Raises `Misconfigured` for a region that does not exist or is ambiguous; `Unsupported` if
        the service does not exist in the region; `Unavailable` if its URL is invalid.
        """
        place = self.region(region)
        found = self._matching(service, interface, place)
        if not found:
            raise Unsupported(self._missing(service, interface, place))
        if not _is_url(found[0].url):
            raise Unavailable(
                f"the catalogue of the cloud has an invalid URL of type {service}: {found[0].url}. "
                "Fix: openstack endpoint set --url URL ENDPOINT"
            )
        return base_url(service, found[0].url, self.project_id)

    def _matching(self, service: Service, interface: str, region: str) -> tuple[Endpoint, ...]:
        for kind in TYPES[service]:
            endpoints = (each for entry in self._of(kind) for each in entry.endpoints)
            found = tuple(
                each
                for each in endpoints
                if each.interface.removesuffix("URL") == interface
                and (not region or region in {each.region, each.region_id})
            )
            if found:
                return found
        return ()

    def _of(self, kind: str) -> Iterable[Entry]:
        return (entry for entry in self.entries if entry.type == kind)

    def _check_region(self, region: str) -> None:
        regions = self.regions()
        if region and regions and region not in regions:
            raise Misconfigured(
                f'[Global] region: "{region}" is not in the catalogue of the cloud'
                f"{did_you_mean(region, regions)}. Fix: use one of {', '.join(regions)}"
            )

    def _missing(self, service: Service, interface: str, region: str) -> str:
        others = sorted(
            {
                each.interface
                for kind in TYPES[service]
                for entry in self._of(kind)
                for each in entry.endpoints
            }
            - {interface}
        )
        place = f" in region {region}" if region else ""
        text = f"the catalogue of the cloud has no {interface} endpoint of type {service}{place}"
        return f"{text}; it has: {', '.join(others)}. Fix: os-endpoint-type" if others else text


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def catalogue_of(entries: object, project_id: str) -> Catalogue:
    """Returns the catalogue of a token. Raises `msgspec.ValidationError`."""
    return Catalogue(
        entries=msgspec.convert(entries, tuple[Entry, ...], strict=False), project_id=project_id
    )


def base_url(service: Service, listed: str, project_id: str) -> str:
    """Returns the URL of a service, from one with or without its version and the project.

    Clouds list `https://host/compute`, `…/v2.1` or `…/v2.1/PROJECT`: calls need one form.
    """
    url = listed.strip().rstrip("/").replace("$(project_id)s", "%(project_id)s")
    url = url.replace("%(tenant_id)s", project_id).replace("%(project_id)s", project_id)
    root = url.removesuffix(f"/{project_id}") if project_id else url
    is_scoped = root != url
    parent, _, last = root.rpartition("/")
    if _VERSION.fullmatch(last) and "://" in parent:
        root = parent
    match service:
        case Service.COMPUTE:
            return f"{root}/v2.1/{project_id}" if is_scoped else f"{root}/v2.1"
        case Service.BLOCK_STORAGE:
            return f"{root}/v3/{project_id}"
        case _:
            return root
