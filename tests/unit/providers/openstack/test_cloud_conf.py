"""cloud.conf as a whole: values, warnings, and errors that name line, section, key and fix."""

import pytest

from pileus.cloud.errors import Misconfigured
from pileus.providers.openstack import config_checks
from pileus.providers.openstack.cloud_conf import CloudConf, read_cloud_conf
from pileus.providers.openstack.config import SECTIONS, LoadBalancerClass, OpenStackConfig, keys_of
from pileus.telemetry.mask import masked

LOGIN = """[Global]
auth-url = http://keystone/v3
username = u
password = hunter2
user-domain-name = Default
tenant-name = p
tenant-domain-name = Default
"""


def read(text: str) -> CloudConf:
    conf = read_cloud_conf(text, "/etc/cloud.conf")
    conf.refuse(config_checks.problems(conf.config))
    return conf


def error_in(text: str) -> str:
    with pytest.raises(Misconfigured) as error:
        read(text)
    assert "hunter2" not in str(error.value)
    return str(error.value)


def test_an_empty_file_has_the_defaults():
    assert read_cloud_conf("", "x").config == OpenStackConfig()


def test_every_key_is_read_whatever_its_case():
    lines: list[str] = []
    values = {"str": "x", "bool": "true", "int": "7", "float": "7s", "tuple": "x"}
    for name, section in SECTIONS.items():
        lines.append(f"[{name.upper()}]")
        for key in keys_of(section):
            value = key.known.values[0] if key.known else values[type(key.default).__name__]
            lines.append(f"{key.name.upper()} = {value}")
    conf = read_cloud_conf("\n".join(lines), "x")
    assert conf.warnings == ()
    assert len(conf.set_at) == sum(len(keys_of(each)) for each in SECTIONS.values())
    assert conf.config.load_balancer.monitor_delay == 7.0
    assert conf.config.networking.public_network_name == ("x",)
    assert conf.config.auth.tls_insecure is True


def test_lists_are_repeated_keys_and_a_key_alone_empties_them():
    conf = read(f"{LOGIN}[Networking]\npublic-network-name=a\npublic-network-name=b\n")
    assert conf.config.networking.public_network_name == ("a", "b")
    conf = read(f"{LOGIN}[Networking]\npublic-network-name=a\npublic-network-name\n")
    assert conf.config.networking.public_network_name == ()


def test_the_last_of_several_values_and_sections_counts():
    text = f"{LOGIN}[LoadBalancer]\nsubnet-id=a\n[Route]\n[LoadBalancer]\nsubnet-id=b\n"
    assert read(text).config.load_balancer.subnet_id == "b"


