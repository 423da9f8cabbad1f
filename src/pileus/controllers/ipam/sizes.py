"""How the flags divide the cluster's pod ranges into ranges of nodes. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from pileus.objects.ranges import Range, is_within, parse_ranges
from pileus.suggest import did_you_mean

ALLOCATOR = "RangeAllocator"
OTHER_ALLOCATORS = frozenset({"CloudAllocator", "IPAMFromCluster", "IPAMFromCloud"})
"""Names that the Go program knows. They are refused only if this controller allocates."""
USUAL = {4: 24, 6: 64}
LONGEST = {4: 32, 6: 128}
MOST_BITS = {4: 24, 6: 16}
"""How many bits longer than the cluster's prefix a node's may be: this limits the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags; 0 and "" if they are not set."""

    cluster_cidr: str
    service_range: str = ""
    mask_size: int = 0
    mask_size_ipv4: int = 0
    mask_size_ipv6: int = 0
    allocator: str = ALLOCATOR

    def mask_of(self, version: int) -> int:
        return self._own_mask(version) or self.mask_size or USUAL[version]

    def mask_flag_of(self, version: int) -> str:
        """Returns the flag that sets the prefix length of this address family."""
        family = f"-ipv{version}" if self._own_mask(version) or "," in self.cluster_cidr else ""
        return f"--node-cidr-mask-size{family}"

    def _own_mask(self, version: int) -> int:
        return self.mask_size_ipv4 if version == 4 else self.mask_size_ipv6  # noqa: PLR2004 -- IPv4


@dataclass(frozen=True, slots=True)
class Pool:
    """One of the cluster's ranges, and the prefix length of its blocks."""

    range: Range
    mask: int


@dataclass(frozen=True, slots=True)
class Sizes:
    pools: tuple[Pool, ...]
    """In the order of `--cluster-cidr`, which is the order of a node's ranges."""
    services: tuple[Range, ...] = ()
    """Excluded from the nodes' ranges."""


def sizes(asked: Asked) -> Sizes:
    """Raises ValueError if `malformed` or `misfits` finds anything."""
    found = (*malformed(asked), *misfits(asked))
    if found:
        raise ValueError(", ".join(found))
    ranges = parse_ranges(asked.cluster_cidr)
    services = parse_ranges(asked.service_range) if asked.service_range else ()
    return Sizes(tuple(Pool(each, asked.mask_of(each.version)) for each in ranges), services)


def malformed(asked: Asked) -> tuple[str, ...]:
    """Returns the flags whose value is wrong whether or not this controller allocates."""
    return tuple(_malformed(asked))


def misfits(asked: Asked) -> tuple[str, ...]:
    """Returns the flags that this controller cannot allocate by; empty if one is malformed."""
    return () if malformed(asked) else tuple(_misfits(asked))


def _malformed(asked: Asked) -> Iterator[str]:
    if asked.allocator not in {ALLOCATOR, *OTHER_ALLOCATORS}:
        hint = did_you_mean(asked.allocator, (ALLOCATOR,))
        yield f'--cidr-allocator-type must be {ALLOCATOR}, but got "{asked.allocator}"{hint}'
    ranges = {
        "cluster-cidr": asked.cluster_cidr,
        "service-cluster-ip-range": asked.service_range,
    }
    for name, text in ranges.items():
        try:
            parse_ranges(text) if text else ()
        except ValueError as error:
            yield f"--{name}: {error}"


def _misfits(asked: Asked) -> Iterator[str]:
    if asked.allocator != ALLOCATOR:
        yield (
            f'--cidr-allocator-type: "{asked.allocator}" is not supported by this manager; '
            f"use {ALLOCATOR}"
        )
    ranges = parse_ranges(asked.cluster_cidr)
    contradictions = tuple(_contradictions(asked, {each.version for each in ranges}))
    yield from contradictions
    if contradictions:
        return
    services = parse_ranges(asked.service_range) if asked.service_range else ()
    for each in ranges:
        yield from _too_long_or_short(each, asked)
        yield from _nothing_left(each, asked, services)


def _contradictions(asked: Asked, versions: set[int]) -> Iterator[str]:
    if len(versions) > 1 and asked.mask_size:
        yield (
            "--node-cidr-mask-size is for single-stack clusters; in a dual-stack cluster, use "
            "--node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"
        )
    of_families = {4: asked.mask_size_ipv4, 6: asked.mask_size_ipv6}
    if len(versions) == 1 and asked.mask_size and any(of_families.values()):
        yield "--node-cidr-mask-size cannot be combined with the flag of a single family"
    for version, size in of_families.items():
        if size and version not in versions:
            yield f"--node-cidr-mask-size-ipv{version}: --cluster-cidr has no IPv{version} range"


def _too_long_or_short(cluster: Range, asked: Asked) -> Iterator[str]:
    version = cluster.version
    mask, flag = asked.mask_of(version), asked.mask_flag_of(version)
    most = cluster.prefixlen + MOST_BITS[version]
    if mask > LONGEST[version]:
        yield f"{flag}: an IPv{version} prefix is at most {LONGEST[version]} bits, but got {mask}"
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


def _nothing_left(cluster: Range, asked: Asked, services: tuple[Range, ...]) -> Iterator[str]:
    """Reports a Service range that overlaps every block of the cluster's range."""
    only = asked.mask_of(cluster.version) <= cluster.prefixlen
    for each in services:
        if is_within(cluster, (each,)) or (only and is_within(each, (cluster,))):
            yield (
                f"--service-cluster-ip-range: {each} leaves no node CIDR in {cluster} "
                "(--cluster-cidr); use ranges that do not overlap"
            )
