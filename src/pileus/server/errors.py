"""Why the HTTPS port cannot be opened or served; each text names the flag or file at fault.

ServerError
├── CannotListen      address or port: taken, not ours, or not permitted
├── BadOption         a flag names what does not exist: a cipher suite, a version, …
├── BadCertificate    a certificate, key or CA file that cannot be read or does not fit
└── LookupFailed      the cluster's authentication settings could not be read at start
"""


class ServerError(Exception):
    """Base of everything that keeps the port from being served."""


class CannotListen(ServerError):
    pass


class BadOption(ServerError):
    pass


class BadCertificate(ServerError):
    pass


class LookupFailed(ServerError):
    pass
