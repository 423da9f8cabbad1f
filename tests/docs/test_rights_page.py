"""The reference page of rights is what the declarations say."""

from tools import rights_reference

from pileus.app.registry import CONTROLLERS


def test_the_page_is_up_to_date():
    shown = rights_reference.PAGE.read_text(encoding="utf-8")

    assert shown == rights_reference.page(), "run `make docs`"


def test_every_controller_has_a_row():
    page = rights_reference.page()

    assert [each.canonical for each in CONTROLLERS.names if f":{each.canonical}`" not in page] == []
