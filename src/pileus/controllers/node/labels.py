"""Which labels a node should have: those from the cloud, never against a user's will. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pileus.cloud.model import Instance

Labels = Mapping[str, str]


class Pair(NamedTuple):
    """One fact under its present and its deprecated key."""

    stable: str
    beta: str


INSTANCE_TYPE = Pair("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ZONE = Pair("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
REGION = Pair("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region")

MAX_NAME = 63
MAX_PREFIX = 253
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RESERVED = re.compile(r"(.*\.)?(kubernetes|k8s)\.io")


def standard(instance: Instance) -> tuple[dict[str, str], tuple[str, ...]]:
    """Type, zone and region under both keys, and complaints about what cannot be a label."""
    facts = {INSTANCE_TYPE: instance.type, ZONE: instance.zone, REGION: instance.region}
    labels: dict[str, str] = {}
    complaints: list[str] = []
    for pair, value in facts.items():
        problem = _value_problem(value)
        if problem:
            complaints.append(f"label {pair.stable}: {problem}")
        elif value:
            labels |= {pair.beta: value, pair.stable: value}
    return labels, tuple(complaints)


def additional(instance: Instance) -> tuple[dict[str, str], tuple[str, ...]]:
    """The cloud's own labels outside Kubernetes' domains, and complaints about impossible ones."""
    labels: dict[str, str] = {}
    complaints: list[str] = []
    for key, value in instance.labels.items():
        problem = _key_problem(key) or _value_problem(value)
        if problem:
            complaints.append(f"label {key}: {problem}")
        elif not is_reserved(key):
            labels[key] = value
    return labels, tuple(complaints)


def is_reserved(key: str) -> bool:
    """Whether the key lies in a domain of Kubernetes, in which no cloud may make up labels."""
    prefix, slash, _ = key.partition("/")
    return bool(slash) and _RESERVED.fullmatch(prefix) is not None


def differing(present: Labels, wanted: Labels) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def missing(present: Labels, wanted: Labels) -> dict[str, str]:
    return {key: value for key, value in wanted.items() if key not in present}


def completed(present: Labels) -> dict[str, str]:
    """The stable labels that are missing, from their deprecated twins. No value is replaced."""
    return {
        pair.stable: present[pair.beta]
        for pair in (INSTANCE_TYPE, ZONE, REGION)
        if pair.beta in present and pair.stable not in present
    }


def _key_problem(key: object) -> str:
    if not isinstance(key, str):
        return f"its key is a {type(key).__name__}, not text"
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > MAX_PREFIX or not _PREFIX.fullmatch(prefix)):
        return "the part before '/' must be a lower-case DNS name of at most 253 characters"
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        return "its name must be 1 to 63 letters, digits, '-', '_' or '.', alphanumeric at the ends"
    return ""


def _value_problem(value: object) -> str:
    if not isinstance(value, str):
        return f"its value is a {type(value).__name__}, not text"
    if value and (len(value) > MAX_NAME or not _NAME.fullmatch(value)):
        return (
            f"value {value[:80]!r} must be at most 63 letters, digits, '-', '_' or '.', "
            "alphanumeric at the ends"
        )
    return ""
