"""The reference page of the flags is generated, and never behind the declarations."""

from tools import flags_reference

from pileus.app.settings import TABLE


def test_the_page_in_the_repository_is_what_the_declarations_say():
    shown = flags_reference.PAGE.read_text(encoding="utf-8")

    assert shown == flags_reference.page(), "run `make docs`"


def test_every_flag_has_its_row():
    rows = [line for line in flags_reference.page().splitlines() if line.startswith("| `")]

    assert sorted(row.split("`")[1].removeprefix("--") for row in rows) == sorted(
        flag.name for flag in TABLE
    )
    assert all(row.count(" | ") == 3 for row in rows)
