"""The product's wheel alone, in a fresh virtual environment, manages a real cluster."""

from pathlib import Path

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.examples import EXAMPLES, install_examples
from tests.real.manager import Lab, eventually, is_initialized, node, register, running
from tests.wheels import FreshVenv, build_wheels


@pytest.fixture
def product(tmp_path: Path) -> FreshVenv:
    fresh = FreshVenv(tmp_path / "venv")
    fresh.install("pileus", build_wheels(tmp_path / "wheels")["pileus"])
    return fresh


def test_the_product_alone_initializes_a_node_with_an_example_provider(
    clean: ControlPlane, lab: Lab, product: FreshVenv
) -> None:
    install_examples(product.packages)
    register(clean, "node-1")
    assert product.run("python", "-c", "import pileus_lab").returncode == 1

    flags = ("--cloud-provider=inventory", f"--cloud-config={EXAMPLES / 'machines.yaml'}")
    program = product.bin / "cloud-controller-manager"
    with running(clean, lab, *flags, providers=lab.folder, program=program) as manager:
        eventually("initialized", lambda: manager.is_alive() and is_initialized(clean, "node-1"))

    assert node(clean, "node-1")["spec"]["providerID"] == "inventory://4c4c4544-0001"
    assert manager.process.returncode == 0
