"""Quantities of Kubernetes, such as `10Gi` or `1500M`, as bytes."""

import re
from decimal import Decimal
from math import ceil

BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
DECIMAL = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "K": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_FORM = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+))([KMGTPE]i|[numkKMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII
)
LONGEST = 64


def bytes_of(text: str) -> int:
    """Returns the quantity in whole bytes, rounded up. Raises ValueError if it is none."""
    return ceil(exact(text))


def exact(text: str) -> Decimal:
    """Returns the number that the quantity stands for. Raises ValueError."""
    found = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if found is None:
        raise ValueError(f'"{text}" is not a quantity, such as 10Gi')
    number, suffix = Decimal(found[1]), found[2] or ""
    if suffix in BINARY:
        return number * 2 ** BINARY[suffix]
    return number.scaleb(DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:]))
