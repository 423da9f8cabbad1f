import pytest

from pileus.controllers.node.labels import additional, completed, is_reserved, standard
from tests.unit.controllers.node.objects import instance


def test_type_zone_and_region_come_under_their_stable_and_their_beta_key() -> None:
    labels, complaints = standard(instance(type="m1", zone="z1", region="r1"))

    assert labels == {
        "node.kubernetes.io/instance-type": "m1",
        "beta.kubernetes.io/instance-type": "m1",
        "topology.kubernetes.io/zone": "z1",
        "failure-domain.beta.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/region": "r1",
        "failure-domain.beta.kubernetes.io/region": "r1",
    }
    assert not complaints


def test_what_the_cloud_does_not_know_is_no_label() -> None:
    assert standard(instance(type="", zone="", region="")) == ({}, ())


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("kubernetes.io/x", True),
        ("k8s.io/x", True),
        ("node.kubernetes.io/x", True),
        ("a.b.k8s.io/x", True),
        ("k8snio/x", False),
        ("mykubernetes.io/x", False),
        ("kubernetes.io.example.com/x", False),
        ("kubernetes.io", False),
        ("example.com/kubernetes.io", False),
        ("plain", False),
    ],
)
def test_kubernetes_domains_are_reserved(key: str, reserved: bool) -> None:
    assert is_reserved(key) is reserved


def test_reserved_labels_of_the_cloud_are_skipped_silently() -> None:
    labels, complaints = additional(instance(labels={"k8s.io/x": "1", "example.com/rack": "7"}))

    assert labels == {"example.com/rack": "7"}
    assert not complaints


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param("example.com/rack", "a b", id="a blank in the value"),
        pytest.param("example.com/rack", "x" * 64, id="a long value"),
        pytest.param("example.com/rack", "-x", id="a dash at the start of the value"),
        pytest.param("example.com/rack", None, id="no value"),
        pytest.param("Example.com/rack", "1", id="upper case before the slash"),
        pytest.param("a/b/c", "1", id="two slashes"),
        pytest.param("/rack", "1", id="nothing before the slash"),
        pytest.param("x" * 64, "1", id="a long key"),
        pytest.param("", "1", id="no key"),
        pytest.param(7, "1", id="a key that is no text"),
        pytest.param("example.com/rack", "ünknown", id="beyond ASCII"),
        pytest.param("example.com/rack", "x\n", id="a line break at the end"),
    ],
)
def test_a_label_that_kubernetes_would_refuse_is_left_out_and_the_rest_goes_on(
    key: str, value: str
) -> None:
    labels, complaints = additional(instance(labels={key: value, "good": "1"}))

    assert labels == {"good": "1"}
    assert len(complaints) == 1


def test_a_zone_that_is_no_label_value_is_left_out_and_the_rest_goes_on() -> None:
    labels, complaints = standard(instance(zone="zone one", type="m1", region=""))

    assert set(labels.values()) == {"m1"}
    assert "topology.kubernetes.io/zone" in complaints[0]


def test_an_empty_value_is_a_fine_label() -> None:
    assert additional(instance(labels={"marker": ""})) == ({"marker": ""}, ())


def test_a_missing_stable_label_is_made_from_its_beta_twin() -> None:
    present = {"failure-domain.beta.kubernetes.io/zone": "z1"}

    assert completed(present) == {"topology.kubernetes.io/zone": "z1"}


def test_defect_7_a_stable_label_that_a_user_changed_stays() -> None:
    present = {
        "failure-domain.beta.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/zone": "mine",
    }

    assert completed(present) == {}


def test_a_beta_label_that_someone_removed_stays_away() -> None:
    assert completed({"topology.kubernetes.io/zone": "z1"}) == {}
