"""What pip installs for `pileus`, `pileus[testing]` and `pileus[lab]`, in fresh environments."""

import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

import pileus
import pileus_lab
from pileus import version
from tests.wheels import FreshVenv, build_wheels

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300), pytest.mark.xdist_group("wheels")]

LAB_COMMANDS = ("apiserver", "demo", "local", "simulate")
INSTALL_LAB = "Fix: pip install . ./lab (in a clone of the repository)"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build_wheels(tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="module")
def product(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> FreshVenv:
    """An environment with the product alone."""
    fresh = FreshVenv(tmp_path_factory.mktemp("product"))
    fresh.install("pileus", wheels["pileus"])
    return fresh


@pytest.fixture(scope="module")
def laboratory(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> FreshVenv:
    fresh = FreshVenv(tmp_path_factory.mktemp("laboratory"))
    fresh.install("pileus[lab]", *wheels.values())
    return fresh


def files_of(wheel: Path) -> dict[str, str]:
    """Its files by path; the text of those that are text."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: archive.read(name).decode(errors="replace")
            for name in archive.namelist()
            if not name.endswith("/")
        }


def test_the_versions_of_both_distributions_are_the_same_everywhere():
    installed = {distribution(name).version for name in ("pileus", "pileus-lab")}

    assert installed == {version.PILEUS, pileus.__version__, pileus_lab.__version__}
    assert f"pileus=={version.PILEUS}" in (distribution("pileus-lab").requires or ())
    wanted = f'pileus-lab=={version.PILEUS}; extra == "lab"'
    assert wanted in [each.replace("'", '"') for each in distribution("pileus").requires or ()]


def test_the_wheel_of_the_product_has_nothing_of_the_laboratory_or_the_tests(
    wheels: dict[str, Path],
):
    files = files_of(wheels["pileus"])
    code = {name: text for name, text in files.items() if name.endswith(".py")}

    assert {name.partition("/")[0] for name in files} == {
        "pileus",
        f"pileus-{version.PILEUS}.dist-info",
    }
    assert not [name for name, text in code.items() if "import pileus_lab" in text]
    assert not [name for name, text in code.items() if "from pileus_lab" in text]
    assert not [name for name in files if "test_" in name or "/tests/" in name]
    assert "pileus/py.typed" in files
    assert files["pileus/commit.txt"].strip() == version.commit()


def test_the_wheel_of_the_laboratory_has_its_data_and_nothing_of_the_product(
    wheels: dict[str, Path],
):
    files = files_of(wheels["pileus-lab"])

    assert {name.partition("/")[0] for name in files} == {
        "pileus_lab",
        f"pileus_lab-{version.PILEUS}.dist-info",
    }
    assert {"pileus_lab/py.typed", "pileus_lab/apiserver/schema/core.fields"} <= files.keys()
    assert [name for name in files if name.endswith("licenses/LICENSE")]


def test_the_product_alone_has_its_commands(product: FreshVenv):
    assert product.run("cloud-controller-manager", "--help").returncode == 0

    done = product.run("pileus", "version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Pileus {version.PILEUS} (commit {version.commit()})")

    done = product.run("pileus", "providers")
    assert done.returncode == 0
    assert [(line.split()[0], line.split()[-1]) for line in done.stdout.splitlines()[1:]] == [
        ("openstack", "ok")
    ]


def test_the_extra_for_openstack_needs_nothing_more(wheels: dict[str, Path], tmp_path: Path):
    fresh = FreshVenv(tmp_path)
    fresh.install("pileus[openstack]", wheels["pileus"])

    done = fresh.run("pileus", "providers")

    assert done.stdout.splitlines()[1].split()[0] == "openstack"
    assert done.stdout.splitlines()[1].endswith("ok")


def test_a_plan_without_a_provider_or_a_cluster_is_refused_with_the_reason(product: FreshVenv):
    done = product.run("pileus", "plan")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--cloud-provider" in done.stderr

    done = product.run("pileus", "plan", "--cloud-provider=acme", "--kubeconfig=/nonexistent/k")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", LAB_COMMANDS)
def test_a_command_of_the_laboratory_says_how_to_install_it(product: FreshVenv, command: str):
    done = product.run("pileus", command, "--help")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"Error: pileus {command} is a command of the laboratory, which is not installed\n"
        f"{INSTALL_LAB}\n"
    )


def test_the_help_of_the_product_alone_says_how_to_get_the_other_commands(product: FreshVenv):
    done = product.run("pileus", "--help")

    assert done.returncode == 0
    assert not [name for name in LAB_COMMANDS if f"\n  {name} " in done.stdout]
    assert (
        "Not installed: apiserver, demo, local, simulate. "
        "Add them with: pip install . ./lab (in a clone of the repository)\n" in done.stdout
    )


def test_the_provider_of_the_laboratory_says_how_to_install_it(product: FreshVenv):
    done = product.run("cloud-controller-manager", "--cloud-provider=local")

    assert done.returncode == 1
    assert 'unknown cloud provider "local"' in done.stderr
    assert INSTALL_LAB in done.stderr
    assert "Traceback" not in done.stderr


def test_the_conformance_kit_is_importable_without_pytest(product: FreshVenv):
    kit = ("harness", "instances", "routes", "ssh_keys")
    code = "; ".join(["import sys", *(f"import pileus.testing.conformance.{one}" for one in kit)])

    done = product.run("python", "-c", f"{code}; sys.exit('pytest' in sys.modules)")

    assert (done.returncode, done.stderr) == (0, "")
    assert product.run("python", "-c", "import pytest").returncode == 1


def test_the_extra_for_testing_runs_the_laws_of_a_provider(wheels: dict[str, Path], tmp_path: Path):
    fresh = FreshVenv(tmp_path / "venv")
    fresh.install("pileus[testing]", wheels["pileus"])
    (tmp_path / "test_laws.py").write_text(LAWS)

    done = fresh.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    every = "import pileus.testing.conformance as kit, importlib\n"
    every += "for one in kit.LAWS: importlib.import_module(f'{kit.__name__}.{one}')"
    assert fresh.run("python", "-c", every).stderr == ""


LAWS = """
from contextlib import asynccontextmanager, contextmanager

from pileus.cloud.errors import Unavailable
from pileus.cloud.model import Absent, Instance, InstanceId, InstanceState, NodeName, NodeRef
from pileus.testing.conformance.instances import InstancesLaws


class Harness:
    def __init__(self):
        self.machines, self.is_broken = {}, False

    @asynccontextmanager
    async def connect(self):
        yield self

    async def find(self, nodes, *, fresh):
        if self.is_broken:
            raise Unavailable("broken")
        none = Absent(evidence="not listed")
        return {one.name: self.machines.get(one.name, none) for one in nodes}

    def add(self, name, state=InstanceState.RUNNING):
        self.machines[name] = Instance(
            id=InstanceId(name), provider_id=f"fake://{name}", state=state
        )
        return NodeRef(name=NodeName(name))

    def remove(self, name):
        del self.machines[name]

    def stop(self, name):
        self.add(name, InstanceState.STOPPED)

    @contextmanager
    def broken(self):
        self.is_broken = True
        yield


class TestInstances(InstancesLaws):
    def make(self):
        return Harness()
"""


def test_the_laboratory_brings_its_commands_and_its_provider(laboratory: FreshVenv):
    done = laboratory.run("pileus", "--help")
    assert [name for name in LAB_COMMANDS if f"\n  {name} " in done.stdout] == list(LAB_COMMANDS)
    assert "Not installed" not in done.stdout

    done = laboratory.run("pileus", "providers")
    assert (done.returncode, done.stdout.splitlines()[1].split()[0]) == (0, "local")

    done = laboratory.run("pileus", "simulate", "--seeds=1", "--jobs=1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_laboratory_that_cannot_be_loaded_is_reported_without_a_traceback(
    wheels: dict[str, Path], tmp_path: Path
):
    fresh = FreshVenv(tmp_path)
    fresh.install("pileus[lab]", *wheels.values())
    (fresh.packages / "pileus_lab" / "cli" / "demo.py").write_text("import absent_module\n")

    done = fresh.run("pileus", "demo")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: pileus demo: the laboratory cannot be loaded: No module named 'absent_module'\n"
        "Fix: pip install --force-reinstall . ./lab (in a clone of the repository)\n"
    )
