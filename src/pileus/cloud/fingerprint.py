"""Short hashes that are equal wherever and whenever the same thing is hashed, and usual spellings.

A hash changes only with what was hashed: not with the order of sets, the seed of Python's own
hashes, the machine, or one of many spellings of an address.
"""

import json
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address, ip_network

VERSION = 1
"""Part of every hash: raise it when the same wish is to be hashed from other facts than before."""
LENGTH = 16
"""In hexadecimal digits: short enough for the tags of any cloud."""
KNOWN = 4096
"""Addresses whose spelling is remembered."""


def digest(*facts: object) -> str:
    """The hash of texts, numbers, None and sequences of them, in their order."""
    text = json.dumps([VERSION, *facts], separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:LENGTH]


@lru_cache(KNOWN)
def usual_address(text: str) -> str:
    """An IP address in its usual spelling; what is none stays as it is."""
    try:
        return str(ip_address(text))
    except ValueError:
        return text


def usual_network(text: str) -> str:
    """A CIDR in its usual spelling, without bits beyond its mask; what is none stays as it is."""
    try:
        return str(ip_network(text.strip(), strict=False))
    except ValueError:
        return text
