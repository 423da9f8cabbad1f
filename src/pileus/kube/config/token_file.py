"""A bearer token in a file that somebody renews: a pod's own, or a kubeconfig's `tokenFile`."""

from datetime import datetime, timedelta
from pathlib import Path

from pileus.clock import Clock
from pileus.kube.config.authorization import bearer
from pileus.kube.config.errors import reason
from pileus.kube.errors import CredentialsError
from pileus.pki import KeyPair
from pileus.telemetry.log import Log

READ_EVERY = timedelta(seconds=10)

_log = Log(__name__)


class TokenFile:
    """Read again when ten seconds have passed, and after the server has rejected the token."""

    def __init__(self, path: Path, clock: Clock, fallback: str = "") -> None:
        """Errors: `CredentialsError` if the file is unreadable and there is no fallback."""
        self._path = path
        self._clock = clock
        self._header = bearer(fallback, "token") if fallback else ""
        self._read_at: datetime | None = None
        self._refresh()

    async def header(self) -> str | None:
        now = self._clock.now()
        if self._read_at is None or abs(now - self._read_at) >= READ_EVERY:
            self._refresh()
        return self._header

    def issued(self) -> KeyPair | None:
        return None

    def rejected(self) -> None:
        self._read_at = None

    def _refresh(self) -> None:
        """Take the file's token; keep the last good one if there is none to be had."""
        try:
            self._header = bearer(self._token(), f"token file {self._path}")
        except CredentialsError as e:
            if not self._header:
                raise
            _log.error("No new token to be had; the last one stays", error=e)
        self._read_at = self._clock.now()

    def _token(self) -> str:
        try:
            return self._path.read_text("ascii").strip()
        except OSError as e:
            raise CredentialsError(f"cannot read token file {self._path}: {reason(e)}") from None
        except UnicodeDecodeError:
            raise CredentialsError(f"token file {self._path} holds no token: not ASCII") from None
