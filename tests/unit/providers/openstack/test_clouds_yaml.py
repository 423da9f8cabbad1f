"""clouds.yaml: which file, which entry, which values, and that cloud.conf wins."""

from base64 import b64decode
from pathlib import Path

import pytest

from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import ProviderConfig
from pileus.providers.openstack.clouds_yaml import merge_clouds_yaml
from pileus.providers.openstack.config import Auth
from pileus.providers.openstack.load import load, load_again

ENTRY = """
clouds:
  north:
    region_name: R
    interface: internalURL
    cacert: /ca
    auth:
      auth_url: http://k
      username: u
      password: hunter2
      project_name: p
      user_domain_name: Default
      project_domain_name: Default
"""
HOME = {"HOME": "/home/me"}


def merged(files: dict[str, str], auth: Auth | None = None, **environ: str) -> Auth:
    def read(path: Path) -> str | None:
        return files.get(str(path))

    return merge_clouds_yaml(auth or Auth(), {**HOME, **environ}, read).auth


def cloud(name: str) -> str:
    return f"clouds: {{{name}: {{auth: {{auth_url: 'http://{name}'}}}}}}"


def test_all_values_of_an_entry_are_taken():
    assert merged({"clouds.yaml": ENTRY}) == Auth(
        auth_url="http://k",
        region="R",
        os_endpoint_type="internal",
        ca_file="/ca",
        username="u",
        password="hunter2",
        tenant_name="p",
        user_domain_name="Default",
        tenant_domain_name="Default",
    )


def test_a_ca_can_be_a_file_or_the_certificate_itself():
    pem = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    block = pem.replace("\n", "\n      ").rstrip(" ")
    auth = merged({"clouds.yaml": ENTRY.replace("cacert: /ca", f"cacert: |\n      {block}")})

    assert auth.ca_file == ""
    assert b64decode(auth.ca_data).decode() == pem


@pytest.mark.parametrize("given", [Auth(ca_file="/mine"), Auth(ca_data="bWluZQ==")])
def test_a_ca_of_cloud_conf_wins_in_either_form(given: Auth):
    auth = merged({"clouds.yaml": ENTRY}, given)

    assert (auth.ca_file, auth.ca_data) == (given.ca_file, given.ca_data), "one CA, not two"


def test_keys_of_cloud_conf_win():
    auth = merged(
        {"clouds.yaml": ENTRY}, Auth(region="S", user_id="v", tenant_id="q", password="x")
    )
    assert (auth.region, auth.password) == ("S", "x")
    assert (auth.user_id, auth.username) == ("v", ""), "one user, not two"
    assert (auth.tenant_id, auth.tenant_name) == ("q", "")


@pytest.mark.parametrize(
    ("auth", "environ", "expected"),
    [
        (Auth(clouds_file="/a.yaml"), {"OS_CLIENT_CONFIG_FILE": "/b.yaml"}, "http://a"),
        (Auth(), {"OS_CLIENT_CONFIG_FILE": "/b.yaml"}, "http://b"),
        (Auth(), {}, "http://here"),
    ],
)
def test_a_file_that_is_named_wins_over_the_usual_places(auth, environ, expected):
    files = {"/a.yaml": cloud("a"), "/b.yaml": cloud("b"), "clouds.yaml": cloud("here")}
    assert merged(files, auth, **environ).auth_url == expected


def test_the_usual_places_are_searched_in_their_order():
    places = ["clouds.yaml", "/home/me/.config/openstack/clouds.yaml", "/etc/openstack/clouds.yaml"]
    files = {place: cloud(f"c{number}") for number, place in enumerate(places)}
    for number, place in enumerate(places):
        assert merged(files).auth_url == f"http://c{number}"
        del files[place]
    with pytest.raises(Misconfigured, match=r"no clouds.yaml in clouds.yaml, /home/me/.*Fix: set"):
        merged(files)


def test_the_file_that_is_named_must_exist():
    with pytest.raises(Misconfigured, match="use-clouds"):
        merged({"clouds.yaml": ENTRY}, Auth(clouds_file="/nope"))


def test_the_entry_is_named_by_cloud_conf_then_the_environment_and_may_be_the_only_one():
    both = "clouds: {a: {auth: {auth_url: 'http://a'}}, bb: {auth: {auth_url: 'http://bb'}}}"
    files = {"clouds.yaml": both}
    assert merged(files, Auth(cloud="a"), OS_CLOUD="bb").auth_url == "http://a"
    assert merged(files, OS_CLOUD="bb").auth_url == "http://bb"
    with pytest.raises(Misconfigured, match=r"cloud is missing; .* has a, bb\. Fix: cloud = NAME"):
        merged(files)
    with pytest.raises(Misconfigured, match=r'no entry "b".*did you mean "bb".*use one of a, bb'):
        merged(files, Auth(cloud="b"))


