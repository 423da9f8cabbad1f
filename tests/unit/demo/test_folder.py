"""The demo's folder: ours alone, and gone in the end; what is not ours stays."""

import tempfile
from pathlib import Path

import pytest

from pileus_lab.demo.host import Unusable, state_folder


def test_our_files_and_the_folder_that_we_made_are_gone_in_the_end(tmp_path: Path):
    with state_folder(tmp_path / "a" / "demo") as folder:
        for file in folder.files:
            file.write_text("x")

    assert not folder.path.exists()


def test_without_a_name_a_temporary_one_is_made_for_us_alone():
    with state_folder(None) as folder:
        assert folder.path.parent == Path(tempfile.gettempdir())
        assert folder.path.stat().st_mode & 0o077 == 0

    assert not folder.path.exists()


def test_what_others_put_there_stays(tmp_path: Path):
    with state_folder(tmp_path / "demo") as folder:
        folder.log.write_text("ours")
        (folder.path / "notes").write_text("theirs")

    assert [file.name for file in folder.path.iterdir()] == ["notes"]


def test_a_folder_that_was_there_before_stays(tmp_path: Path):
    with state_folder(tmp_path):
        pass

    assert tmp_path.exists()


def test_a_folder_in_use_is_refused_and_left_as_it_is(tmp_path: Path):
    (tmp_path / "kubeconfig").write_text("of another demo")

    with (
        pytest.raises(Unusable, match=r"is not empty \(kubeconfig\).*--state-dir"),
        state_folder(tmp_path),
    ):
        pass

    assert (tmp_path / "kubeconfig").read_text() == "of another demo"


def test_a_path_too_long_for_a_socket_is_refused_before_anything_is_made_there(tmp_path: Path):
    deep = tmp_path / ("x" * 100)

    with pytest.raises(Unusable, match="too long"), state_folder(deep):
        pass

    assert not deep.exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("x")

    with pytest.raises(Unusable, match="cannot use .*file"), state_folder(tmp_path / "file"):
        pass
