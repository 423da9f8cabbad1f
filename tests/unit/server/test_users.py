"""Whom a proxy's headers name."""

from multidict import CIMultiDict, CIMultiDictProxy

from pileus.server.users import HeaderNames, User, user_in


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_user_groups_and_extra_are_read_whatever_the_case():
    given = headers(
        ("X-Remote-User", "jane"),
        ("X-Remote-Group", "dev"),
        ("x-remote-group", "ops"),
        ("X-Remote-Extra-Scopes", "a"),
        ("X-Remote-Extra-Scopes", "b"),
        ("X-Remote-Extra-Acme.com%2fProject", "p"),
        ("X-Remote-Uid", "42"),
    )

    extra = (("acme.com/project", ("p",)), ("scopes", ("a", "b")))
    assert user_in(given, HeaderNames()) == User("jane", "", ("dev", "ops"), extra)
    assert user_in(given, HeaderNames(uid=("X-Remote-Uid",))) == User(
        "jane", "42", ("dev", "ops"), extra
    )


def test_the_first_header_that_names_a_user_counts():
    names = HeaderNames(username=("x-first", "x-second"))

    assert user_in(headers(("X-Second", "b"), ("X-First", "a")), names) == User("a")
    assert user_in(headers(("X-Second", "b"), ("X-First", "")), names) == User("b")


def test_groups_without_a_user_name_nobody():
    assert user_in(headers(("X-Remote-Group", "system:masters")), HeaderNames()) is None
