"""Errors of the HTTPS port. Each message names the flag or file that causes it.

ServerError
├── CannotListen      address or port in use, not available or not permitted
├── BadOption         a flag with an unknown value, such as a cipher suite
├── BadCertificate    a certificate, key or CA file that cannot be read or used
└── LookupFailed      the cluster's authentication settings could not be read at start
"""


class ServerError(Exception):
    """Base class."""


class CannotListen(ServerError):
    pass


class BadOption(ServerError):
    pass


class BadCertificate(ServerError):
    pass


class LookupFailed(ServerError):
    pass
