"""Serving certificates: from files, from `--cert-dir`, or self-signed in memory."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path

from pileus.clock import Clock
from pileus.key_pair import KeyPair, Subject
from pileus.server.errors import BadCertificate
from pileus.server.settings import ServingOptions
from pileus.server.tls import NamedPair, Tls
from pileus.telemetry.log import Log

log = Log(__name__)


LOOK_EVERY = 1.0
"""Seconds between two checks of the files."""
LONGEST_CREATION = 30.0
"""Seconds after which a certificate is created in this process instead."""


class SelfSigned:
    """A self-signed pair that another process creates, while this one continues to start.

    The library for it would stay in memory for as long as this process runs.
    """

    def __init__(self, subject: Subject, now: datetime) -> None:
        self._subject, self._now = subject, now
        self._creator: subprocess.Popen[bytes] | None = None
        self._pair: KeyPair | None = None
        self._lock = threading.Lock()
        try:
            self._creator = subprocess.Popen(
                [sys.executable, "-m", "pileus.pki"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:  # such as a limit on processes
            log.info("Creating the certificate in this process", v=1, err=error)

    def pair(self) -> KeyPair:
        """Returns the pair; waits until it is created. May be called in any thread."""
        with self._lock:
            if self._pair is None:
                self._pair = self._received() or self._created_here()
            return self._pair

    def close(self) -> None:
        """End the other process if its pair was not needed."""
        with self._lock:
            creator, self._creator = self._creator, None
        if creator is not None:
            with creator:
                creator.kill()

    def _received(self) -> KeyPair | None:
        begun, self._creator = self._creator, None
        if begun is None:
            return None
        subject = self._subject
        asked = {"common_name": subject.common_name, "names": subject.names}
        request = json.dumps({**asked, "now": self._now.isoformat()}).encode()
        with begun as creator:
            try:
                answer = json.loads(creator.communicate(request, timeout=LONGEST_CREATION)[0])
                return KeyPair(answer["certificate"].encode(), answer["key"].encode())
            except (subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
                creator.kill()
                log.info("Creating the certificate in this process", v=1, err=error)
                return None

    def _created_here(self) -> KeyPair:
        from pileus.pki import self_signed  # noqa: PLC0415 -- 11 MB that are not needed otherwise

        return self_signed(self._subject, now=self._now)


class Certificates:
    """The key pairs to serve with, reloaded when their files change."""

    def __init__(self, options: ServingOptions, clock: Clock) -> None:
        """Create a self-signed pair if none is given; it is stored in `cert_dir`, if that is set.

        Raises `BadCertificate` with the file name.
        """
        self._files = [(pair.certificate_file, pair.key_file, pair.names) for pair in options.sni]
        self._memory: SelfSigned | None = None
        self._shown: tuple[NamedPair, ...] = ()
        self._complaint = ""
        if options.cert_file or options.key_file:
            if not (options.cert_file and options.key_file):
                raise BadCertificate("--tls-cert-file and --tls-private-key-file go together")
            self._files.insert(0, (options.cert_file, options.key_file, ()))
        elif options.cert_dir:
            certificate, key = _kept(options, clock)
            self._files.insert(0, (str(certificate), str(key), ()))
        else:
            self._memory = SelfSigned(subject(options.bind_address), clock.now())

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()

    @property
    def may_be_invalid(self) -> bool:
        """Whether there are pairs in files."""
        return bool(self._files)

    def read(self) -> tuple[NamedPair, ...]:
        """Returns the current pairs, the default one first. Raises `BadCertificate`."""
        read = tuple(
            NamedPair(KeyPair(_read(certificate), _read(key)), f"{certificate} with {key}", names)
            for certificate, key, names in self._files
        )
        if self._memory is None:
            return read
        return (NamedPair(self._memory.pair(), "self-signed certificate"), *read)

    def show(self, tls: Tls) -> None:
        """Use the current pairs if they changed. Raises `BadCertificate`."""
        pairs = self.read()
        if pairs != self._shown:
            tls.use_pairs(pairs)
            self._shown = pairs
            log.info("Serving certificates loaded", sources=[pair.source for pair in pairs])
        self._complaint = ""

    def refresh(self, tls: Tls) -> None:
        """Use the current pairs; if they are invalid, keep the old ones and log it once."""
        try:
            self.show(tls)
        except BadCertificate as error:
            if str(error) != self._complaint:
                log.error("Keeping the previous serving certificates", error=error)
            self._complaint = str(error)

    async def follow(self, tls: Tls) -> None:
        """Reload the pairs when the files change, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await asyncio.to_thread(self.refresh, tls)


def subject(bind_address: str) -> Subject:
    """Returns the names in a self-signed certificate: localhost, and the bound address."""
    bound = () if ip_address(bind_address).is_unspecified else (bind_address,)
    names = dict.fromkeys(("localhost", "127.0.0.1", *bound))
    return Subject(common_name=f"localhost@{bind_address}", names=tuple(names))


def _kept(options: ServingOptions, clock: Clock) -> tuple[Path, Path]:
    folder = Path(options.cert_dir)
    certificate, key = (folder / f"{options.pair_name}.{suffix}" for suffix in ("crt", "key"))
    if certificate.exists() and key.exists():
        return certificate, key
    pair = SelfSigned(subject(options.bind_address), clock.now()).pair()
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        _write(key, pair.key, mode=0o600)
        _write(certificate, pair.certificate, mode=0o644)
    except OSError as error:
        raise BadCertificate(
            f"--cert-dir={folder}: cannot keep a certificate: {error.strerror}; name a folder that "
            "can be written, or give --tls-cert-file and --tls-private-key-file"
        ) from error
    return certificate, key


def _write(path: Path, content: bytes, *, mode: int) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadCertificate(
            f"{path}: {error.strerror or error}; check --tls-cert-file, --tls-private-key-file "
            "and --tls-sni-cert-key"
        ) from error
