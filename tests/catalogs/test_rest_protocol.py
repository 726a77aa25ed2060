"""Documents of the REST protocol as values: configuration, paths, refusals, requirements, credentials."""

from dataclasses import replace

import pytest

from airflow_iceberg.catalogs.http.refusal import Refusal
from airflow_iceberg.catalogs.rest.changes import create_body, creation, is_plain, with_ids, with_requirements
from airflow_iceberg.catalogs.rest.credentials import Delegation, RoutedFileIO, store_properties, table_access, table_io
from airflow_iceberg.catalogs.rest.protocol import (
    CREATE_TABLE,
    LOAD_TABLE,
    RENAME_TABLE,
    TABLE_EXISTS,
    ServerConfig,
)
from airflow_iceberg.catalogs.rest.trust import StoreAccess
from airflow_iceberg.errors import FormatError
from airflow_iceberg.format.metadata.requirements import (
    AssertCreate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
)
from airflow_iceberg.format.metadata.table_metadata import TableMetadata, new_table_metadata
from airflow_iceberg.format.metadata.updates import (
    AddPartitionSpec,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    Change,
    RemoveSnapshotRef,
    RemoveSnapshots,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetProperties,
    SetSnapshotRef,
    apply_change,
)
from airflow_iceberg.format.partitions.spec import spec_from_shorthand
from airflow_iceberg.format.schemas.shorthand import schema_from_shorthand
from airflow_iceberg.format.snapshots import Snapshot, SnapshotRef
from airflow_iceberg.format.sort_orders import UNSORTED, sort_order_from_shorthand

UUID = "6a1cbe1c-7c68-4b9e-9a4e-3f3b6f1f0001"
SCHEMA = schema_from_shorthand({"id": "long not null", "day": "date"})


def metadata(**properties) -> TableMetadata:
    return new_table_metadata(
        location="s3://lake/db/t",
        schema=SCHEMA,
        spec=spec_from_shorthand(["day(day)"], SCHEMA),
        sort_order=sort_order_from_shorthand(["id"], SCHEMA),
        properties=properties,
        table_uuid=UUID,
        now_ms=1,
    )


def snapshot(number, parent=None):
    return Snapshot(
        snapshot_id=number,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=number,
        manifest_list=f"s3://lake/{number}.avro",
        summary={"operation": "append"},
        schema_id=0,
    )


def with_history() -> TableMetadata:
    change = Change(
        updates=(
            AddSnapshot(snapshot=snapshot(1)),
            AddSnapshot(snapshot=snapshot(2, 1)),
            SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=2, type="branch")),
            SetSnapshotRef(ref_name="v1", ref=SnapshotRef(snapshot_id=1, type="tag")),
        )
    )
    return apply_change(metadata(owner="me"), change, now_ms=5, base_location=None)


class TestConfiguration:
    """The server's answer to GET /v1/config."""

    def test_a_server_that_lists_its_endpoints_has_these_only(self):
        config = ServerConfig.from_dict({"endpoints": ["HEAD  /v1/{prefix}/namespaces/{namespace}/tables/{table}"]}, {})
        assert config.offers(TABLE_EXISTS)
        assert not config.offers(LOAD_TABLE)

    def test_one_that_does_not_has_those_that_all_had_before_there_was_a_list(self):
        config = ServerConfig.from_dict({"defaults": None, "overrides": {}}, {})
        assert config.offers(LOAD_TABLE)
        assert config.offers(RENAME_TABLE)
        assert not config.offers(TABLE_EXISTS)

    @pytest.mark.parametrize(
        ("text", "seconds"), [("PT30M", 1800), ("pt24h", 86400), ("P1DT1H", 90000), ("PT1.5S", 1.5), ("soon", 0)]
    )
    def test_the_lifetime_of_keys_is_a_duration(self, text, seconds):
        assert ServerConfig.from_dict({"idempotency-key-lifetime": text}, {}).key_lifetime_s == seconds

    @pytest.mark.parametrize("document", [{"defaults": []}, {"overrides": "x"}, {"endpoints": "GET x"}])
    def test_an_answer_of_another_form_is_an_error(self, document):
        with pytest.raises(FormatError, match="server's"):
            ServerConfig.from_dict(document, {})

    def test_values_that_are_no_texts_become_some(self):
        config = ServerConfig.from_dict({"defaults": {"a": True, "b": 7, "c": None}}, {})
        assert config.defaults == {"a": "true", "b": "7"}


