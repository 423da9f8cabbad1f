"""What a source says is read with care: what is odd is told, never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.model import SshKey
from pileus.controllers.ssh_keys.authorized_keys import ALGORITHMS, parse
from pileus.controllers.ssh_keys.settings import BadLocation, Location, located
from tests.unit.controllers.ssh_keys.keys import PRIVATE, key, public_key

JANE = public_key("jane")


def test_an_entry_is_a_user_with_lines_as_in_authorized_keys():
    text = f"# team\n\n{JANE} jane@laptop\n  {public_key('x')}  \n"

    desired = parse({"ops": text.encode()})

    assert desired.keys == {SshKey("ops", JANE), key("ops", "x")}
    assert desired.is_complete


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_of_openssh_is_read(algorithm: str):
    text = public_key("x", algorithm)

    assert parse({"ops": text.encode()}).keys == {SshKey("ops", text)}


@pytest.mark.parametrize(
    ("user", "text", "told"),
    [
        pytest.param("ops", "hello", "line 1: does not start with a public key", id="no key"),
        pytest.param("ops", f'from="10.*" {JANE}', "options, certificates", id="options"),
        pytest.param("ops", "ssh-ed25519", "not a valid key", id="no body"),
        pytest.param("ops", JANE[:-9], "is it truncated", id="cut"),
        pytest.param("ops", JANE.replace("ed25519 ", "rsa "), "not a valid key", id="another type"),
        pytest.param("ops", "", 'set it to "none"', id="empty"),
        pytest.param("ops", "# soon\n", 'set it to "none"', id="comment only"),
        pytest.param("../x", JANE, "not a valid user name", id="user"),
        pytest.param("ops", b"\xff\xfe", "UTF-8", id="bytes"),
        pytest.param("ops", PRIVATE, "PRIVATE key", id="private key"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_place_and_stops_withdrawals(user, text, told):
    raw = text if isinstance(text, bytes) else text.encode()

    desired = parse({user: raw, "other": public_key("other").encode()})

    assert desired.keys == {key("other")}, "the rest is used"
    assert not desired.is_complete
    assert told in desired.problems[0]
    assert f'"{user}"' in desired.problems[0]


def test_beside_a_private_key_nothing_of_the_entry_is_used():
    desired = parse({"ops": f"{JANE}\n{PRIVATE}".encode()})

    assert not desired.keys
    assert "everyone who can read the source knows" in desired.problems[0]


def test_no_entry_at_all_is_no_wish_to_withdraw_everything():
    assert not parse({}).is_complete


def test_none_is_the_explicit_way_to_want_no_key():
    desired = parse({"ops": b" none \n"})

    assert desired.is_complete
    assert not desired.keys


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(st.dictionaries(words, st.one_of(words.map(str.encode), st.binary(max_size=60))))
def test_nothing_of_what_cannot_be_read_is_ever_shown(entries: dict[str, bytes]):
    secret = "s3cr3t-W0rd"

    desired = parse({user: text + f"\n{secret}".encode() for user, text in entries.items()})

    assert not desired.is_complete
    assert secret not in repr(desired)


@given(st.sets(st.text("abc", min_size=1, max_size=8), min_size=1), st.randoms())
def test_order_and_comments_do_not_matter(seeds: set[str], chance):
    lines = [f"{public_key(seed)} someone" for seed in seeds]
    chance.shuffle(lines)

    desired = parse({"ops": "\n".join(lines).encode()})

    assert desired.keys == {SshKey("ops", public_key(seed)) for seed in seeds}
    assert desired.is_complete


def test_a_fingerprint_is_the_one_that_ssh_keygen_shows():
    known = (
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl github"
    )

    (found,) = parse({"git": known.encode()}).keys

    assert found.fingerprint == "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU"


def test_a_location_names_an_object_or_a_file():
    assert located("configmap:ops/keys") == Location("ConfigMap", "ops", "keys")
    assert str(located("secret:ops/keys")) == "Secret ops/keys"
    assert located("file:/etc/keys.yaml").name == "/etc/keys.yaml"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("confgmap:a/b", 'did you mean "configmap"'),
        ("configmap:keys", "configmap:NAMESPACE/NAME"),
        ("secret:a/b/c", "secret:NAMESPACE/NAME"),
        ("secret:A/b", "secret:NAMESPACE/NAME"),
        ("file:", "has no path"),
        ("/etc/keys", "is not a source"),
    ],
)
def test_a_location_that_is_none_is_refused(text: str, told: str):
    with pytest.raises(BadLocation, match=told):
        located(text)
