"""Settings of the node-ipam controller."""

from collections.abc import Iterator, Mapping

from pileus.dataclass import dataclass
from pileus.objects.ranges import Range, host_bit_warnings, is_within, parse_ranges, unread_warnings
from pileus.objects.settings import ClusterSettings
from pileus.settings.checks import up_to
from pileus.settings.config import Config
from pileus.settings.declare import setting, shared, switch
from pileus.settings.kinds import INT32, STRING
from pileus.suggest import did_you_mean

_SECTION, _SHARED = "Node-ipam-controller", "Generic"
ALLOCATOR = "RangeAllocator"
OTHER_ALLOCATORS = frozenset({"CloudAllocator", "IPAMFromCluster", "IPAMFromCloud"})
"""Names that the Go program knows. They are refused only where this controller allocates."""
USUAL = {4: 24, 6: 64}
"""Prefix length of a node's pod CIDR by IP version, unless the user gave one."""
LONGEST = {4: 32, 6: 128}
MOST_BITS = {4: 24, 6: 16}
"""How much longer than the cluster's a node's prefix may be. Limits the number of pod CIDRs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IpamSettings:
    """Whether pod CIDRs are allocated, and how the cluster's CIDRs are divided."""

    allocate: bool = switch(
        "allocate-node-cidrs",
        "Assign each node a pod CIDR out of --cluster-cidr.",
        section=_SHARED,
        configz="KubeCloudShared.AllocateNodeCIDRs",
    )
    allocator: str = setting(
        "cidr-allocator-type",
        STRING,
        ALLOCATOR,
        "Allocator of pod CIDRs; only RangeAllocator is supported.",
        section=_SHARED,
        configz="KubeCloudShared.CIDRAllocatorType",
    )
    service_range: str = setting(
        "service-cluster-ip-range",
        STRING,
        "",
        "CIDR of Services, or a comma-separated pair of families; excluded from pod CIDRs.",
        section=_SECTION,
    )
    mask_size: int = setting(
        "node-cidr-mask-size",
        INT32,
        0,
        "Prefix length of a node's pod CIDR in a single-stack cluster; 0: 24 for IPv4, 64 for "
        "IPv6.",
        section=_SECTION,
        check=up_to(128),
    )
    mask_size_ipv4: int = setting(
        "node-cidr-mask-size-ipv4",
        INT32,
        0,
        "Prefix length of a node's IPv4 pod CIDR in a dual-stack cluster; 0: 24.",
        section=_SECTION,
        check=up_to(32),
    )
    mask_size_ipv6: int = setting(
        "node-cidr-mask-size-ipv6",
        INT32,
        0,
        "Prefix length of a node's IPv6 pod CIDR in a dual-stack cluster; 0: 64.",
        section=_SECTION,
        check=up_to(128),
    )
    cluster: ClusterSettings = shared(ClusterSettings)

    def warnings(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        yield from unread_warnings(self.malformed())
        yield from host_bit_warnings("--service-cluster-ip-range", self.service_range)

    def mask_of(self, version: int) -> int:
        """Returns the prefix length of a node's pod CIDR of an IP version."""
        return self._own_mask(version) or self.mask_size or USUAL[version]

    def mask_flag_of(self, version: int) -> str:
        """Returns the flag that sets the prefix length of an IP version."""
        family = f"-ipv{version}" if self._own_mask(version) or "," in self.cluster.cidr else ""
        return f"--node-cidr-mask-size{family}"

    def _own_mask(self, version: int) -> int:
        return self.mask_size_ipv4 if version == 4 else self.mask_size_ipv6  # noqa: PLR2004 -- IPv4

    def problems_if_enabled(self, _config: Config) -> Iterator[str]:
        if not self.allocate:
            return
        if not self.cluster.cidr:
            yield "--allocate-node-cidrs with node-ipam-controller needs --cluster-cidr"
        yield from self.cluster.malformed()
        yield from self.malformed()
        if self.cluster.cidr:
            yield from self.misfits()

    def malformed(self) -> Iterator[str]:
        """Yields what is wrong with single flags. It matters only where CIDRs are allocated."""
        if self.allocator not in {ALLOCATOR, *OTHER_ALLOCATORS}:
            hint = did_you_mean(self.allocator, (ALLOCATOR,))
            yield f'--cidr-allocator-type must be {ALLOCATOR}, but got "{self.allocator}"{hint}'
        try:
            parse_ranges(self.service_range) if self.service_range else ()
        except ValueError as error:
            yield f"--service-cluster-ip-range: {error}"

    def misfits(self) -> Iterator[str]:
        """Yields what this controller cannot allocate by; nothing if a value is malformed."""
        if any(self.malformed()) or any(self.cluster.malformed()):
            return
        if self.allocator != ALLOCATOR:
            yield (
                f'--cidr-allocator-type: "{self.allocator}" is not supported by this manager; '
                f"use {ALLOCATOR}"
            )
        ranges = parse_ranges(self.cluster.cidr)
        contradictions = tuple(self._contradictions({each.version for each in ranges}))
        yield from contradictions
        if contradictions:
            return
        services = parse_ranges(self.service_range) if self.service_range else ()
        for each in ranges:
            yield from self._too_long_or_short(each)
            yield from self._nothing_left(each, services)

    def _contradictions(self, versions: set[int]) -> Iterator[str]:
        if len(versions) > 1 and self.mask_size:
            yield (
                "--node-cidr-mask-size is for single-stack clusters; in a dual-stack cluster, use "
                "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"
            )
        of_families = {4: self.mask_size_ipv4, 6: self.mask_size_ipv6}
        if len(versions) == 1 and self.mask_size and any(of_families.values()):
            yield "--node-cidr-mask-size cannot be combined with the flag of a single family"
        for version, size in of_families.items():
            if size and version not in versions:
                yield (
                    f"--node-cidr-mask-size-ipv{version}: --cluster-cidr has no IPv{version} range"
                )

    def _too_long_or_short(self, cluster: Range) -> Iterator[str]:
        version = cluster.version
        mask, flag = self.mask_of(version), self.mask_flag_of(version)
        most = cluster.prefixlen + MOST_BITS[version]
        if mask > LONGEST[version]:
            yield (
                f"{flag}: an IPv{version} prefix is at most {LONGEST[version]} bits, but got {mask}"
            )
        elif mask < cluster.prefixlen:
            yield (
                f"{flag}: node CIDRs of /{mask} do not fit into {cluster} (--cluster-cidr); "
                f"use at least {cluster.prefixlen}"
            )
        elif mask > most:
            yield (
                f"{flag}: node CIDR size is too big: {cluster} (--cluster-cidr) has more than "
                f"2^{MOST_BITS[version]} parts of /{mask}; use at most {most}"
            )

    def _nothing_left(self, cluster: Range, services: tuple[Range, ...]) -> Iterator[str]:
        """Reports a Service CIDR that covers the cluster's, or its only part."""
        only = self.mask_of(cluster.version) <= cluster.prefixlen
        for each in services:
            if is_within(cluster, (each,)) or (only and is_within(each, (cluster,))):
                yield (
                    f"--service-cluster-ip-range: {each} leaves no node CIDR in {cluster} "
                    "(--cluster-cidr); use ranges that do not overlap"
                )


@dataclass(frozen=True, slots=True)
class Pool:
    """One of the cluster's CIDRs, and the prefix length of its parts."""

    range: Range
    mask: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The CIDRs from which nodes get theirs."""

    pools: tuple[Pool, ...]
    """In the order of `--cluster-cidr`: nodes get their CIDRs in it."""
    services: tuple[Range, ...] = ()
    """Excluded from the nodes' CIDRs."""


def sizes(settings: IpamSettings) -> Sizes:
    """Returns the pools of the settings. Raises ValueError if anything is wrong with them."""
    found = (*settings.cluster.malformed(), *settings.malformed(), *settings.misfits())
    if found:
        raise ValueError(", ".join(found))
    ranges = parse_ranges(settings.cluster.cidr)
    services = parse_ranges(settings.service_range) if settings.service_range else ()
    return Sizes(tuple(Pool(each, settings.mask_of(each.version)) for each in ranges), services)