class TestPaths:
    """A name in a path means itself, whatever characters it has."""

    @pytest.mark.parametrize(
        ("namespace", "table", "path"),
        [
            (("db",), "t", "/v1/wh/namespaces/db/tables/t"),
            (("a", "b"), "t", "/v1/wh/namespaces/a%1Fb/tables/t"),
            (("a/b", "c d"), "t?x=1#y", "/v1/wh/namespaces/a%2Fb%1Fc%20d/tables/t%3Fx%3D1%23y"),
            (("{table}",), "{namespace}", "/v1/wh/namespaces/%7Btable%7D/tables/%7Bnamespace%7D"),
            (("ü",), "100%", "/v1/wh/namespaces/%C3%BC/tables/100%25"),
        ],
    )
    def test_it_is_encoded(self, namespace, table, path):
        config = ServerConfig.from_dict({"overrides": {"prefix": "wh"}}, {})
        assert config.path(LOAD_TABLE, namespace, table) == path

    @pytest.mark.parametrize(
        ("separator", "path", "query", "query_of_dots"),
        [
            (None, "a%20b%1Fc.d", "a%20b%1Fc", "a.b%1Fc"),
            ("", "a%20b%1Fc.d", "a%20b%1Fc", "a.b%1Fc"),
            ("%1F", "a%20b%1Fc.d", "a%20b%1Fc", "a.b%1Fc"),
            ("%2E", "a%20b%2Ec.d", "a%20b.c", "a.b%1Fc"),
            (".", "a%20b.c.d", "a%20b.c", "a.b%1Fc"),
            ("%2F", "a%20b%2Fc.d", "a%20b%2Fc", "a.b%2Fc"),
            ("/", "a%20b%2Fc.d", "a%20b%2Fc", "a.b%2Fc"),
            ("\x1f", "a%20b%1Fc.d", "a%20b%1Fc", "a.b%1Fc"),
            (":", "a%20b:c.d", "a%20b%3Ac", "a.b%3Ac"),
        ],
    )
    def test_levels_are_separated_as_the_server_writes_it(self, separator, path, query, query_of_dots):
        told = {} if separator is None else {"overrides": {"namespace-separator": separator}}
        config = ServerConfig.from_dict(told, {})
        assert config.namespace_text(("a b", "c.d")) == path
        assert config.namespace_query(("a b", "c")) == query
        assert config.namespace_query(("a.b", "c")) == query_of_dots
        assert config.namespace_text(("db",)) == config.namespace_query(("db",)) == "db"

    def test_a_prefix_is_the_server_s_own_spelling(self):
        config = ServerConfig.from_dict({"overrides": {"prefix": "arn%3Aaws/x"}}, {})
        assert config.path(CREATE_TABLE, ("db",)) == "/v1/arn%3Aaws/x/namespaces/db/tables"
        assert ServerConfig.from_dict({}, {}).path(CREATE_TABLE, ("db",)) == "/v1/namespaces/db/tables"


class TestRefusals:
    """The protocol's error, OAuth2's error, or whatever a gateway says."""

    @pytest.mark.parametrize(
        ("body", "text"),
        [
            (b'{"error": {"message": "no", "type": "T", "code": 400, "stack": ["x"]}}', "400 T: no"),
            (b'{"error": "invalid_client", "error_description": "no"}', "400 invalid_client: no"),
            (b"<html><h1>Bad\n Gateway</h1></html>", "400: Bad Gateway"),
            (b"", "400"),
            (b"[]", "400"),
            (b'{"error": null}', "400 None"),
            (b'{"message": "no"}', "400: no"),
            (b"\xff\xfe", "400: \ufffd\ufffd"),
            (b"[" * 100_000, None),
        ],
    )
    def test_it_is_one_line(self, body, text):
        found = str(Refusal.from_body(400, body, lambda text: text))
        assert "\n" not in found
        assert len(found) < 200
        assert text is None or found == text

    def test_secrets_are_taken_out_of_every_part(self):
        body = b'{"error": {"message": "pw", "type": "pw"}}'
        assert str(Refusal.from_body(400, body, lambda text: text.replace("pw", "***"))) == "400 ***: ***"