def test_secrets_may_be_in_a_file_of_their_own():
    secure = "clouds: {north: {auth: {password: other, application_credential_id: a}}}"
    auth = merged({"clouds.yaml": ENTRY, "/etc/openstack/secure.yaml": secure})
    assert (auth.password, auth.application_credential_id, auth.username) == ("other", "a", "u")
    beside = {"/x/clouds.yaml": ENTRY, "/x/secure.yaml": secure}
    assert merged(beside, Auth(clouds_file="/x/clouds.yaml")).password == "other"


def test_a_profile_adds_what_the_entry_does_not_say():
    own = "clouds: {c: {profile: acme, auth: {username: u}}}"
    public = "public-clouds: {acme: {region_name: R, auth: {auth_url: 'http://acme', username: x}}}"
    auth = merged({"clouds.yaml": own, "clouds-public.yaml": public})
    assert (auth.auth_url, auth.region, auth.username) == ("http://acme", "R", "u")


def test_older_and_rarer_keys_are_known():
    text = """
clouds:
  c:
    regions: [{name: R}]
    endpoint_type: admin
    verify: false
    auth: {tenant_name: t, default_domain: d, user_id: 7}
"""
    assert merged({"clouds.yaml": text}) == Auth(
        region="R",
        os_endpoint_type="admin",
        tls_insecure=True,
        tenant_name="t",
        domain_id="d",
        user_id="7",
    )


@pytest.mark.parametrize("value", ["0123", "1_000", "0x1F", "yes", "true", "1.10", "2026-01-01"])
def test_values_are_texts_as_they_are_written(value: str):
    auth = merged({"clouds.yaml": ENTRY.replace("hunter2", value)})

    assert auth.password == value


@pytest.mark.parametrize("value", ["false", "False", "no", "off", '"false"'])
def test_verification_is_turned_off_in_every_spelling(value: str):
    assert merged({"clouds.yaml": f"{ENTRY}    verify: {value}\n"}).tls_insecure
    assert not merged({"clouds.yaml": f"{ENTRY}    verify: true\n"}).tls_insecure


def test_entries_may_be_merged_by_yaml_and_null_is_nothing():
    text = "base: &base {auth_url: 'http://k', password: ~}\nclouds: {a: {auth: {<<: *base}}}"
    auth = merged({"clouds.yaml": text})

    assert (auth.auth_url, auth.password) == ("http://k", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("clouds:\n  a: [\n  password: hunter2", "clouds.yaml:3: is not YAML"),
        ("clouds:\n  password: !hunter2", "clouds.yaml:2: is not YAML: .* the tag '…'. Fix: put"),
        ("clouds:\n  password: *hunter2", "clouds.yaml:2: is not YAML: .* undefined alias '…'"),
        ("clouds:\n  password: !it's-hunter2", "clouds.yaml:2: is not YAML: .* the tag '…'"),
        ("clouds:\n  a: [x\n  b: y", "clouds.yaml:3: .*: expected ',' or ']', but got ':'"),
        ("- a", 'expected a map with the key "clouds"'),
        ("", "cloud is missing; clouds.yaml has none"),
        ("clouds: x", "has none"),
    ],
)
def test_a_broken_file_is_named_without_its_content(text, words):
    with pytest.raises(Misconfigured, match=words) as error:
        merged({"clouds.yaml": text})
    assert "hunter2" not in str(error.value)


def test_all_files_are_watched_also_those_that_do_not_exist_yet(tmp_path):
    clouds, conf = tmp_path / "clouds.yaml", tmp_path / "cloud.conf"
    clouds.write_text(ENTRY.replace("    cacert: /ca\n", ""))
    text = f"[Global]\nuse-clouds\nclouds-file = {clouds}\n"
    conf.write_text(text)
    given = ProviderConfig(path=str(conf), text=text, environ={"HOME": str(tmp_path)})
    loaded = load(given)
    assert not loaded.has_changed()
    (tmp_path / "secure.yaml").write_text("clouds: {north: {auth: {password: rotated}}}")
    assert loaded.has_changed()
    again = load_again(given)
    assert again.auth.password == "rotated"
    assert not again.has_changed()
    clouds.write_text(ENTRY)
    assert again.has_changed()
    assert "rotated" not in repr(again)


def test_the_environment_decides_whether_provider_ids_have_a_region(tmp_path):
    text = "[Global]\nauth-url = http://k\nuser-id = u\npassword = p\n"
    for value, expected in (("true", True), ("false", False), ("", False)):
        given = ProviderConfig(text=text, environ={"OS_CCM_REGIONAL": value})
        assert load(given).config.is_regional is expected
