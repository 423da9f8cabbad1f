import pytest

from pileus.volumes.busy import Busy, InProgress
from pileus.volumes.parameters import (
    GIB,
    InvalidParameters,
    check_secrets,
    claim_owner,
    driver_name,
    read_filesystem,
    read_parameters,
    read_snapshot_parameters,
    whole_gib,
)


def test_parameters_of_a_class_are_read() -> None:
    found = read_parameters({
        "type": "fast",
        "zone": "b",
        "csi.storage.k8s.io/fstype": "xfs",
        "csi.storage.k8s.io/pvc/name": "data",
        "csi.storage.k8s.io/pvc/namespace": "shop",
    })

    assert (found.type, found.zone, found.filesystem) == ("fast", "b", "xfs")
    assert found.labels == {
        "kubernetes.io/created-for/pvc/name": "data",
        "kubernetes.io/created-for/pvc/namespace": "shop",
    }


def test_a_class_without_parameters_has_ext4() -> None:
    assert read_parameters({}).filesystem == "ext4"


def test_every_unknown_parameter_is_reported_with_the_closest_one() -> None:
    with pytest.raises(InvalidParameters) as caught:
        read_parameters({"typ": "fast", "color": "blue"})

    assert 'unknown parameter "typ" (did you mean "type"?)' in str(caught.value)
    assert 'unknown parameter "color"' in str(caught.value)


def test_an_unknown_filesystem_is_refused() -> None:
    with pytest.raises(InvalidParameters, match=r'unknown filesystem "ext5" \(did you mean "ext'):
        read_filesystem("ext5")


def test_a_snapshot_class_takes_no_parameters_but_what_is_always_done() -> None:
    read_snapshot_parameters({"csi.storage.k8s.io/volumesnapshot/name": "s"})
    read_snapshot_parameters({"force-create": "true", "type": "snapshot"})
    for name, value in (("type", "fast"), ("force-create", "false")):
        with pytest.raises(InvalidParameters, match=f'unknown parameter {name} "{value}"'):
            read_snapshot_parameters({name: value})
    with pytest.raises(InvalidParameters, match="type backup is not supported"):
        read_snapshot_parameters({"type": "backup"})


def test_secrets_are_refused_without_their_values() -> None:
    check_secrets({})
    with pytest.raises(InvalidParameters) as caught:
        check_secrets({"passphrase": "hunter2"})

    assert "passphrase" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_names_are_shared_by_driver_and_controller() -> None:
    assert driver_name("openstack") == "openstack.csi.pileus.dev"
    assert claim_owner("7a1c") == "pvc-7a1c"


@pytest.mark.parametrize(("size", "gib"), [(1, 1), (GIB, 1), (GIB + 1, 2), (10 * GIB, 10)])
def test_sizes_are_rounded_up(size: int, gib: int) -> None:
    assert whole_gib(size) == gib


def test_a_volume_has_one_operation_at_a_time() -> None:
    progress = InProgress()
    with progress.only("vol-1"):
        with (
            pytest.raises(Busy, match="an operation on vol-1 is already in progress"),
            progress.only("vol-2", "vol-1"),
        ):
            pass
        with progress.only("vol-2"):
            pass
    with progress.only("vol-1"):
        pass
