"""The desired labels of a node: those from the cloud. Labels set by users are kept. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pileus.cloud.model import Instance

Labels = Mapping[str, str]


class Pair(NamedTuple):
    """The stable and the deprecated key of one label."""

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
    """Returns type, zone and region under both keys, and messages about invalid values."""
    facts = {INSTANCE_TYPE: instance.type, ZONE: instance.zone, REGION: instance.region}
    labels: dict[str, str] = {}
    problems: list[str] = []
    for pair, value in facts.items():
        problem = _value_problem(value)
        if problem:
            problems.append(f"label {pair.stable}: {problem}")
        elif value:
            labels |= {pair.beta: value, pair.stable: value}
    return labels, tuple(problems)


def additional(instance: Instance) -> tuple[dict[str, str], tuple[str, ...]]:
    """Returns the cloud's labels outside Kubernetes' domains, and messages about invalid ones."""
    labels: dict[str, str] = {}
    problems: list[str] = []
    for key, value in instance.labels.items():
        problem = _key_problem(key) or _value_problem(value)
        if problem:
            problems.append(f"label {key}: {problem}")
        elif not is_reserved(key):
            labels[key] = value
    return labels, tuple(problems)


def is_reserved(key: str) -> bool:
    """Whether the key is in a domain of Kubernetes, where clouds may not define labels."""
    prefix, slash, _ = key.partition("/")
    return bool(slash) and _RESERVED.fullmatch(prefix) is not None


def differing(present: Labels, desired: Labels) -> dict[str, str]:
    return {key: value for key, value in desired.items() if present.get(key) != value}


def missing(present: Labels, desired: Labels) -> dict[str, str]:
    return {key: value for key, value in desired.items() if key not in present}


def completed(present: Labels) -> dict[str, str]:
    """Returns the missing stable labels, with the values of the deprecated ones."""
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