class TestRequirements:
    """A server applies updates to the newest metadata, so what they rely on is said."""

    def needed(self, base, *updates, **more):
        return with_requirements(base, Change(updates=updates, **more)).requirements

    def test_every_change_needs_the_same_table(self):
        assert self.needed(metadata(), SetProperties(updates={"a": "1"})) == (AssertTableUUID(uuid=UUID),)

    def test_a_moved_branch_needs_to_be_where_it_was(self):
        base, move = with_history(), SnapshotRef(snapshot_id=1, type="branch")
        assert self.needed(base, SetSnapshotRef(ref_name="main", ref=move))[1:] == (
            AssertRefSnapshotId(ref="main", snapshot_id=2),
        )
        assert self.needed(base, SetSnapshotRef(ref_name="new", ref=move))[1:] == (
            AssertRefSnapshotId(ref="new", snapshot_id=None),
        )
        assert self.needed(base, RemoveSnapshotRef(ref_name="v1"))[1:] == (
            AssertRefSnapshotId(ref="v1", snapshot_id=1),
        )

    def test_a_removal_of_snapshots_needs_all_branches_and_tags_to_stay(self):
        """Iceberg Java asks for none: a branch that moved to a removed snapshot would vanish with it."""
        assert self.needed(with_history(), RemoveSnapshots(snapshot_ids=(1,)))[1:] == (
            AssertRefSnapshotId(ref="main", snapshot_id=2),
            AssertRefSnapshotId(ref="v1", snapshot_id=1),
        )

    def test_new_columns_need_the_ids_to_be_free(self):
        assert self.needed(metadata(), AddSchema(schema=SCHEMA), SetCurrentSchema())[1:] == (
            AssertLastAssignedFieldId(last_assigned_field_id=2),
            AssertCurrentSchemaId(current_schema_id=0),
        )

    def test_so_do_specs_and_orders(self):
        spec = spec_from_shorthand(["id"], SCHEMA)
        updates = (AddPartitionSpec(spec=spec), SetDefaultSpec(), SetDefaultSortOrder(sort_order_id=1))
        assert self.needed(metadata(), *updates)[1:] == (
            AssertLastAssignedPartitionId(last_assigned_partition_id=1000),
            AssertDefaultSpecId(default_spec_id=0),
            AssertDefaultSortOrderId(default_sort_order_id=1),
        )

    def test_what_the_change_says_itself_comes_first_and_once(self):
        own = (AssertRefSnapshotId(ref="main", snapshot_id=2), AssertTableUUID(uuid=UUID))
        move = SetSnapshotRef(ref_name="main", ref=SnapshotRef(snapshot_id=1, type="branch"))
        assert self.needed(with_history(), move, requirements=own) == own

    def test_an_old_table_without_an_identity_needs_none(self):
        base = replace(metadata(), table_uuid=None, format_version=1)
        assert self.needed(base, SetProperties(updates={"a": "1"})) == ()


class TestCreations:
    """A new and empty table is one request; one with a history is staged, and committed with all that it has."""

    def test_a_request_says_what_the_table_is_to_be(self):
        body = create_body("t", metadata(owner="me"))
        assert body["location"] == "s3://lake/db/t"
        assert body["properties"] == {"owner": "me", "format-version": "2"}
        assert body["stage-create"] is False
        assert [field["name"] for field in body["schema"]["fields"]] == ["id", "day"]
        assert body["partition-spec"]["fields"][0]["transform"] == "day"
        assert body["write-order"]["fields"][0]["source-id"] == 1

    def test_without_a_location_the_server_chooses_one(self):
        assert "location" not in create_body("t", replace(metadata(), location=""))

    def test_only_a_new_table_is_plain(self):
        assert is_plain(metadata(owner="me"))
        assert not is_plain(with_history())
        assert not is_plain(replace(metadata(), schemas=(*metadata().schemas, replace(SCHEMA, schema_id=1))))

    def test_a_staged_table_becomes_what_was_asked_for(self):
        """Applied to an empty table, as a server does it, the updates give the same table."""
        wanted = with_history()
        change = creation(wanted, table_uuid=UUID, location=wanted.location)
        assert change.requirements == (AssertCreate(),)
        blank = new_table_metadata(location="s3://x", schema=SCHEMA, table_uuid="x", now_ms=1)
        made = apply_change(blank, Change(updates=change.updates), now_ms=5, base_location=None)
        assert made.table_uuid == UUID
        assert made.location == wanted.location
        assert made.schema().same_fields(wanted.schema())
        assert (made.snapshots, made.refs) == (wanted.snapshots, wanted.refs)
        assert made.properties == wanted.properties
        assert made.last_sequence_number == wanted.last_sequence_number


