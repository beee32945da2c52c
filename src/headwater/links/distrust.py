"""Why a TLS connection failed, in words for the user or the node that made it, and what to do about it."""

import ssl
from typing import Final

# OpenSSL's codes for certificate errors (x509_vfy.h).
OTHER_AUTHORITY: Final = frozenset({2, 7, 18, 19, 20, 21})  # unknown issuer, or a known issuer's name with another key
_OTHER_PURPOSE: Final = 26
_OTHER_ADDRESS: Final = frozenset({62, 64})  # a host's name, an IP address
# OpenSSL takes the first bytes of an answer that is not TLS for a version and a length.
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG"})


def why_not_secure(failure: ssl.SSLError, host: str) -> str:
    """Return why there is no secure connection to a host, and what to do about it."""
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {_why_not_trusted(failure, host)}"
    if failure.reason in _NO_TLS:
        return (
            "what listens there speaks no TLS; it may have been started with --insecure: "
            "start it with --certs, or do without ours if it is on this machine"
        )
    return f"no secure connection ({failure.reason}); is our certificate of its cluster, and still valid?"


def _why_not_trusted(failure: ssl.SSLCertVerificationError, host: str) -> str:
    match failure.verify_code:
        case code if code in OTHER_AUTHORITY:
            return "it is of another cluster's authority than ours; come with certificates of its cluster"
        case code if code in _OTHER_ADDRESS:
            return (
                f"it does not name {host}; use an address that `headwater certs show` lists for it, "
                f"or issue one with `headwater certs node --address {host}`"
            )
        case code if code == _OTHER_PURPOSE:
            return "it is not one for nodes; nodes are started with what `headwater certs node` made"
    return f"{failure.verify_message}; set the clocks right, or renew it with `headwater certs renew`"
