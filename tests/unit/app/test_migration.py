"""The leader migration file is decoded strictly, and says where each controller runs."""

from pathlib import Path

import pytest

from pileus.app.migration import (
    DEFAULT,
    ControllerLeader,
    Lock,
    Migration,
    MigrationError,
    decode,
    read_migration,
)

V1 = """\
apiVersion: controllermanager.config.k8s.io/v1
kind: LeaderMigrationConfiguration
leaderName: cloud-provider-extraction-migration
controllerLeaders:
- {name: node-route-controller, component: "*"}
- {name: service-lb-controller, component: kube-controller-manager}
- {name: cloud-node-controller, component: cloud-controller-manager}
"""


def test_a_controller_runs_where_the_file_says():
    migration = decode(V1)

    assert migration.lock_of("node-route-controller") is Lock.MIGRATION
    assert migration.lock_of("cloud-node-controller") is Lock.MIGRATION
    assert migration.lock_of("service-lb-controller") is Lock.ELSEWHERE
    assert migration.lock_of("cloud-node-lifecycle-controller") is Lock.MAIN


def test_the_last_entry_about_a_controller_counts():
    migration = Migration(
        "x", (ControllerLeader("a", "kube-controller-manager"), ControllerLeader("a", "*"))
    )

    assert migration.lock_of("a") is Lock.MIGRATION


def test_without_a_file_only_the_lifecycle_controller_moves_as_upstream():
    assert DEFAULT.lock_of("cloud-node-lifecycle-controller") is Lock.MIGRATION
    assert DEFAULT.lock_of("node-route-controller") is Lock.MAIN
    assert DEFAULT.lock_of("service-lb-controller") is Lock.MAIN


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_older_versions_may_name_the_lock(version: str):
    text = V1.replace("/v1", f"/{version}") + "resourceLock: leases\n"

    assert decode(text).resource_lock == "leases"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            V1 + "resourceLock: leases\n",
            'strict decoding error: unknown field "resourceLock"',
        ),
        (
            V1 + "leaderNam: x\n",
            'strict decoding error: unknown field "leaderNam" (did you mean "leaderName"?)',
        ),
        (V1 + "leaderName: x\n", 'strict decoding error: key "leaderName" already set in map'),
        (
            V1.replace("name: node", "nome: x, name: node"),
            (
                'strict decoding error: unknown field "controllerLeaders[0].nome" '
                '(did you mean "name"?)'
            ),
        ),
        (
            V1.replace("name: node", "name: x, name: node"),
            'strict decoding error: key "name" already set in map',
        ),
        (
            V1.replace("kind: Leader", "kind: Lieder"),
            (
                'no kind "LiederMigrationConfiguration" is registered for version '
                '"controllermanager.config.k8s.io/v1"; expected kind'
            ),
        ),
        (V1.replace("/v1", "/v2"), 'no kind "LeaderMigrationConfiguration" is registered'),
        (V1.replace("leaderName: c", "# c"), "leaderName: Required value"),
        (V1.replace("leaderName: c", "leaderName: 3 # c"), "leaderName: expected text, got 3"),
        (
            V1.replace("/v1", "/v1beta1") + "resourceLock: endpoints\n",
            'resourceLock: Invalid value: "endpoints": only "leases" exists',
        ),
        (V1.replace(', component: "*"', ""), "controllerLeaders[0].component: Required value"),
        (
            V1.replace('name: node-route-controller, component: "*"', 'component: "*"'),
            "controllerLeaders[0].name: Required value",
        ),
        (
            V1.replace('- {name: node-route-controller, component: "*"}', "- a"),
            "controllerLeaders[0]: expected name and component",
        ),
        (
            V1.split("controllerLeaders", maxsplit=1)[0] + "controllerLeaders: a",
            "controllerLeaders: expected",
        ),
        ("- a", "expected a LeaderMigrationConfiguration"),
        ("", "expected a LeaderMigrationConfiguration"),
        ("a: b: c", "not valid YAML: mapping values are not allowed here"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, message: str):
    with pytest.raises(MigrationError) as caught:
        decode(text)

    assert str(caught.value).startswith(message)


def test_the_file_is_named_when_it_cannot_be_used(tmp_path: Path):
    path = tmp_path / "migration.yaml"
    with pytest.raises(MigrationError, match=r"unable to read .*migration.yaml\": No such file"):
        read_migration(path)

    path.write_text("- a")
    with pytest.raises(MigrationError, match=r"configuration .*migration.yaml: expected a"):
        read_migration(path)

    path.write_text(V1)
    assert read_migration(path).leader_name == "cloud-provider-extraction-migration"
