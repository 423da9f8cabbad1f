"""The commit that a version names is that of the running code, or unknown; never another one."""

import subprocess
from pathlib import Path

import pytest

from pileus import version
from pileus.app.version_flag import VersionRequest
from pileus.server.build import this_build


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "src" / "pileus").mkdir(parents=True)
    (tmp_path / "src" / "pileus" / "code.py").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.real_time
def test_a_checkout_is_named_by_its_commit(checkout: Path):
    assert version.checked_out(checkout) == git(checkout, "rev-parse", "--short=12", "HEAD")


@pytest.mark.real_time
@pytest.mark.parametrize("name", ["code.py", "new.py"])
def test_changed_and_new_files_are_not_passed_off_as_the_commit(checkout: Path, name: str):
    (checkout / "src" / "pileus" / name).write_text("changed = True\n")

    assert version.checked_out(checkout).endswith("-modified")


@pytest.mark.real_time
def test_files_outside_of_the_code_do_not_matter(checkout: Path):
    (checkout / "notes").write_text("x")

    assert "-modified" not in version.checked_out(checkout)


@pytest.mark.real_time
def test_another_repository_around_an_installation_is_not_taken_for_ours(checkout: Path):
    installed = checkout / "venv" / "lib"
    (installed / "pileus").mkdir(parents=True)

    assert version.checked_out(installed) == "unknown"
    assert version.checked_out(checkout / "venv") == "unknown"


def test_a_folder_that_git_cannot_read_is_unknown(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    (tmp_path / "src" / "pileus").mkdir(parents=True)

    assert version.checked_out(tmp_path) == "unknown"


def test_every_way_to_ask_names_version_and_commit():
    line, raw = VersionRequest("true").answer() or "", VersionRequest("raw").answer() or ""

    assert line.split()[:2] == ["Kubernetes", version.KUBERNETES], "what scripts read"
    for text in (line, raw):
        assert version.PILEUS in text
        assert version.commit() in text
    assert this_build().git_commit == version.commit()
