"""What Airflow reads about the provider when it starts."""

import importlib
import json
import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.sdk import Connection, task

from airflow_iceberg.backends.environment import further_names
from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.get_provider_info import get_provider_info
from airflow_iceberg.hooks.connection import CatalogConfig
from airflow_iceberg.hooks.field_names import WITHOUT_A_FIELD, mistyped
from airflow_iceberg.operators._key import installation_id
from airflow_iceberg.redaction import secrets_of
from tests.support.airflow_versions import ProvidersManagerTaskRuntime

DOCS = Path(__file__).parents[2] / "docs"


class TestTheDescription:
    """It is valid, complete, and true of the code."""

    def test_it_fits_airflows_schema(self):
        schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
        jsonschema.validate(get_provider_info(), schema)

    def test_every_module_that_it_names_can_be_imported(self):
        info = get_provider_info()
        entries = [entry for kind in ("operators", "sensors", "hooks", "triggers") for entry in info[kind]]
        named = [module for entry in entries for module in entry["python-modules"]]
        assert {importlib.import_module(name).__name__ for name in named} == set(named)

    @pytest.mark.parametrize("kind", ["operators", "sensors", "triggers"])
    def test_every_operator_sensor_and_trigger_that_is_offered_is_named(self, kind):
        package = importlib.import_module(f"airflow_iceberg.{kind}")
        offered = [getattr(package, name) for name in package.__all__]
        classes = [one for one in offered if one.__name__.endswith(kind.rstrip("s").capitalize())]
        named = {module for entry in get_provider_info()[kind] for module in entry["python-modules"]}
        assert {one.__module__ for one in classes} == named

    @pytest.mark.parametrize("entry", get_provider_info()["task-decorators"], ids=lambda entry: entry["name"])
    def test_airflow_offers_every_decorator(self, entry):
        module, _, name = entry["class-name"].rpartition(".")
        assert getattr(task, entry["name"]) is getattr(importlib.import_module(module), name)

    @pytest.mark.parametrize("entry", get_provider_info()["connection-types"], ids=lambda entry: entry["hook-name"])
    def test_the_connection_type_is_the_hooks(self, entry):
        module, _, name = entry["hook-class-name"].rpartition(".")
        hook = getattr(importlib.import_module(module), name)
        assert (hook.conn_type, hook.hook_name) == (entry["connection-type"], entry["hook-name"])

    def test_the_form_offers_exactly_the_catalogs_that_there_are(self):
        offered = get_provider_info()["connection-types"][0]["conn-fields"]["type"]["schema"]["enum"]
        with pytest.raises(InvalidInputError, match="unknown type 'nonsense', expected one of") as raised:
            load_catalog("c", type="nonsense")
        known = set(str(raised.value).rpartition("one of ")[2].split(", ")) - {"jdbc"}  # another word for sql
        assert set(offered) - {None} == known

    def test_the_options_are_those_that_are_read(self, monkeypatch):
        ((section, described),) = get_provider_info()["config"].items()
        installation, variables = described["options"]
        monkeypatch.setenv(f"AIRFLOW__{section}__{installation}".upper(), "prod")
        assert installation_id() == "prod"
        monkeypatch.setenv(f"AIRFLOW__{section}__{variables}".upper(), described["options"][variables]["example"])
        assert further_names() == ("NLS_LANG", "ORACLE_*", "HADOOP_CREDSTORE_PASSWORD")

    def test_reading_it_imports_nothing_but_this_package(self):
        code = (
            "import sys; before = set(sys.modules)\n"
            "from airflow_iceberg.get_provider_info import get_provider_info; get_provider_info()\n"
            "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "['airflow_iceberg']"


PAGES = ("connections", "rest-catalog", "nessie", "glue", "hive-metastore", "stores")
FORMS = {entry["connection-type"]: entry["conn-fields"] for entry in get_provider_info()["connection-types"]}
PROPERTY = r"(?:s3|gcs|adls|glue|rest|hive|hdfs)\.[\w.-]+"


def documented(page: str) -> set[str]:
    """Return the settings that the tables of a page name, `.port` and `….password` with what stands before them."""
    text = (DOCS / f"{page}.md").read_text().partition("\n## `paimon`")[0]
    found: set[str] = set()
    last = ""
    for line in text.splitlines():
        for number, cell in enumerate(line.strip("| ").split(" | ") if line.startswith("| ") else ()):
            for word in re.findall(r"`([^`\s]+)`", cell):
                name = last.rpartition(".")[0] + "." + word.lstrip("….") if word.startswith((".", "….")) else word
                name = last.replace("-min-wait-ms", name[1:]) if name.startswith("…-") else name
                is_setting = re.fullmatch(r"[a-z][\w.-]+", name) and name not in ("true", "false", "sales.orders")
                if is_setting and (number == 0 or re.fullmatch(PROPERTY, name)):
                    found.add(name)
                    last = name
    return found


def without_a_field() -> set[str]:
    """Return the settings of which the documentation says that they have no field."""
    text = (DOCS / "connections.md").read_text().partition("### The form")[2].partition("###")[0]
    return set(re.findall(r"`([a-z][\w.-]+)`", text.partition("(`adls.account-key.<")[2]))


class TestTheForm:
    """Each setting that the documentation names has a field, or is said to have none; secrets are never shown."""

    @pytest.mark.parametrize("page", PAGES)
    def test_each_documented_setting(self, page):
        names = documented(page)
        assert len(names) > 5
        # The host of a connection is the address.
        assert names - FORMS["iceberg_catalog"].keys() - without_a_field() == names & {"uri"}

    def test_what_is_said_to_have_no_field_has_none_and_is_documented(self):
        known = set().union(*map(documented, PAGES))
        assert without_a_field() <= known
        assert not without_a_field() & FORMS["iceberg_catalog"].keys()

    def test_no_documented_setting_is_taken_for_a_mistyped_one(self):
        assert set(WITHOUT_A_FIELD) == without_a_field()
        names = set().union(*map(documented, PAGES), FORMS["iceberg_catalog"], {"header.X-Tokn", "client.regio"})
        assert not list(mistyped(names, "iceberg_catalog"))
        assert not list(mistyped(FORMS["paimon"], "paimon"))

    @pytest.mark.costly
    @pytest.mark.parametrize("kind", FORMS)
    def test_every_airflow_shows_it(self, kind, airflow_db):
        """Airflow 3.1 asks the hooks for it, later ones read the description."""
        if "airflow-iceberg" not in ProvidersManagerTaskRuntime().providers:
            pytest.skip("the package is not installed in this environment, so Airflow cannot know it")
        (shown,) = [one for one in HookMetaService.hook_meta_data() if one.connection_type == kind]
        fields = {name: field["schema"] for name, field in shown.extra_fields.items()}
        assert fields.keys() == FORMS[kind].keys()
        assert {name: field["title"] for name, field in fields.items()} == {
            name: field["label"] for name, field in FORMS[kind].items()
        }
        for key in ("format", "enum"):
            assert {name: field.get(key) for name, field in fields.items()} == {
                name: field["schema"].get(key) for name, field in FORMS[kind].items()
            }
        assert all(field["description"] for field in shown.extra_fields.values())
        assert shown.standard_fields.url_schema.hidden
        assert "443" in shown.standard_fields.port.placeholder

    @pytest.mark.parametrize("kind", FORMS)
    def test_each_field_has_a_label_of_its_own_and_a_help_text(self, kind):
        fields = FORMS[kind]
        assert len({field["label"] for field in fields.values()}) == len(fields)
        assert all(len(field["description"]) > 3 and field["description"].endswith(".") for field in fields.values())

    @pytest.mark.parametrize("kind", FORMS)
    def test_secrets_are_password_fields(self, kind):
        fields = FORMS[kind]
        hidden = {name for name, field in fields.items() if field["schema"].get("format") == "password"}
        # An address is no secret, although it gives some.
        text = {
            name: "https://x" if name.endswith("endpoint") else f"Zx9-{number}" for number, name in enumerate(fields)
        }
        assert hidden == {name for name, value in text.items() if secrets_of({name: value})}
        # No setting without a field may be one.
        plain = {name: "true" if name.endswith("enabled") else "60000" for name in without_a_field()}
        assert not [name for name, value in plain.items() if secrets_of({name: value})]

    @pytest.mark.services
    def test_what_is_entered_in_them_is_masked(self):
        fields = FORMS["iceberg_catalog"]
        hidden = [name for name, field in fields.items() if field["schema"].get("format") == "password"]
        entered = {name: f"Zx9-entered-{number}" for number, name in enumerate(hidden)}
        config = CatalogConfig.from_connection(
            Connection(conn_id="c", conn_type="iceberg_catalog", extra=json.dumps(entered))
        )
        assert set(entered.values()) <= set(config.secrets())
        assert config.properties.items() >= entered.items()

    def test_fields_that_are_left_empty_set_nothing(self):
        empty = json.dumps({name: "" if number % 2 else None for number, name in enumerate(FORMS["iceberg_catalog"])})
        made = Connection(conn_id="c", conn_type="iceberg_catalog", extra=empty)
        assert dict(CatalogConfig.from_connection(made).properties) == {}

    def test_a_port_of_a_catalog_without_an_address_is_ignored(self):
        """It is the way around Airflow 3.3.2, which tests no stored connection without a port."""
        extra = json.dumps({"type": "hadoop", "warehouse": "file:///w"})
        made = Connection(conn_id="c", conn_type="iceberg_catalog", port=443, extra=extra)
        assert dict(CatalogConfig.from_connection(made).properties) == {"type": "hadoop", "warehouse": "file:///w"}
