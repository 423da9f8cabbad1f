"""Which names, labels, annotations and finalizers are valid, with messages of the real server."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from pileus_lab.apiserver import field_errors
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.tree import Obj, branch, rows, text, texts, words

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
LABEL_LENGTH = 63
SUBDOMAIN_LENGTH = 253
ANNOTATIONS_SIZE = 256 * 1024
_KNOWN = 4096
"""Number of names of each kind to cache."""

BAD_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex "
    "used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
BAD_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
BAD_QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NAME_PART = BAD_QUALIFIED.removeprefix("name part ")
BAD_KEY = (
    f"a valid label key {_NAME_PART} with an optional DNS subdomain prefix and '/' (e.g. "
    "'example.com/MyName')"
)
BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
BAD_CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
    "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def _long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _remembered(check: Callable[[str], Iterator[str]]) -> Callable[[str], tuple[str, ...]]:
    """Each name is checked once: every write of an object repeats all of them."""

    @lru_cache(_KNOWN)
    def faults(name: str) -> tuple[str, ...]:
        return tuple(check(name))

    return faults


@_remembered
def label_faults(name: str) -> Iterator[str]:
    if len(name) > LABEL_LENGTH:
        yield _long(LABEL_LENGTH)
    if not _LABEL.fullmatch(name):
        yield BAD_LABEL


@_remembered
def subdomain_faults(name: str) -> Iterator[str]:
    if len(name) > SUBDOMAIN_LENGTH:
        yield _long(SUBDOMAIN_LENGTH)
    if not _SUBDOMAIN.fullmatch(name):
        yield BAD_SUBDOMAIN


def path_segment_faults(name: str) -> Iterator[str]:
    if name in {".", ".."}:
        yield f"may not be '{name}'"
    for bad in ("/", "%"):
        if bad in name:
            yield f"may not contain '{bad}'"


@_remembered
def qualified_faults(name: str) -> Iterator[str]:
    """Errors of a label or annotation key."""
    prefix, slash, rest = name.rpartition("/")
    if "/" in prefix:
        yield BAD_KEY
        return
    if slash and not prefix:
        yield "prefix part must be non-empty"
    elif slash:
        for fault in subdomain_faults(prefix):
            yield f"prefix part {fault}"
    if not rest:
        yield "name part must be non-empty"
    elif len(rest) > LABEL_LENGTH:
        yield f"name part {_long(LABEL_LENGTH)}"
    if not _QUALIFIED.fullmatch(rest):
        yield BAD_QUALIFIED


@_remembered
def value_faults(value: str) -> Iterator[str]:
    if len(value) > LABEL_LENGTH:
        yield _long(LABEL_LENGTH)
    if not _VALUE.fullmatch(value):
        yield BAD_VALUE


def config_key_faults(key: str) -> Iterator[str]:
    if len(key) > SUBDOMAIN_LENGTH:
        yield _long(SUBDOMAIN_LENGTH)
    if not _CONFIG_KEY.fullmatch(key):
        yield BAD_CONFIG_KEY


def check_labels(labels: dict[str, str], path: str) -> Iterator[Fault]:
    for key, value in sorted(labels.items()):
        for why in qualified_faults(key):
            yield field_errors.invalid(path, key, why)
        for why in value_faults(value):
            yield field_errors.invalid(path, value, why)


def check_metadata(value: Obj, name_faults: Iterable[str]) -> Iterator[Fault]:
    """Yields the errors in the metadata; `name_faults` checks the name."""
    meta = branch(value, "metadata")
    name = text(meta, "name")
    if name:
        yield from (field_errors.invalid("metadata.name", name, why) for why in name_faults)
    elif not text(meta, "generateName"):
        yield field_errors.required("metadata.name", "name or generateName is required")
    yield from check_labels(words(meta, "labels"), "metadata.labels")
    yield from _check_annotations(words(meta, "annotations"))
    yield from _check_owners(meta)
    yield from _check_finalizers(texts(meta, "finalizers"))


def _check_annotations(annotations: dict[str, str]) -> Iterator[Fault]:
    size = 0
    for key, value in sorted(annotations.items()):
        size += len(key) + len(value)
        for why in qualified_faults(key.lower()):
            yield field_errors.invalid("metadata.annotations", key, why)
    if size > ANNOTATIONS_SIZE:
        yield field_errors.too_long("metadata.annotations", ANNOTATIONS_SIZE)


def _check_owners(meta: Obj) -> Iterator[Fault]:
    for index, owner in enumerate(rows(meta, "ownerReferences")):
        path = f"metadata.ownerReferences[{index}]"
        for key, detail in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not text(owner, key):
                yield field_errors.invalid(f"{path}.{key}", "", detail)


def _check_finalizers(finalizers: list[str]) -> Iterator[Fault]:
    for finalizer in finalizers:
        for why in qualified_faults(finalizer):
            yield field_errors.invalid("metadata.finalizers", finalizer, why)
        if "/" not in finalizer and finalizer not in {"orphan", "foregroundDeletion", "kubernetes"}:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield field_errors.invalid("metadata.finalizers", finalizer, detail)
