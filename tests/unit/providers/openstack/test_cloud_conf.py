"""cloud.conf as a whole: values, warnings, and errors that name line, section, key and fix."""

from dataclasses import replace
from operator import attrgetter

import pytest

from pileus.cloud.errors import Misconfigured
from pileus.cloud.interface import ProviderConfig
from pileus.providers.openstack import config_checks
from pileus.providers.openstack.cloud_conf import CloudConf, read_cloud_conf
from pileus.providers.openstack.config import SECTIONS, LoadBalancerClass, OpenStackConfig, keys_of
from pileus.providers.openstack.identity import token_request
from pileus.providers.openstack.load import load
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
            '[LoadBalancer] lb-version: "v1" is not supported. Fix: lb-version = v2',
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
            "[Global]\nos-endpoint-type = intern",
            (
                '[Global] os-endpoint-type: unknown value "intern" (did you mean "internal"?). '
                "Fix: use one of public, internal, admin, publicURL, internalURL, adminURL"
            ),
        ),
        (
            "[Global]\nca-data = x!",
            "[Global] ca-data is not a CA in PEM, encoded with base64. Fix: base64 -w0 ca.pem",
        ),
        (
            "[Global]\nca-data = aGk=",
            "[Global] ca-data is not a CA in PEM, encoded with base64. Fix: base64 -w0 ca.pem",
        ),
        (
            "[Global]\nuser-id = x",
            "[Global] username is set, and user-id, too. Fix: remove one of them",
        ),
        (
            "[LoadBalancer]\nnode-selector = a b",
            (
                '[LoadBalancer] node-selector: "a b" is not a node selector such as '
                "pool=web,zone!=b,!spot"
            ),
        ),
        (
            "[LoadBalancer]\nlb-method = SOURCE_IP_PORT",
            (
                "[LoadBalancer] lb-method: lb-provider = amphora has no SOURCE_IP_PORT. "
                "Fix: lb-method = ROUND_ROBIN"
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
            "auth-url = http://k\napplication-credential-id = a",
            (
                "[Global] application-credential-secret is missing. Fix: set it, or remove "
                "application-credential-id and -name"
            ),
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
    """The Go manager ends with `lb-version = v1`, but only if load balancers are enabled."""
    text = "[LoadBalancer]\nenabled = false\nlb-version = v1\nlb-method = SOURCE_IP_PORT"
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
    conf = read(LOGIN + text)
    (warning,) = conf.located(config_checks.warnings(conf.config))
    assert words in warning
    assert warning.startswith("/etc/cloud.conf:")


CREDENTIAL = "application-credential-id = a\napplication-credential-secret = hunter2\n"
ODD: dict[str, tuple[str, str, dict[str, object]]] = {
    "insecure with a CA file that does not exist": (
        "[Global]\ntls-insecure = true\nca-file = /missing",
        "[Global] ca-file has no effect with tls-insecure. Fix: remove tls-insecure",
        {},
    ),
    "insecure with a CA": (
        "[Global]\ntls-insecure = true\nca-data = x!",
        "[Global] ca-data has no effect with tls-insecure. Fix: remove tls-insecure",
        {},
    ),
    "insecure in another spelling": (
        "[Global]\ntls-insecure = yes",
        '[Global] tls-insecure: "yes" is not true: false is used. Fix: tls-insecure = false',
        {"auth.tls_insecure": False},
    ),
    "certificate without key": (
        "[Global]\ncert-file = /missing",
        "[Global] cert-file has no effect without its key. Fix: set key-file",
        {},
    ),
    "key without certificate": (
        "[Global]\nkey-file = /missing",
        "[Global] key-file has no effect without its certificate. Fix: set cert-file",
        {},
    ),
    "password beside an application credential": (
        f"[Global]\n{CREDENTIAL}",
        (
            "[Global] application-credential-id has no effect: the password is used. "
            "Fix: remove one of them"
        ),
        {},
    ),
    "password beside a part of an application credential": (
        "[Global]\napplication-credential-name = a",
        (
            "[Global] application-credential-name has no effect: the password is used. "
            "Fix: remove one of them"
        ),
        {},
    ),
    "token beside a password": (
        "[Global]\ntoken = hunter2",
        "[Global] token has no effect: the password is used. Fix: remove one of them",
        {},
    ),
    "trustee without trust": (
        "[Global]\ntrustee-id = x\n",
        "[Global] trustee-id has no effect without a trust. Fix: set trust-id, or remove it",
        {},
    ),
    "timeout longer than delay": (
        "[LoadBalancer]\ncreate-monitor = yes\nmonitor-timeout = 9s",
        (
            "[LoadBalancer] monitor-timeout: 9s is longer than monitor-delay, and passed "
            "on: a check may begin before the last one ends. Fix: monitor-timeout = 5s"
        ),
        {"load_balancer.monitor_timeout": 9.0, "load_balancer.create_monitor": True},
    ),
    "fractions of seconds": (
        "[LoadBalancer]\ncreate-monitor\nmonitor-delay = 5500ms",
        (
            "[LoadBalancer] monitor-delay: Octavia takes whole seconds: 5s is used. Fix: "
            "monitor-delay = 5s"
        ),
        {},
    ),
    "too many retries": (
        "[LoadBalancer]\nmonitor-max-retries = 0x10",
        (
            "[LoadBalancer] monitor-max-retries: 16 is not in the range 1 to 10: 10 is used. Fix: "
            "monitor-max-retries = 10"
        ),
        {"load_balancer.monitor_max_retries": 10},
    ),
    "no retries": (
        "[LoadBalancer]\nmonitor-max-retries-down = 0",
        (
            "[LoadBalancer] monitor-max-retries-down: 0 is not in the range 1 to 10: 3 "
            "is used. Fix: monitor-max-retries-down = 3"
        ),
        {"load_balancer.monitor_max_retries_down": 3},
    ),
    "negative time limit": (
        "[Metadata]\nrequest-timeout = -5s",
        "[Metadata] request-timeout: -5s is negative: 1m0s is used. Fix: request-timeout = 1m0s",
        {"metadata.request_timeout": 60.0},
    ),
    "method of another provider": (
        "[LoadBalancer]\nlb-provider = ovn\nlb-method = ROUND_ROBIN",
        (
            "[LoadBalancer] lb-method: lb-provider = ovn has no ROUND_ROBIN: "
            "SOURCE_IP_PORT is used. Fix: lb-method = SOURCE_IP_PORT"
        ),
        {},
    ),
    "reference that is none": (
        "[LoadBalancer]\ndefault-tls-container-ref = cert",
        (
            '[LoadBalancer] default-tls-container-ref: "cert" is not a reference of '
            "Barbican: Services without an annotation of that name get no listeners. "
            "Fix: https://HOST/v1/containers/UUID or https://HOST/v1/secrets/UUID"
        ),
        {},
    ),
    "pattern of a class that no Service uses": (
        '[LoadBalancerClass "x"]\nfloating-subnet = ~(',
        (
            '[LoadBalancerClass "x"] floating-subnet: invalid pattern, new floating IPs cannot be '
            "created with it: missing ) (character 1 of ()"
        ),
        {},
    ),
    "order with a host": (
        "[Networking]\naddress-sort-order = 10.0.0.0/8, 10.1.2.3",
        (
            '[Networking] address-sort-order: "10.1.2.3" is not a CIDR and has no effect. Fix: '
            "address-sort-order = 10.0.0.0/8, fd00::/8"
        ),
        {},
    ),
    "section of the volume plugin": (
        "[BlockStorage]\nnode-volume-attach-limit = 300",
        (
            "[BlockStorage] node-volume-attach-limit: 300 is not in the range 1 to 256: "
            "256 is used. Fix: node-volume-attach-limit = 256"
        ),
        {"block_storage.node_volume_attach_limit": 256},
    ),
    "mistake in the section of the volume plugin": (
        "[BlockStorage]\nrescan-on-resize = maybe",
        (
            '[BlockStorage] rescan-on-resize: the default is used: "maybe" is not true '
            "or false. Fix: rescan-on-resize = false"
        ),
        {"block_storage.rescan_on_resize": False},
    ),
    "section of another program": (
        "[KeyManager]\nkey-id = x",
        "unknown section [KeyManager] is ignored",
        {},
    ),
}


@pytest.mark.parametrize(("text", "warning", "holds"), ODD.values(), ids=ODD)
def test_a_file_that_starts_the_go_manager_is_used_with_a_warning(text, warning, holds):
    loaded = load(ProviderConfig(path="/etc/cloud.conf", text=LOGIN + text))

    assert f": {warning}" in "\n".join(f"{one}\n" for one in loaded.warnings)
    assert all(one.startswith("/etc/cloud.conf:") for one in loaded.warnings)
    assert "hunter2" not in "".join(loaded.warnings)
    assert masked("".join(loaded.warnings)) == "".join(loaded.warnings)
    for name, value in holds.items():
        assert attrgetter(name)(loaded.config) == value


@pytest.mark.parametrize(
    "text",
    [
        "[LoadBalancer]\nlb-method =\n[Metadata]\nsearch-order =",
        "[LoadBalancer]\nmax-shared-lb = -1\nmax-shared-lb = 2",
        "[loadbalancer]\nCREATE-MONITOR = On\nmonitor-delay = 1.5m\nmonitor-delay = 5s",
        "[Metadata]\nsearch-order = metadataService , configDrive",
    ],
)
def test_unusual_spellings_need_no_warning(text):
    loaded = load(ProviderConfig(path="/etc/cloud.conf", text=LOGIN + text))

    assert loaded.warnings == ()
    assert loaded.config.load_balancer.lb_method == "ROUND_ROBIN"
    assert loaded.config.load_balancer.max_shared_lb == 2
    assert loaded.config.load_balancer.monitor_delay == 5.0
    assert "configDrive" in loaded.config.metadata.search_order


def test_the_variable_of_the_go_manager_without_a_meaning_here_is_reported():
    given = ProviderConfig(path="/etc/cloud.conf", text=LOGIN)
    environ = {"OCCM_WAIT_LB_ACTIVE_STEPS": "30"}
    (warning,) = load(replace(given, environ=environ)).warnings

    assert warning.startswith("environment variable OCCM_WAIT_LB_ACTIVE_STEPS has no effect: ")
    assert load(given).warnings == ()


def test_a_token_alone_is_a_warning_that_is_not_masked():
    text = "[Global]\nauth-url = http://k\ntoken = hunter2\ntenant-id = t"
    (warning,) = load(ProviderConfig(path="/etc/cloud.conf", text=text)).warnings

    assert masked(warning) == (
        "/etc/cloud.conf:3: [Global] token cannot be renewed. Fix: use an application credential"
    )


def test_a_password_is_used_before_an_application_credential_as_in_go():
    both = read(f"{LOGIN}{CREDENTIAL}").config.auth
    alone = read(f"[Global]\nauth-url = http://k\npassword = hunter2\n{CREDENTIAL}").config.auth

    assert token_request(both)["auth"]["identity"]["methods"] == ["password"]
    assert token_request(both)["auth"]["scope"]["project"]["name"] == "p"
    assert token_request(alone)["auth"]["identity"]["methods"] == ["application_credential"]


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
