"""Entry points are found as importlib.metadata finds them, which costs more to import."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from pileus.entry_points import EntryPoint, entry_points

GROUP = "pileus.providers"


def distribution(folder: Path, name: str, text: str | None) -> None:
    info = folder / name
    info.mkdir(parents=True)
    if text is not None:
        (info / "entry_points.txt").write_text(text)


@pytest.mark.parametrize("group", ["console_scripts", GROUP, "pileus.commands", "pytest11"])
def test_the_same_are_found_as_by_the_standard_library(group: str):
    expected = {
        (each.name, each.value, each.dist.version)
        for each in metadata.entry_points(group=group)
        if each.dist
    }

    found = {(each.name, each.value, each.version) for each in entry_points(group)}

    assert found == expected
    assert found


def test_only_lines_of_the_group_are_read(tmp_path: Path):
    text = f"""
[console_scripts]
other = acme:main

[{GROUP}]
# old = acme:old
acme = acme.cloud:connect
  blue=acme.blue:connect [ sdk , http ]
nothing

[gui_scripts]
acme = acme:window
"""
    distribution(tmp_path, "Acme_Cloud.Two-1.2rc1.dist-info", text)

    found = tuple(entry_points(GROUP, [str(tmp_path)]))

    assert found == (
        EntryPoint("acme", "acme.cloud:connect", "acme-cloud-two", "1.2rc1"),
        EntryPoint("blue", "acme.blue:connect [ sdk , http ]", "acme-cloud-two", "1.2rc1"),
    )
    assert [each.extras for each in found] == [(), ("sdk", "http")]


def test_the_first_folder_with_a_distribution_counts(tmp_path: Path):
    text = f"[{GROUP}]\nacme = acme:connect\n"
    distribution(tmp_path / "a", "acme_cloud-2.0.dist-info", text)
    distribution(tmp_path / "b", "acme.cloud-1.0.dist-info", text)
    distribution(tmp_path / "b", "older-0.1-py3.11.egg-info", text.replace("acme", "older"))
    folders = [str(tmp_path / each) for each in ("absent", "a", "b")]

    found = [(each.name, each.version) for each in entry_points(GROUP, folders)]

    assert found == [("acme", "2.0"), ("older", "0.1")]


def test_other_files_and_distributions_without_entry_points(tmp_path: Path):
    distribution(tmp_path, "plain-1.dist-info", None)
    distribution(tmp_path, "odd", f"[{GROUP}]\nacme = acme:connect\n")
    distribution(tmp_path, "unnamed.dist-info", f"[{GROUP}]\nacme = acme:connect\n")
    (tmp_path / "old-1.egg-info").write_text("Name: old")
    (tmp_path / "archive.zip").touch()

    found = tuple(entry_points(GROUP, [str(tmp_path), str(tmp_path / "archive.zip")]))

    assert found == (EntryPoint("acme", "acme:connect", "unnamed", ""),)


def test_the_object_is_loaded():
    assert EntryPoint("a", "json:JSONDecoder.decode").load() is json.JSONDecoder.decode
    assert EntryPoint("a", "json").load() is json


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("json:absent", AttributeError),
        ("no_such_module:connect", ModuleNotFoundError),
        ("json loads", ValueError),
    ],
)
def test_what_cannot_be_loaded_raises(value: str, error: type[Exception]):
    with pytest.raises(error):
        EntryPoint("a", value).load()
