"""`redact_library_logs`: no credentials in the debug logs of libraries that show headers and addresses of requests.

Not here: what a secret is (`redaction`), and this package's own messages, which never hold a credential. Airflow masks
the connection's secrets in a task's log, but not the credentials that a catalog issues for an hour.
"""

from __future__ import annotations

import logging
import traceback

from airflow_iceberg.redaction import without_secrets

# Their DEBUG messages show whole requests.
_LOGGERS = (
    *("botocore.auth", "botocore.endpoint", "botocore.hooks", "botocore.parsers", "botocore.httpsession"),
    *("aiobotocore.endpoint", "aiobotocore.httpsession", "urllib3.connectionpool", "webhdfs"),
    *("gcsfs", "gcsfs.credentials", "google.auth.transport.requests", "google.auth._default"),
    "azure.core.pipeline.policies.http_logging_policy",
)


class _Redaction(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - a message that does not fit its arguments is reported by logging
            return True
        clean = without_secrets(text)
        if clean != text:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None:
            told = "".join(traceback.format_exception(*record.exc_info)).rstrip()
            if (clean := without_secrets(told)) != told:
                record.exc_info, record.exc_text = None, clean
        return True


_REDACTION = _Redaction()


def redact_library_logs() -> None:
    """Keep credentials out of the messages of the known loggers; calling it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_REDACTION)
