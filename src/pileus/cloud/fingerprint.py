"""Short hashes that are the same in every process, and canonical spellings of addresses.

A hash depends only on what is hashed: not on the order of sets, Python's hash seed, the machine or
the spelling of an address.
"""

import json
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address, ip_network

VERSION = 1
"""Part of every hash. Increase it if the same wish is to be hashed from other facts."""
LENGTH = 16
"""In hexadecimal digits: short enough for the tags of any cloud."""
KNOWN = 8192
"""Addresses and CIDRs whose spelling is remembered: of the nodes of a large cluster, and the source
ranges of several Services."""


def digest(*facts: object) -> str:
    """Returns the hash of texts, numbers, None and sequences of them, in this order."""
    text = json.dumps([VERSION, *facts], separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:LENGTH]


@lru_cache(KNOWN)
def usual_address(text: str) -> str:
    """Returns an IP address in its canonical spelling; other texts unchanged."""
    try:
        return str(ip_address(text))
    except ValueError:
        return text


@lru_cache(KNOWN)
def usual_network(text: str) -> str:
    """Returns a CIDR in its canonical spelling, without host bits; other texts unchanged."""
    try:
        return str(ip_network(text.strip(), strict=False))
    except ValueError:
        return text
