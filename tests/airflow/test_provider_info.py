"""What Airflow reads about the provider when it starts."""

import importlib
import json
import subprocess
import sys
from importlib.resources import files

import jsonschema
import pytest
from airflow.sdk import task

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.get_provider_info import get_provider_info
from airflow_iceberg.operators._key import installation_id


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
        (option,) = described["options"]
        monkeypatch.setenv(f"AIRFLOW__{section}__{option}".upper(), "prod")
        assert installation_id() == "prod"

    def test_secrets_are_password_fields(self):
        fields = get_provider_info()["connection-types"][0]["conn-fields"]
        formats = {name: field["schema"].get("format") for name, field in fields.items()}
        secret = {"token", "adls.account-key", "s3.access-key-id", "s3.secret-access-key"}
        assert {name for name, kind in formats.items() if kind == "password"} == secret

    def test_reading_it_imports_nothing_but_this_package(self):
        code = (
            "import sys; before = set(sys.modules)\n"
            "from airflow_iceberg.get_provider_info import get_provider_info; get_provider_info()\n"
            "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "['airflow_iceberg']"
