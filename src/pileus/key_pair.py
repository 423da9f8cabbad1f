"""A certificate with its key, and whom a certificate is for. `pileus.pki` creates certificates."""

from dataclasses import field

from pileus.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom a certificate is for; names that parse as an IP become IP names."""

    common_name: str
    organizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
