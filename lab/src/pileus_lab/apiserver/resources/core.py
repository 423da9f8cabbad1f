"""Namespaces, ConfigMaps, Secrets, ServiceAccounts."""

import base64
from collections.abc import Iterator

from pileus_lab.apiserver import field_errors, naming
from pileus_lab.apiserver.field_errors import Fault
from pileus_lab.apiserver.resource import (
    AGE,
    NAME,
    STATUS_VERBS,
    Column,
    Resource,
    Rules,
    Subresource,
)
from pileus_lab.apiserver.tree import Obj, branch, default, grow, look, name_of, text, words

DATA_SIZE = 1024 * 1024
NAME_LABEL = "kubernetes.io/metadata.name"


def _new_namespace(value: Obj) -> None:
    value["spec"] = {"finalizers": ["kubernetes"]}
    value["status"] = {"phase": "Active"}
    _name_namespace(value)


def _name_namespace(value: Obj) -> None:
    if name_of(value):
        grow(value, "metadata", "labels")[NAME_LABEL] = name_of(value)


def _kept_namespace(new: Obj, old: Obj) -> None:
    new["spec"] = branch(old, "spec")
    if text(new, "metadata", "labels", NAME_LABEL) == name_of(new):
        return
    _name_namespace(new)


NAMESPACES = Resource(
    kind="Namespace",
    plural="namespaces",
    schema="core.Namespace",
    returns_deleted=True,
    namespaced=False,
    short_names=("ns",),
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    subresources=(
        Subresource("finalize", "Namespace", ("update",)),
        Subresource("status", "Namespace", STATUS_VERBS),
    ),
    rules=Rules(create=_new_namespace, update=_kept_namespace, name_faults=naming.label_faults),
    columns=(NAME, Column("Status", lambda o: text(o, "status", "phase")), AGE),
    selectable={"status.phase": ("status", "phase"), "name": ("metadata", "name")},
)


def _check_data(value: Obj) -> Iterator[Fault]:
    size = 0
    for part in ("data", "binaryData"):
        for key, content in sorted(branch(value, part).items()):
            size += len(str(content))
            path = f"{part}[{key}]"
            yield from (
                field_errors.invalid(path, key, why) for why in naming.config_key_faults(key)
            )
            if part == "binaryData" and key in branch(value, "data"):
                yield field_errors.invalid(path, key, "duplicate of key present in data")
    if size > DATA_SIZE:
        yield field_errors.too_long("[]", DATA_SIZE)


def _check_frozen(new: Obj, old: Obj) -> Iterator[Fault]:
    if look(old, "immutable") is not True:
        return
    if look(new, "immutable") is not True:
        yield field_errors.forbidden("immutable", "field is immutable when `immutable` is set")
    for part in ("data", "binaryData"):
        if look(new, part) != look(old, part):
            yield field_errors.forbidden(part, "field is immutable when `immutable` is set")


def _data_count(value: Obj) -> int:
    return len(branch(value, "data")) + len(branch(value, "binaryData"))


CONFIG_MAPS = Resource(
    kind="ConfigMap",
    plural="configmaps",
    schema="core.ConfigMap",
    short_names=("cm",),
    rules=Rules(validate=_check_data, validate_update=_check_frozen),
    columns=(NAME, Column("Data", _data_count, type="integer"), AGE),
)

_NEEDED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _default_secret(value: Obj) -> None:
    default(value, type="Opaque")
    written = words(value, "stringData")
    for key, content in written.items():
        grow(value, "data")[key] = base64.b64encode(content.encode()).decode()
    value.pop("stringData", None)


def _check_secret(value: Obj) -> Iterator[Fault]:
    yield from _check_data(value)
    for key in _NEEDED_KEYS.get(text(value, "type"), ()):
        if key not in branch(value, "data"):
            yield field_errors.required(f"data[{key}]")


def _check_secret_update(new: Obj, old: Obj) -> Iterator[Fault]:
    if look(new, "type") != look(old, "type"):
        yield field_errors.immutable("type", text(new, "type"))
    yield from _check_frozen(new, old)


SECRETS = Resource(
    kind="Secret",
    plural="secrets",
    schema="core.Secret",
    rules=Rules(
        default=_default_secret, validate=_check_secret, validate_update=_check_secret_update
    ),
    columns=(
        NAME,
        Column("Type", lambda o: text(o, "type")),
        Column("Data", _data_count, type="integer"),
        AGE,
    ),
    selectable={"type": ("type",)},
)


SERVICE_ACCOUNTS = Resource(
    kind="ServiceAccount",
    plural="serviceaccounts",
    schema="core.ServiceAccount",
    returns_deleted=True,
    short_names=("sa",),
    subresources=(
        Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"),
    ),
    columns=(NAME, AGE),
)
