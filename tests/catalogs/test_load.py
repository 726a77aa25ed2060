"""Options of a catalog that would be passed over, and change whose rights are used."""

import pytest

from airflow_iceberg.catalogs import load_catalog
from airflow_iceberg.errors import InvalidInputError

TYPES = [
    {"type": "glue", "warehouse": "s3://lake"},
    {"type": "rest", "uri": "https://catalog.example"},
    {"type": "sql", "uri": "sqlite://", "warehouse": "s3://lake"},
]


class TestAnotherRole:
    """No role is assumed: who asks for one is told so, and what to do instead."""

    @pytest.mark.parametrize(
        "name",
        [
            "client.assume-role.arn",
            "client.assume-role.region",
            "client.assume-role.tags.team",
            "client.role-arn",
            "glue.role-arn",
            "rest.role-arn",
            "s3.role-arn",
        ],
    )
    @pytest.mark.parametrize("properties", TYPES, ids=lambda given: given["type"])
    def test_is_refused(self, name, properties):
        with pytest.raises(InvalidInputError) as raised:
            load_catalog("prod", **properties, **{name: "arn:aws:iam::1:role/etl"})
        text = str(raised.value)
        assert text.startswith(
            f"catalog prod: property '{name}' is not supported, no role is assumed here; name a profile"
        )
        assert "arn:aws" not in text

    def test_so_is_the_factory_that_assumes_one(self):
        factory = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
        with pytest.raises(InvalidInputError, match=r"property 'client\.factory' is not supported"):
            load_catalog("prod", **TYPES[0], **{"client.factory": factory})
        load_catalog("prod", **TYPES[0], **{"client.factory": "org.apache.iceberg.aws.DefaultAwsClientFactory"})

    def test_an_empty_one_asks_for_none(self):
        load_catalog("prod", **TYPES[0], **{"client.role-arn": " "})