def test_classes_are_subsections():
    text = f'{LOGIN}[LoadBalancerClass "in"]\nsubnet-id=a\n[LoadBalancerClass "out"]\n'
    assert read(text).config.classes == {
        "in": LoadBalancerClass(subnet_id="a"),
        "out": LoadBalancerClass(),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("create-monitor", True),
        ("create-monitor = yes", True),
        ("create-monitor = ON", True),
        ("create-monitor = 1", True),
        ("create-monitor = No", False),
        ("create-monitor = 0", False),
    ],
)
def test_flags_are_read_as_go_reads_them(text, value):
    conf = read_cloud_conf(f"[LoadBalancer]\n{text}", "x")
    assert conf.config.load_balancer.create_monitor is value


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            "[LoadBalancer]\nflaoting-network-id = x",
            (
                '/etc/cloud.conf:9: [LoadBalancer] unknown key "flaoting-network-id" is ignored '
                '(did you mean "floating-network-id"?)'
            ),
        ),
        (
            "[Networking]\nrouter-id = x",
            (
                '/etc/cloud.conf:9: [Networking] unknown key "router-id" is ignored '
                "(it belongs to [Route])"
            ),
        ),
        (
            "[LoadBalancer]\nuse-octavia = true",
            "/etc/cloud.conf:9: [LoadBalancer] use-octavia has no effect any more: remove it",
        ),
        (
            "[LoadBalancer]\nlb-type = x",
            "/etc/cloud.conf:9: [LoadBalancer] lb-type has no effect any more: remove it",
        ),
        (
            "[BlockStorage]\nbs-version = v2",
            "/etc/cloud.conf:9: [BlockStorage] bs-version has no effect any more: remove it",
        ),
        (
            "[BlockStorage]\ntrust-device-path = false",
            "/etc/cloud.conf:9: [BlockStorage] trust-device-path has no effect any more: remove it",
        ),
        (
            "[LoadBalancers]\nlb-method = x",
            (
                "/etc/cloud.conf:8: unknown section [LoadBalancers] is ignored "
                '(did you mean "LoadBalancer"?)'
            ),
        ),
        (
            '[Global "second"]\npassword = x',
            '/etc/cloud.conf:8: [Global "second"] is ignored: use [Global]',
        ),
        (
            "[LoadBalancerClass]\nsubnet-id = x",
            (
                "/etc/cloud.conf:8: [LoadBalancerClass] is ignored: give it a name, "
                '[LoadBalancerClass "NAME"]'
            ),
        ),
    ],
)
def test_unknown_and_removed_keys_are_ignored_with_a_warning(text, warning):
    conf = read(LOGIN + text)
    assert conf.warnings == (warning,)
    assert conf.config == read(LOGIN).config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[LoadBalancer]\nmonitor-delay = 5",
            '[LoadBalancer] monitor-delay: missing unit in duration "5". Fix: monitor-delay = 5s',
        ),
        (
            "[Metadata]\nrequest-timeout = soon",
            '[Metadata] request-timeout: invalid duration "soon". Fix: request-timeout = 1m0s',
        ),
        (
            "[LoadBalancer]\ncreate-monitor = maybe",
            (
                '[LoadBalancer] create-monitor: "maybe" is not true or false. '
                "Fix: create-monitor = false"
            ),
        ),
        (
            "[LoadBalancer]\nmonitor-max-retries = 11",
            (
                "[LoadBalancer] monitor-max-retries: 11 is not in the range 1 to 10. "
                "Fix: monitor-max-retries = 1"
            ),
        ),
        (
            "[LoadBalancer]\nmonitor-max-retries-down = x",
            (
                '[LoadBalancer] monitor-max-retries-down: "x" is not a whole number. '
                "Fix: monitor-max-retries-down = 3"
            ),
        ),
        (
            "[LoadBalancer]\nsubnet-id",
            '[LoadBalancer] subnet-id: the value is missing. Fix: write "subnet-id = VALUE"',
        ),
        (
            "[LoadBalancer]\nlb-version = v1",
            ('[LoadBalancer] lb-version: unknown value "v1". Fix: lb-version = v2'),
        ),
        (
            "[LoadBalancer]\nlb-method = ROUND_ROBBI",
            (
                '[LoadBalancer] lb-method: unknown value "ROUND_ROBBI" (did you mean '
                '"ROUND_ROBIN"?). '
                "Fix: use one of ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP, SOURCE_IP_PORT"
            ),
        ),
        (
            "[Global]\ntls-insecure = yes",
            '[Global] tls-insecure: "yes" is not true or false. Fix: tls-insecure = false',
        ),
        (
            "[Global]\nos-endpoint-type = intern",
            (
                '[Global] os-endpoint-type: unknown value "intern" (did you mean "internal"?). '
                "Fix: use one of public, internal, admin, publicURL, internalURL, adminURL"
            ),
        ),
        ("[Global]\ncert-file = /c", "[Global] cert-file needs its key. Fix: set key-file"),
        ("[Global]\nkey-file = /k", "[Global] key-file needs its certificate. Fix: set cert-file"),
        (
            "[Global]\nca-data = x!",
            "[Global] ca-data is not a CA in PEM, encoded with base64. Fix: base64 -w0 ca.pem",
        ),
        (
            "[Global]\nca-data = aGk=",
            "[Global] ca-data is not a CA in PEM, encoded with base64. Fix: base64 -w0 ca.pem",
        ),
        (
            "[Global]\nca-file = /c\nca-data = aGk=",
            "[Global] ca-data: excludes ca-file. Fix: remove one of them",
        ),
        (
            "[Global]\nca-data = aGk=\ntls-insecure = true",
            "[Global] tls-insecure: excludes ca-data. Fix: remove tls-insecure",
        ),
        (
            "[Global]\nca-file = /c\ntls-insecure = true",
            "[Global] tls-insecure: excludes ca-file. Fix: remove tls-insecure",
        ),
        (
            "[Global]\nuser-id = x",
            "[Global] username is set, and user-id, too. Fix: remove one of them",
        ),
        (
            "[Global]\ntrustee-id = x",
            "[Global] trustee-id needs a trust. Fix: set trust-id, or remove it",
        ),
        (
            "[Global]\napplication-credential-id = x",
            (
                "[Global] application-credential-secret is missing. Fix: set it, or remove "
                "application-credential-id and -name"
            ),
        ),
        (
            "[Global]\napplication-credential-id = x\napplication-credential-secret = y",
            (
                "[Global] password is set, and an application credential, too. "
                "Fix: remove one of them"
            ),
        ),
        (
            "[LoadBalancer]\nlb-provider = ovn\nlb-method = ROUND_ROBIN",
            (
                "[LoadBalancer] lb-method: lb-provider = ovn has no ROUND_ROBIN. "
                "Fix: lb-method = SOURCE_IP_PORT"
            ),
        ),
        (
            "[LoadBalancer]\ncreate-monitor\nmonitor-timeout = 9s",
            (
                "[LoadBalancer] monitor-timeout: 9s is longer than monitor-delay. "
                "Fix: monitor-timeout = 5s"
            ),
        ),
        (
            "[LoadBalancer]\ncreate-monitor\nmonitor-delay = 5500ms",
            (
                "[LoadBalancer] monitor-delay: Octavia takes whole seconds, 1 s at least. "
                "Fix: monitor-delay = 5s"
            ),
        ),
        (
            "[LoadBalancer]\ndefault-tls-container-ref = cert",
            (
                '[LoadBalancer] default-tls-container-ref: "cert" is not a reference of Barbican. '
                "Fix: https://HOST/v1/containers/UUID or https://HOST/v1/secrets/UUID"
            ),
        ),
        (
            "[LoadBalancer]\nnode-selector = a b",
            (
                '[LoadBalancer] node-selector: "a b" is not a node selector such as '
                "pool=web,zone!=b,!spot"
            ),
        ),
        (
            '[LoadBalancerClass "x"]\nfloating-subnet = ~(',
            (
                '[LoadBalancerClass "x"] floating-subnet: invalid pattern: '
                "missing ) (character 1 of ()"
            ),
        ),
        (
            "[Networking]\naddress-sort-order = 10.0.0.0/8, x",
            (
                '[Networking] address-sort-order: "x" is not a CIDR. '
                "Fix: address-sort-order = 10.0.0.0/8, fd00::/8"
            ),
        ),
        (
            "[Metadata]\nsearch-order = configdrive",
            (
                '[Metadata] search-order: unknown value "configdrive" (did you mean '
                '"configDrive"?). '
                "Fix: use one of configDrive,metadataService, metadataService,configDrive, "
                "configDrive, metadataService"
            ),
        ),
    ],
)
def test_a_wrong_value_is_an_error_with_its_place_and_the_fix(text, message):
    error = error_in(LOGIN + text)
    where, _, found = error.partition(": ")
    assert found.split("; ")[0] == message
    assert where.startswith("/etc/cloud.conf")


