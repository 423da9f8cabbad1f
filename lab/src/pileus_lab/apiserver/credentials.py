"""Certificates, tokens and keys of a server, created at its first start and kept with its data."""

import os
import tempfile
from datetime import datetime
from pathlib import Path
from random import SystemRandom

import msgspec

from pileus.pki import Authority, Subject, signing_key
from pileus_lab.apiserver.sqlite import FILE, Unusable

CREDENTIALS = "credentials.json"
_ALWAYS = ("localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default.svc")
_TOKEN_BYTES = 32


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """All PEM except the token. The key of the authority is not kept: nothing more is issued."""

    names: tuple[str, ...]
    authority: str
    server: str
    admin_certificate: str
    admin_key: str
    admin_token: str
    token_key: str

    def __repr__(self) -> str:
        return f"Credentials(names={self.names!r})"


def make(host: str, now: datetime) -> Credentials:
    names = tuple(dict.fromkeys((*_ALWAYS, host)))
    authority = Authority("pileus-apiserver", now=now)
    server = authority.issue(Subject(common_name="kube-apiserver", names=names), now=now)
    masters = Subject(common_name="kubernetes-admin", organizations=("system:masters",))
    admin = authority.issue(masters, now=now)
    return Credentials(
        names=names,
        authority=authority.certificate.decode(),
        server=(server.certificate + server.key).decode(),
        admin_certificate=admin.certificate.decode(),
        admin_key=admin.key.decode(),
        admin_token=SystemRandom().randbytes(_TOKEN_BYTES).hex(),
        token_key=signing_key()[0].decode(),
    )


def keep(folder: Path, host: str, now: datetime) -> Credentials:
    """Returns the credentials in the folder; creates them if it has none. Raises `Unusable`."""
    path = folder / CREDENTIALS
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        known = msgspec.json.decode(path.read_bytes(), type=Credentials)
    except FileNotFoundError:
        known = make(host, now)
    except (OSError, msgspec.DecodeError) as error:
        raise Unusable(f"cannot read {path}: {error}") from error
    else:
        if not (folder / FILE).exists():
            told = f"{path} is of an earlier server, but its database {folder / FILE} is missing"
            raise Unusable(f"{told}: restore it, or remove {path} to start empty")
        if host in known.names:
            return known
        known = make(host, now)
    write_private(path, msgspec.json.encode(known))
    return known


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that only its owner can read, atomically. Raises `Unusable`."""
    try:
        handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(fresh).replace(path)
    except OSError as error:
        raise Unusable(f"cannot write {path}: {error}") from error
