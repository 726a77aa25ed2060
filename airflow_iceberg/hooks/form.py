"""The connection forms for Airflow 3.1, which takes them from methods of the hooks and not from `get_provider_info`.

Each hook has the methods itself: Airflow does not look at those that a class inherits.
"""

from __future__ import annotations

from typing import Any

from airflow_iceberg.get_provider_info import get_provider_info


def form_widgets(conn_type: str) -> dict[str, Any]:
    """Return the fields of the form of a connection type, as Airflow 3.1 asks its hook for them.

    Args:
        conn_type: `iceberg_catalog` or `paimon`.
    """
    from wtforms import PasswordField, StringField
    from wtforms.validators import any_of

    made = {}
    for name, field in _described(conn_type)["conn-fields"].items():
        schema = field["schema"]
        kind = PasswordField if schema.get("format") == "password" else StringField
        choices = [any_of(schema["enum"])] if "enum" in schema else []
        made[name] = kind(field["label"], validators=choices, description=field["description"])
    return made


def field_behaviour(conn_type: str) -> dict[str, Any]:
    """Return what becomes of the fields that all connections have, as Airflow 3.1 asks the hook for it.

    Args:
        conn_type: `iceberg_catalog` or `paimon`.
    """
    return {name.replace("-", "_"): value for name, value in _described(conn_type)["ui-field-behaviour"].items()}


def _described(conn_type: str) -> dict[str, Any]:
    types: list[dict[str, Any]] = get_provider_info()["connection-types"]
    return next(one for one in types if one["connection-type"] == conn_type)