def test_an_error_names_the_line():
    assert error_in(f"{LOGIN}\n[LoadBalancer]\nmonitor-delay = 5").startswith(
        "/etc/cloud.conf:10: "
    )


def test_all_errors_are_reported_at_once():
    text = "[LoadBalancer]\nmonitor-delay = 5\nmonitor-timeout = 3\n"
    assert error_in(text).count("missing unit") == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "[Global] auth-url is missing. Fix: auth-url = https://HOST:5000/v3"),
        (
            "auth-url = keystone",
            '[Global] auth-url: "keystone" is not a URL. Fix: auth-url = https://HOST:5000/v3',
        ),
        (
            "auth-url = http://k",
            (
                "[Global] username is missing. Fix: set username, user-id, "
                "application-credential-id or token"
            ),
        ),
        (
            "auth-url = http://k\nusername = u\npassword = p",
            "[Global] username needs a domain. Fix: user-domain-name = Default",
        ),
        (
            "auth-url = http://k\nuser-id = u\npassword = p\ntenant-name = t",
            "[Global] tenant-name needs a domain. Fix: tenant-domain-name = Default",
        ),
        (
            "auth-url = http://k\nuser-id = u\ntenant-id = t",
            "[Global] password is missing. Fix: set password, or use an application credential",
        ),
        (
            (
                "auth-url = http://k\napplication-credential-name = a\n"
                "application-credential-secret = s"
            ),
            (
                "[Global] application-credential-name needs its user. Fix: set user-id, or "
                "username and user-domain-name"
            ),
        ),
        (
            (
                "auth-url = http://k\napplication-credential-name = a\n"
                "application-credential-secret = s\nusername = u"
            ),
            "[Global] username needs a domain. Fix: user-domain-name = Default",
        ),
        (
            "auth-url = http://k\napplication-credential-secret = s",
            (
                "[Global] application-credential-secret has no application credential. "
                "Fix: set application-credential-id"
            ),
        ),
        (
            (
                "auth-url = http://k\ntrust-id = x\napplication-credential-id = a\n"
                "application-credential-secret = s"
            ),
            "[Global] trust-id: excludes an application credential. Fix: remove one of them",
        ),
    ],
)
def test_missing_credentials_are_named(text, message):
    assert message in error_in(f"[Global]\n{text}")


