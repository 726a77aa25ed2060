"""The web pages of a Spark application: its own one, and the one that the history server has of it.

What is known of them comes from the output of spark-submit. Not here: who shows them (`links`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_iceberg.backends.clusters import configured
from airflow_iceberg.backends.config import SparkConfig
from airflow_iceberg.redaction import secrets_of

HISTORY_FIELD = "history-server-url"
"""The extra field of a Spark connection with the address of its history server."""
HISTORY_SETTING = "spark.yarn.historyServer.address"
_LONGEST = 2000
# No login before the host, and nothing that could end an attribute of HTML.
_ADDRESS = re.compile(r"(?i:https?)://[^\s/?#@\\\"'<>{}|^`$]+(?:[/?#][^\s\\\"'<>{}|^`]*)?", re.ASCII)
_TOLD = (
    # The first line of a driver in deploy mode client (`jobs.main`), before it runs anything of the DAG's author.
    re.compile(r"^airflow_iceberg: the Spark application is (?P<id>[\w.-]{1,200})(?:, its page is (?P<page>\S+))?$"),
    re.compile(r"^\s*tracking URL: (?P<kept>\S+/proxy/(?P<id>application_[0-9]{1,20}_[0-9]{1,20})/?)$"),
    re.compile(r"\bClient: Submitted application (?P<id>application_[0-9]{1,20}_[0-9]{1,20})$"),
    re.compile(r"\bspark-app-selector -> (?P<id>spark-[a-z0-9]{1,100})(?:,|$)"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SparkPages:
    """Where somebody can look at a Spark application.

    Attributes:
        application_id: its id on its cluster.
        page: the address of its own page, if it has one.
        is_kept: whether that page is there when the application has ended, as by the proxy of YARN.
        history_page: the address of its page on the history server, if that is known.
    """

    application_id: str
    page: str | None = None
    is_kept: bool = False
    history_page: str | None = None

    def to_xcom(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def pages_told(line: str) -> SparkPages | None:
    """Return what a line of spark-submit's output tells of its application; None for other lines."""
    for pattern in _TOLD:
        found = pattern.search(line.rstrip())
        if found:
            told = found.groupdict()
            kept = web_address(told.get("kept"))
            page = kept or web_address(told.get("page"))
            return SparkPages(application_id=told["id"], page=page, is_kept=kept is not None)
    return None


def history_page(
    application_id: str, extra: Mapping[str, Any], config: SparkConfig, environment: Mapping[str, str], *, attempt: str
) -> str | None:
    """Return the address of an application on the history server; None if no address of one is configured.

    Args:
        extra: the extra fields of the Spark connection.
        environment: the variables of spark-submit.
        attempt: which start of the application it is, where its cluster counts them; or nothing.
    """
    base = str(extra.get(HISTORY_FIELD) or configured(HISTORY_SETTING, config, environment) or "").strip()
    if base and "://" not in base:
        base = f"http://{base}"
    parts = [base.rstrip("/"), "history", application_id, attempt]
    return web_address("/".join(filter(None, parts)) + "/") if base else None


def web_address(text: str | None) -> str | None:
    """Return an address that a browser may be sent to; None for anything else, and for one with a secret in it."""
    if not text or len(text) > _LONGEST or not _ADDRESS.fullmatch(text) or secrets_of({"url": text}):
        return None
    return text