class TestCredentialsForFiles:
    """What a server says about the files of a table reaches its FileIO, and the catalog's own secrets don't."""

    CATALOG = {
        "uri": "https://catalog",
        "credential": "id:secret",
        "token": "catalog-token",
        "header.X-Key": "k",
        "ssl.client.key": "/k.pem",
        "rest.secret-access-key": "r",
        "s3.endpoint": "https://s3",
        "s3.access-key-id": "own",
        "s3.secret-access-key": "own-secret",
        "s3.session-token": "own-session",
    }
    ANSWER = {
        "config": {"client.region": "eu-west-1"},
        "storage-credentials": [
            {"prefix": "s3://lake/", "config": {"s3.access-key-id": "wide", "s3.secret-access-key": "w"}},
            {"prefix": "s3://lake/db/t", "config": {"s3.access-key-id": "narrow", "s3.secret-access-key": "n"}},
            {"prefix": "gs", "config": {"gcs.oauth2.token": "g"}},
        ],
    }

    def properties(self, location, answer=None):
        delegation = Delegation.from_dict(self.ANSWER if answer is None else answer)
        found = table_access(
            self.CATALOG,
            ServerConfig.from_dict({}, self.CATALOG),
            delegation,
            location,
            uri=self.CATALOG["uri"],
            bearer=lambda: "bearer",
            signer="/v1/sign",
        )
        return found.properties

    def test_the_longest_prefix_decides(self):
        assert self.properties("s3://lake/db/t/data/1.parquet")["s3.access-key-id"] == "narrow"
        assert self.properties("s3://lake/db/u")["s3.access-key-id"] == "wide"
        assert self.properties("gs://lake/db/t")["gcs.oauth2.token"] == "g"

    def test_without_a_matching_prefix_the_catalog_s_own_are_used(self):
        found = self.properties("s3://other/x")
        assert (found["s3.access-key-id"], found["client.region"]) == ("own", "eu-west-1")

    def test_a_session_of_ours_does_not_go_with_keys_of_theirs(self):
        assert "s3.session-token" not in self.properties("s3://lake/db/t")

    def test_secrets_of_the_catalog_stay_with_it(self):
        found = store_properties(self.CATALOG)
        assert set(found) == {"s3.endpoint", "s3.access-key-id", "s3.secret-access-key", "s3.session-token"}

    def test_only_a_remote_signer_gets_the_token(self):
        assert "token" not in self.properties("s3://lake/db/t")
        found = self.properties("s3://lake/db/t", {"config": {"s3.remote-signing-enabled": "true"}})
        assert (found["token"], found["s3.signer.uri"], found["s3.signer.endpoint"]) == (
            "bearer",
            "https://catalog",
            "/v1/sign",
        )

    def test_the_server_may_name_another_signer(self):
        config = {"s3.remote-signing-enabled": "true", "s3.signer.uri": "https://sign", "s3.signer.endpoint": "here"}
        found = self.properties("s3://lake/db/t", {"config": config})
        assert (found["s3.signer.uri"], found["s3.signer.endpoint"]) == ("https://sign", "here")
        newer = {"config": {"s3.remote-signing-enabled": "true"}, "remote-signing-config": {"endpoint": "v1/new"}}
        assert self.properties("s3://lake/db/t", newer)["s3.signer.endpoint"] == "v1/new"

    @pytest.mark.parametrize("listed", [[{}], [7], [{"prefix": "s3://", "config": 7}], 7])
    def test_another_form_is_an_error(self, listed):
        with pytest.raises(FormatError):
            Delegation.from_dict({"storage-credentials": listed})

    def test_nothing_of_it_is_shown(self):
        assert "narrow" not in repr(Delegation.from_dict(self.ANSWER))


