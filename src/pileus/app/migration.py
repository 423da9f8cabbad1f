"""The file of `--leader-migration-config`: which controller runs under which lock.

Decoding is strict: an unknown or repeated field, another kind or version is refused.
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pileus.dataclass import dataclass
from pileus.settings.go_quote import quote
from pileus.suggest import did_you_mean
from pileus.version import PROGRAM

if TYPE_CHECKING:
    import yaml

KIND = "LeaderMigrationConfiguration"
GROUP = "controllermanager.config.k8s.io"
_VERSIONS = {
    "v1": frozenset({"leaderName", "controllerLeaders"}),
    "v1beta1": frozenset({"leaderName", "controllerLeaders", "resourceLock"}),
    "v1alpha1": frozenset({"leaderName", "controllerLeaders", "resourceLock"}),
}


class MigrationError(Exception):
    """The file cannot be used; the text names it and says why."""


class Lock(Enum):
    """Under which lock a controller runs here."""

    MAIN = "main"
    MIGRATION = "migration"
    ELSEWHERE = "elsewhere"
    """Not in this process."""


@dataclass(frozen=True, slots=True)
class ControllerLeader:
    name: str
    component: str


@dataclass(frozen=True, slots=True)
class Migration:
    leader_name: str
    controller_leaders: tuple[ControllerLeader, ...]
    resource_lock: str = "leases"

    def lock_of(self, controller: str) -> Lock:
        """Say where a controller runs, by its canonical name. The last entry about it counts."""
        component = {leader.name: leader.component for leader in self.controller_leaders}.get(
            controller
        )
        if component is None:
            return Lock.MAIN
        return Lock.MIGRATION if component in {PROGRAM, "*"} else Lock.ELSEWHERE


DEFAULT = Migration(
    "cloud-provider-extraction-migration",
    (
        ControllerLeader("route-controller", "*"),
        ControllerLeader("service-controller", "*"),
        ControllerLeader("cloud-node-lifecycle-controller", "*"),
    ),
)
"""What holds when no file is given.

Its first two names match no controller, here as upstream. Kept: kube-controller-manager reads the
same list in the same way, and resolving the names on one side only would let both act.
"""


def read_migration(path: Path) -> Migration:
    """Read the file. Raises MigrationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise MigrationError(
            f"unable to read leader migration configuration from {quote(str(path))}: {reason}"
        ) from error
    try:
        return decode(text)
    except MigrationError as error:
        raise MigrationError(f"leader migration configuration {path}: {error}") from error


def decode(text: str) -> Migration:
    document = _load(text)
    if not isinstance(document, dict):
        raise MigrationError(f"expected a {KIND}")
    fields = dict(cast("Mapping[str, object]", document))
    version = _version(fields.pop("apiVersion", None), fields.pop("kind", None))
    _refuse_unknown(fields, _VERSIONS[version], "")
    migration = Migration(
        _text(fields, "leaderName"), _leaders(fields), str(fields.get("resourceLock", "leases"))
    )
    if not migration.leader_name:
        raise MigrationError("leaderName: Required value: it names the second Lease")
    if migration.resource_lock != "leases":
        shown = quote(migration.resource_lock)
        raise MigrationError(f'resourceLock: Invalid value: {shown}: only "leases" exists')
    return migration


def _load(text: str) -> object:
    import yaml  # noqa: PLC0415 -- only where a file is given

    try:
        node = yaml.SafeLoader(text).get_single_node()
        _refuse_duplicates(node)
        return cast("object", yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise MigrationError(f"not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise MigrationError(f"nested too deep; expected a {KIND}") from error


def _refuse_duplicates(node: "yaml.Node | None") -> None:
    import yaml  # noqa: PLC0415 -- only where a file is given

    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item)
    if isinstance(node, yaml.MappingNode):
        keys = [str(key.value) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise MigrationError(f"strict decoding error: key {quote(key)} already set in map")
        for _, value in node.value:
            _refuse_duplicates(value)


def _version(api_version: object, kind: object) -> str:
    group, _, version = str(api_version or "").partition("/")
    if group != GROUP or version not in _VERSIONS or kind != KIND:
        possible = ", ".join(f"{GROUP}/{one}" for one in _VERSIONS)
        raise MigrationError(
            f"no kind {quote(str(kind or ''))} is registered for version "
            f"{quote(str(api_version or ''))}; expected kind {KIND} of {possible}"
        )
    return version


def _refuse_unknown(fields: Mapping[str, object], known: frozenset[str], where: str) -> None:
    for name in fields:
        if name not in known:
            raise MigrationError(
                f"strict decoding error: unknown field {quote(where + name)}"
                f"{did_you_mean(name, known)}"
            )


def _text(fields: Mapping[str, object], name: str, where: str = "") -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise MigrationError(f"{where}{name}: expected text, got {value!r}")
    return value


def _leaders(fields: Mapping[str, object]) -> tuple[ControllerLeader, ...]:
    entries = fields.get("controllerLeaders", cast("list[object]", []))
    if not isinstance(entries, list):
        raise MigrationError("controllerLeaders: expected a list")
    return tuple(
        _leader(entry, f"controllerLeaders[{place}].")
        for place, entry in enumerate(cast("list[object]", entries))
    )


def _leader(entry: object, where: str) -> ControllerLeader:
    if not isinstance(entry, dict):
        raise MigrationError(f"{where.rstrip('.')}: expected name and component")
    fields = cast("Mapping[str, object]", entry)
    _refuse_unknown(fields, frozenset({"name", "component"}), where)
    leader = ControllerLeader(_text(fields, "name", where), _text(fields, "component", where))
    if not leader.name or not leader.component:
        missing = "component" if leader.name else "name"
        raise MigrationError(f"{where}{missing}: Required value")
    return leader
