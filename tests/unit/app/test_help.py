"""Help shows every flag in groups and fits the terminal."""

import pytest

from pileus.app import help as help_text
from pileus.app.settings import TABLE


@pytest.mark.parametrize("columns", [0, 20, 60, 80, 200])
def test_every_flag_is_shown_once_except_the_deprecated(columns: int):
    text = help_text.usage("cloud-controller-manager", TABLE, columns)
    heads = [line for line in text.splitlines() if line.startswith(("      --", "  -"))]

    for flag in TABLE:
        shown = [head for head in heads if f"--{flag.name} " in f"{head} "[: len(flag.name) + 9]]
        assert len(shown) == (0 if flag.deprecated or flag.only_file else 1), flag.name


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_no_line_is_wider_than_the_terminal_unless_one_word_is(columns: int):
    text = help_text.full("cloud-controller-manager", TABLE, columns)

    assert not [
        line
        for line in text.splitlines()
        if len(line) > columns and " " in line.strip() and not line.startswith("      --")
    ]


def test_groups_are_titled_and_defaults_shown_as_in_the_go_program():
    text = help_text.full("cloud-controller-manager", TABLE, 0)

    assert "\nUsage:\n  cloud-controller-manager [flags]\n\nDebugging flags:\n\n" in text
    assert "\nCloud-node-lifecycle-controller flags:\n\n" in text
    assert text.index("Misc flags") < text.index("Pileus flags") < text.index("Global flags")
    assert '(default "kubernetes")' in text
    assert "(default 12h0m0s)" in text
    assert "(default [*])" in text
    assert "  -v, --v Level" in text
    assert "--version version[=true]" in text
    assert "\n      --leader-elect   " in text