class TestFilesWithDifferentCredentials:
    """Locations that begin differently are reached by different ways."""

    def test_the_longest_beginning_decides(self, tmp_path):
        from airflow_iceberg.storage import load_file_io

        seen = []

        class Named:
            def __init__(self, name):
                self.name = name

            def __getattr__(self, method):
                inner = getattr(load_file_io(), method)
                return lambda *given, **more: (seen.append((self.name, method)), inner(*given, **more))[1]

        base = tmp_path.as_uri()
        io = RoutedFileIO({f"{base}/a": Named("a"), f"{base}/a/b": Named("b")}, otherwise=Named("c"))
        for name in ("a/1", "a/b/1", "x/1"):
            io.create(f"{base}/{name}", b"1")
        assert io.read(f"{base}/a/b/1") == b"1"
        assert io.exists(f"{base}/x/1")
        assert len(list(io.list(f"{base}/a"))) == 2
        assert io.filesystem(f"{base}/a/1")[1].endswith("a/1")
        io.delete([f"{base}/a/1", f"{base}/x/1", f"{base}/a/b/1"])
        assert not list(io.list(base))
        assert seen[:5] == [("a", "create"), ("b", "create"), ("c", "create"), ("b", "read"), ("c", "exists")]
        assert {name for name, method in seen if method == "delete"} == {"a", "b", "c"}

    def test_the_credentials_of_the_longest_prefix_win_also_over_those_of_the_bucket(self):
        """The table's own entry is one of them, and each store has one spelling."""
        entries = {"s3://lake/": "bucket", "s3a://lake/db/t": "table", "s3n://lake/db/t/data/x=1": "part"}
        delegation = Delegation(
            credentials=tuple((prefix, {"s3.access-key-id": key}) for prefix, key in entries.items()),
        )

        def access_of(where, found):
            return StoreAccess(properties=found.properties_for(where), is_theirs=(True, False, False))

        for scheme in ("s3", "s3a", "s3n"):
            io = table_io(f"{scheme}://lake/db/t", delegation, access_of, lambda given: delegation)
            assert io.current_properties()["s3.access-key-id"] == "table"  # for jobs
            ends = {"": "table", "/metadata/1.json": "table", "/data/x=1/1.parquet": "part", "/data/x=2/1": "table"}
            for end, key in ends.items():
                assert io._io(f"{scheme}://lake/db/t{end}").current_properties()["s3.access-key-id"] == key
            assert io._io(f"{scheme}://lake/other/1").current_properties()["s3.access-key-id"] == "bucket"


class TestShapesByTheirIds:
    """A server is not asked to add what it has: those that are built on Iceberg Java's refuse to set it then."""

    def sent(self, base, *updates):
        change = Change(updates=updates)
        asked = apply_change(base, change, now_ms=9, base_location=None)
        return [one.to_dict() for one in with_ids(base, change, asked).updates]

    def test_a_schema_that_was_there_is_set_by_its_id_and_a_new_one_has_the_next(self):
        base = metadata()
        wider = schema_from_shorthand({"id": "long not null", "day": "date", "n": "int"})
        two = apply_change(
            base, Change(updates=(AddSchema(schema=wider), SetCurrentSchema())), now_ms=8, base_location=None
        )
        assert self.sent(two, AddSchema(schema=replace(SCHEMA, schema_id=7)), SetCurrentSchema()) == [
            {"action": "set-current-schema", "schema-id": 0}
        ]
        new = schema_from_shorthand({"id": "long not null", "day": "date", "n": "long"})
        added, current = self.sent(two, AddSchema(schema=new), SetCurrentSchema())
        assert (added["schema"]["schema-id"], current["schema-id"]) == (2, -1)

    def test_so_are_specs_and_orders(self):
        base = metadata()
        none = spec_from_shorthand([], SCHEMA)
        changes = (
            AddPartitionSpec(spec=none),
            SetDefaultSpec(),
            AddSortOrder(sort_order=UNSORTED),
            SetDefaultSortOrder(),
        )
        plain = apply_change(base, Change(updates=changes), now_ms=8, base_location=None)
        back = (
            AddPartitionSpec(spec=base.spec()),
            SetDefaultSpec(),
            AddSortOrder(sort_order=base.sort_order()),
            SetDefaultSortOrder(),
        )
        assert self.sent(plain, *back) == [
            {"action": "set-default-spec", "spec-id": base.default_spec_id},
            {"action": "set-default-sort-order", "sort-order-id": base.default_sort_order_id},
        ]
        assert self.sent(base, *changes)[0]["spec"]["spec-id"] == base.default_spec_id + 1
