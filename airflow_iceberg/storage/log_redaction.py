"""What libraries write into their own debug logs, without the credentials in it.

Lives here: `redact_library_logs`, for the loggers that are known to show headers and addresses of requests. Not here:
our own messages, which never hold a credential (`fsspec_io`, and each catalog), and what Airflow masks in a task's log:
it knows the connection's secrets, but not what a catalog lends for an hour.
"""

from __future__ import annotations

import logging
import re

# They show whole requests at the level DEBUG.
_LOGGERS = (
    *("botocore.auth", "botocore.endpoint", "botocore.hooks", "botocore.parsers", "botocore.httpsession"),
    *("aiobotocore.endpoint", "aiobotocore.httpsession", "urllib3.connectionpool", "webhdfs"),
    *("gcsfs", "gcsfs.credentials", "google.auth.transport.requests", "google.auth._default"),
    "azure.core.pipeline.policies.http_logging_policy",
)
_SECRET_PARTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # a header, as a dictionary shows it or a line of its own, and as a parameter of an address
        r"(x-amz-security-token(?:['\"]?\s*[:=]\s*b?['\"]?|%3D))[^'\"\s,;&]+",
        r"(authorization['\"]?\s*[:=]\s*b?['\"]?(?:bearer|basic)\s+)[^'\"\s,;]+",
        r"(credential=)[^/\s]+",
        r"([?&](?:delegation|sig|access_token|token)=)[^'\"\s&]+",
        # the answer to a login
        r"(['\"]?(?:access_?token|refresh_?token|id_?token|SessionToken|SecretAccessKey)['\"]?\s*:\s*['\"])[^'\"]+",
        r"(<(?:SessionToken|SecretAccessKey)>)[^<]+",
    )
)


class _Redaction(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a message that does not fit its arguments is the library's own affair
            return True
        clean = text
        for part in _SECRET_PARTS:
            clean = part.sub(r"\1***", clean)
        if clean != text:
            record.msg, record.args = clean, ()
        return True


_REDACTION = _Redaction()


def redact_library_logs() -> None:
    """Let the known loggers show no credentials; calling it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REDACTION)
