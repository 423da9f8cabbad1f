"""What is uploaded for a release: sdist and wheel of both distributions, and the steps before."""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from tools import release

from pileus.version import PILEUS

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(300), pytest.mark.xdist_group("wheels")]

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("pileus", "pileus_lab")
FIRST_LEVEL = {".gitignore", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    release.build(ROOT, folder)
    return folder


def sdist(dist: Path, name: str) -> Path:
    return dist / f"{name}-{PILEUS}.tar.gz"


def wheel(dist: Path, name: str) -> Path:
    return dist / f"{name}-{PILEUS}-py3-none-any.whl"


def in_sdist(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as archive:
        return {one.name.partition("/")[2]: one for one in archive.getmembers() if one.isfile()}


def text_in_sdist(path: Path, name: str) -> str:
    with tarfile.open(path) as archive:
        found = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/{name}")
        assert found
        return found.read().decode()


def in_wheel(path: Path) -> dict[str, list[bytes]]:
    """The lines of its files; those of RECORD have no order."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).splitlines() for name in archive.namelist()}
    return {name: sorted(text) if "/RECORD" in name else text for name, text in files.items()}


def test_a_release_has_four_files(dist: Path):
    expected = {path.name for name in NAMES for path in (sdist(dist, name), wheel(dist, name))}

    assert {path.name for path in dist.iterdir() if path.name[0] != "."} == expected


def test_an_sdist_has_the_source_and_nothing_of_tests_or_laboratory(dist: Path):
    product, lab = (in_sdist(sdist(dist, name)) for name in NAMES)

    more = {"CHANGELOG.md", "tools"}
    assert {name.partition("/")[0] for name in product} == FIRST_LEVEL | more
    assert {name for name in product if name.startswith("tools/")} == {"tools/stamp_commit.py"}
    assert {name.partition("/")[0] for name in lab} == FIRST_LEVEL
    assert {name.split("/")[1] for name in product if name.startswith("src/")} == {"pileus"}
    assert {name.split("/")[1] for name in lab if name.startswith("src/")} == {"pileus_lab"}
    assert not [name for name in (*product, *lab) if "__pycache__" in name or "/test_" in name]


@pytest.mark.parametrize("name", NAMES)
def test_metadata_is_valid_and_the_same_in_both_forms(dist: Path, name: str):
    shown = text_in_sdist(sdist(dist, name), "PKG-INFO")
    files = in_wheel(wheel(dist, name))

    metadata = Metadata.from_email(shown.encode(), validate=True)

    assert files[f"{name}-{PILEUS}.dist-info/METADATA"] == shown.encode().splitlines()
    assert (metadata.name, str(metadata.version)) == (name.replace("_", "-"), PILEUS)
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert str(metadata.requires_python) == ">=3.11"


@pytest.mark.parametrize("name", NAMES)
def test_the_wheel_of_an_sdist_is_the_wheel_of_the_checkout(dist: Path, name: str, tmp_path: Path):
    with tarfile.open(sdist(dist, name)) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"{name}-{PILEUS}"

    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)

    assert in_wheel(source / "dist" / wheel(dist, name).name) == in_wheel(wheel(dist, name))


def test_two_builds_give_the_same_bytes(dist: Path, tmp_path: Path):
    code = f"import os; os.umask(0o077); from pathlib import Path; from tools import release; \
release.build(release.ROOT, Path({str(tmp_path)!r}))"
    environment = {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, check=True, capture_output=True
    )

    for name in NAMES:
        for path in (sdist(dist, name), wheel(dist, name)):
            assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files of the repository that have a version."""
    for name in {place for place, _ in release.PLACES} | {release.CHANGES}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_a_version_is_written_to_every_place_that_has_one(copy: Path):
    assert release.main(["bump", "7.8.9rc1"], copy) == 0

    for name, line in release.PLACES:
        assert "7.8.9rc1" in (copy / name).read_text(), line
        assert PILEUS not in (copy / name).read_text()
    changes = (copy / release.CHANGES).read_text()
    assert changes.index("## 7.8.9rc1 (not released)") < changes.index(f"## {PILEUS}")


def test_a_release_is_checked_before_it_is_built(copy: Path, capsys: pytest.CaptureFixture[str]):
    release.main(["bump", "7.8.9"], copy)
    assert release.main(["check", "v7.8.9"], copy) == 1
    assert "7.8.9 has no date" in capsys.readouterr().err

    changes = copy / release.CHANGES
    changes.write_text(changes.read_text().replace("7.8.9 (not released)", "7.8.9 (2030-01-02)"))

    assert release.main(["check", "v7.8.9"], copy) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "v7.8.9"], f"pyproject.toml has {PILEUS}, not 7.8.9"),
        (["check", "v7.8.9"], "CHANGELOG.md does not begin with 7.8.9"),
        (["check", "7.8.9"], "use vX.Y.Z"),
        (["bump", "v1"], "use X.Y.Z"),
        (["bmup"], "python -m tools.release bump"),
    ],
)
def test_wrong_input_gets_a_message_that_says_what_to_do(
    copy: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
):
    assert release.main(arguments, copy) == 1
    assert message in capsys.readouterr().err
