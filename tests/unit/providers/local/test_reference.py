from tools import local_cloud_reference


def test_the_page_is_as_the_declarations_have_it():
    shown = local_cloud_reference.PAGE.read_text(encoding="utf-8")

    assert shown == local_cloud_reference.page(), "run `make docs`"
    assert "<!-- FILE -->" not in shown
    assert "| `instances create` |" in shown