@pytest.mark.parametrize(
    "text",
    [
        "user-id = u\npassword = p\ntenant-id = t",
        "username = u\ndomain-name = d\npassword = p\ntenant-name = t",
        "user-id = u\npassword = p",
        "application-credential-id = a\napplication-credential-secret = s",
        "application-credential-name = a\napplication-credential-secret = s\nuser-id = u",
        "trust-id = t\ntrustee-id = u\ntrustee-password = p",
        "trust-id = t\nuser-id = u\npassword = p",
        "token = t\ntenant-id = t",
    ],
)
def test_every_kind_of_credentials_is_accepted(text):
    read(f"[Global]\nauth-url = http://k\n{text}")


def test_checks_of_load_balancers_do_not_matter_when_they_are_disabled():
    text = "[LoadBalancer]\nenabled = false\nlb-provider = ovn\nlb-method = ROUND_ROBIN"
    assert read(LOGIN + text).config.load_balancer.enabled is False


def test_unusual_intervals_of_monitors_do_not_matter_without_monitors():
    assert read(f"{LOGIN}[LoadBalancer]\nmonitor-timeout = 9s").warnings == ()


def test_ovn_distributes_by_source_ip_and_port_if_nothing_else_is_set():
    conf = read(f"{LOGIN}[LoadBalancer]\nlb-provider = ovn")
    assert conf.config.load_balancer.lb_method == "SOURCE_IP_PORT"


def test_a_time_limit_of_zero_is_the_default():
    assert read(f"{LOGIN}[Metadata]\nrequest-timeout = 0").config.metadata.request_timeout == 60


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[LoadBalancer]\nlb-provider = acme", 'lb-provider: "acme" is not one of amphora'),
        ("[LoadBalancer]\ncontainer-store = x", 'container-store: "x" is not one of barbican'),
        ("[LoadBalancer]\nlb-provider=ovn\nflavor-id=x", "flavor-id has no effect with"),
        ("[Global]\ntls-insecure = true", "certificates of the cloud are not verified"),
    ],
)
def test_what_is_probably_not_meant_is_a_warning(text, words):
    (warning,) = config_checks.warnings(read(LOGIN + text).config)
    assert words in warning


def test_a_misspelt_section_or_key_is_named_where_something_is_missing():
    section = error_in("[Globl]\nauth-url = http://k")
    key = error_in("[Global]\nauth-ulr = http://k")

    assert "[Global] auth-url is missing" in section
    assert 'unknown section [Globl] is ignored (did you mean "Global"?)' in section
    assert "[Global] auth-url is missing" in key
    assert '[Global] unknown key "auth-ulr" is ignored (did you mean "auth-url"?)' in key


def test_a_missing_password_is_named_although_secrets_are_masked():
    text = masked(error_in("[Global]\nauth-url = http://k\nuser-id = u\ntenant-id = t"))

    assert "[Global] password is missing. Fix: set password" in text
