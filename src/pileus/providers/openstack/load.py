"""Loads the whole configuration from its files, and notices when they change.

The files are `cloud.conf`, `clouds.yaml` with its companions, and the TLS files that they name.
Everything here blocks: call it in a thread.
"""

import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path

from pileus.cloud.errors import Misconfigured
from pileus.cloud.http import Tls
from pileus.cloud.interface import ProviderConfig
from pileus.dataclass import dataclass
from pileus.providers.openstack import config_checks
from pileus.providers.openstack.cloud_conf import CloudConf, Problem, read_cloud_conf
from pileus.providers.openstack.clouds_yaml import merge_clouds_yaml
from pileus.providers.openstack.config import Auth, OpenStackConfig

MISSING = "missing"
WAIT_STEPS = "OCCM_WAIT_LB_ACTIVE_STEPS"
"""Variable of the Go program: how often it checks whether a load balancer is active."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and the content of the files that it came from."""

    config: OpenStackConfig
    tls: Tls
    tls_context: ssl.SSLContext | None = field(repr=False)
    """None if no TLS is used."""
    fingerprints: Mapping[str, str] = field(repr=False)
    """Hashes of the files, by path."""
    warnings: tuple[str, ...] = ()

    @property
    def auth(self) -> Auth:
        return self.config.auth

    def has_changed(self) -> bool:
        """Whether the content of a file is not what was loaded."""
        return any(_fingerprint(path) != known for path, known in self.fingerprints.items())


def load(given: ProviderConfig) -> Loaded:
    """Returns the configuration with what the provider was started with. Raises `Misconfigured`."""
    if given.text is None:
        raise Misconfigured(
            "--cloud-config is not set: provider openstack needs a configuration. "
            "Fix: --cloud-config=/etc/kubernetes/cloud.conf"
        )
    return _Loading(given).load(given.text)


def load_again(given: ProviderConfig) -> Loaded:
    """Returns the configuration with what the files contain now. Raises `Misconfigured`."""
    if not given.path:
        return load(given)
    text = _read(Path(given.path))
    if text is None:
        raise Misconfigured(f"{given.path} does not exist any more")
    return _Loading(given).load(text)


def check(text: str, path: str) -> tuple[str, ...]:
    """Checks cloud.conf by itself, without reading other files, and returns warnings.

    With use-clouds, most of [Global] comes from clouds.yaml and is not checked. Raises
    `Misconfigured`.
    """
    conf = read_cloud_conf(text, path)

    def own(found: Iterable[Problem]) -> Iterable[Problem]:
        if not conf.config.auth.use_clouds:
            return found
        return (each for each in found if each.section != "Global")

    conf.refuse(own(config_checks.problems(conf.config)))
    return (*conf.warnings, *conf.located(own(config_checks.warnings(conf.config))))


class _Loading:
    def __init__(self, given: ProviderConfig) -> None:
        self._given = given
        self._fingerprints: dict[str, str] = {}

    def load(self, text: str) -> Loaded:
        path = self._given.path or "cloud.conf"
        if self._given.path:
            self._fingerprints[self._given.path] = _hash(text.encode())
        conf = self._with_clouds_yaml(read_cloud_conf(text, path))
        conf.refuse(config_checks.problems(conf.config))
        auth = conf.config.auth
        for each in (auth.ca_file, auth.cert_file, auth.key_file):
            if each:
                self._fingerprints[each] = _fingerprint(each)
        tls = config_checks.tls_of(auth)
        return Loaded(
            self._with_environment(conf.config),
            tls,
            tls.context(),
            self._fingerprints,
            (
                *conf.warnings,
                *conf.located(config_checks.warnings(conf.config)),
                *_of_environment(self._given.environ),
            ),
        )

    def _with_clouds_yaml(self, conf: CloudConf) -> CloudConf:
        if not conf.config.auth.use_clouds:
            return conf
        merged = merge_clouds_yaml(conf.config.auth, self._given.environ, self._recorded)
        return replace(conf, config=replace(conf.config, auth=merged.auth))

    def _with_environment(self, config: OpenStackConfig) -> OpenStackConfig:
        return replace(config, is_regional=self._given.environ.get("OS_CCM_REGIONAL") == "true")

    def _recorded(self, path: Path) -> str | None:
        text = _read(path)
        self._fingerprints[str(path)] = MISSING if text is None else _hash(text.encode())
        return text


def _of_environment(environ: Mapping[str, str]) -> Iterator[str]:
    if environ.get(WAIT_STEPS):
        yield (
            f"environment variable {WAIT_STEPS} has no effect: nothing waits for a load balancer, "
            "it is checked again until it is active. Fix: remove it"
        )


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Misconfigured(f'cannot read "{path}": {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise Misconfigured(f'"{path}" is not UTF-8 text (byte {error.start})') from error


def _fingerprint(path: str) -> str:
    try:
        return _hash(Path(path).read_bytes())
    except OSError:
        return MISSING


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()
