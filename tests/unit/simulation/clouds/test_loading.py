"""From MODULE:NAME to a cloud, or to a word on why it cannot be simulated."""

from pathlib import Path

import pytest

from pileus_lab.simulation.clouds.loading import UnusableCloud, load
from pileus_lab.simulation.clouds.local import SimulatedLocal
from pileus_lab.simulation.clouds.openstack import SimulatedOpenStack
from tests.unit.simulation.clouds.faulty import MachinesAlone

FAULTY = "tests.unit.simulation.clouds.faulty"


def test_without_a_name_it_is_the_local_cloud():
    assert load("") is SimulatedLocal


def test_a_cloud_is_found_by_its_name():
    assert load(f"{FAULTY}:MachinesAlone") is MachinesAlone


def test_a_cloud_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "cloud_found_here.py").write_text(
        "from pileus_lab.simulation.clouds.local import SimulatedLocal as Mine\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [])

    assert load("cloud_found_here:Mine") is SimulatedLocal


def test_clouds_of_the_laboratory_have_short_names() -> None:
    assert load("local") is SimulatedLocal
    assert load("openstack") is SimulatedOpenStack


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("acme", 'by MODULE:NAME, as acme.simulated:SimulatedAcme, not "acme"'),
        ("openstak", 'not "openstak" (did you mean "openstack"?)'),
        (":Acme", "MODULE:NAME"),
        ("acme:", "MODULE:NAME"),
        ("no_such_acme:Acme", 'no module "no_such_acme" can be imported'),
        ("my_acm:Acme", 'did you mean "my_acme"?'),
        ("my_acme:Acme", "module my_acme cannot be imported: No module named 'no_such_sdk'"),
        ("my_typo:Acme", "module my_typo cannot be imported: "),
        (f"{FAULTY}:MachineAlone", 'has no "MachineAlone" (did you mean "MachinesAlone"?)'),
        (f"{FAULTY}:NOT_A_CLOUD", "is a str; use a class"),
        (f"{FAULTY}:Choosy", "callable with one argument, the random.Random"),
        (f"{FAULTY}:Incomplete", "it lacks connect(), step(), asked()"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_reason(
    named: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "my_acme.py").write_text("import no_such_sdk\n")
    (tmp_path / "my_typo.py").write_text("def\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UnusableCloud) as refused:
        load(named)

    assert told in str(refused.value)
