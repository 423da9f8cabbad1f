"""The answer of `/configz`: the configuration in the Go program's shape."""

from collections.abc import Mapping

from pileus.app.migration import Migration
from pileus.settings.config import Config

GROUP = "cloudcontrollermanager.config.k8s.io"


def configz(config: Config, migration: Migration | None = None) -> Mapping[str, object]:
    """Returns a document of plain values, ready for JSON. `migration`: the file in use, if any."""
    document = config.configz()
    document["Generic"] |= {
        "Port": 0,
        "Address": "0.0.0.0",  # noqa: S104 -- a constant of the Go program; nothing listens on it
        "LeaderMigration": _leader_migration(migration),
    }
    return {
        GROUP: {
            "kind": "CloudControllerManagerConfiguration",
            "apiVersion": f"{GROUP}/v1alpha1",
            **document,
        }
    }


def _leader_migration(migration: Migration | None) -> Mapping[str, object]:
    if migration is None:
        return {"leaderName": "", "resourceLock": "", "controllerLeaders": None}
    return {
        "leaderName": migration.leader_name,
        "resourceLock": migration.resource_lock,
        "controllerLeaders": [
            {"name": leader.name, "component": leader.component}
            for leader in migration.controller_leaders
        ],
    }
