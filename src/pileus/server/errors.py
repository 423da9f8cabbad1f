"""Why the HTTPS port cannot be opened or served; each text names the flag or file at fault.

ServerError
├── CannotListen      address or port: taken, not ours, or not permitted
├── BadTlsOption      a cipher suite, curve or version that does not exist
├── BadCertificate    a certificate, key or CA file that cannot be read or does not fit
└── LookupFailed      the cluster's authentication settings could not be read at start
"""


class ServerError(Exception):
    """Base of everything that keeps the port from being served."""


class CannotListen(ServerError):
    pass


class BadTlsOption(ServerError):
    pass


class BadCertificate(ServerError):
    pass


class LookupFailed(ServerError):
    pass
