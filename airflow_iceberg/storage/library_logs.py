"""What libraries write into their own debug logs, without the credentials in it.

Lives here: `redact_library_logs`, for the loggers that are known to show headers and addresses of requests. Not here:
our own messages, which never hold a credential (`fsspec_io`, and each catalog), and what Airflow masks in a task's log:
it knows the connection's secrets, but not what a catalog lends for an hour.
"""

from __future__ import annotations

import logging
import re
import traceback

# They show whole requests at the level DEBUG.
_LOGGERS = (
    *("botocore.auth", "botocore.endpoint", "botocore.hooks", "botocore.parsers", "botocore.httpsession"),
    *("aiobotocore.endpoint", "aiobotocore.httpsession", "urllib3.connectionpool", "webhdfs"),
    *("gcsfs", "gcsfs.credentials", "google.auth.transport.requests", "google.auth._default"),
    "azure.core.pipeline.policies.http_logging_policy",
)
_QUOTE = r"\\*['\"]?"
_SECRET_PARTS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # a header, as a dictionary shows it (in a document perhaps) or a line of its own; a parameter of an address
        rf"(x-amz-security-token(?:{_QUOTE}\s*[:=]\s*b?{_QUOTE}|%3D))[^'\"\\\s,;&]+",
        rf"(authorization{_QUOTE}\s*[:=]\s*b?{_QUOTE}(?:bearer|basic)\s+)[^'\"\\\s,;]+",
        r"(credential=)[^/\s]+",
        r"([?&](?:delegation|sig|access_token|token)=)[^'\"\\\s&]+",
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
        clean = _clean(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None:
            told = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            if (clean := _clean(told)) != told:
                record.exc_info, record.exc_text = None, clean
        return True


def _clean(text: str) -> str:
    for part in _SECRET_PARTS:
        text = part.sub(r"\1***", text)
    return text


_REDACTION = _Redaction()


def redact_library_logs() -> None:
    """Let the known loggers show no credentials; calling it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REDACTION)
