"""What a secret is: by its name, and by what stands in a value; and what is none."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_iceberg.backends.config import STORAGE_VARIABLE, SparkConfig
from airflow_iceberg.errors import InvalidInputError, check_no_password
from airflow_iceberg.jobs.spark.installation import environment
from airflow_iceberg.redaction import (
    SPARK_PATTERN,
    hidden_texts,
    hide,
    is_secret,
    secrets_of,
    shown_command,
    without_secrets,
)

# The patterns of 306e4dc, each of another module, before there was one: what one of them knew is known now.
BEFORE = {
    "hooks": r"secret|passw|token|credential|access.?key|account.?key|connection.?string|\bsas\b|\bauth\b|"
    r"authorization|private.?key|session.?kwargs",
    "submit": r"secret|passw|token|credential|access.?key|account.?key|connection.?string|AIRFLOW_ICEBERG_STORAGE",
    "submit_hook": r"secret|passw|token|credential|access.?key|account.?key|connection.?string",
    "fsspec_io": r"secret|passw|token|credential|access.?key|account.?key|connection.?string|\bsas\b|session.?kwargs",
    "rest_settings": r"secret|passw|token|credential|access.?key|auth|cookie|api.?key",
    "headers": r"^header\.(?!(x-iceberg-access-delegation|accept|content-type|user-agent)$)",
}
WORDS = [
    *("secret", "passw", "token", "credential", "access", "account", "connection", "string", "sas", "auth", "private"),
    *("authorization", "session", "kwargs", "cookie", "api", "key", "AIRFLOW_ICEBERG_STORAGE", "header", "accept"),
    *("s3", "adls", "x", "fs", "s3a", "spark", "hadoop", "azure", "enabled", "id", "uri"),
]

word = st.sampled_from(WORDS).flatmap(lambda text: st.sampled_from([text, text.upper(), text.title()]))
separator = st.sampled_from([".", "-", "_", "", " ", "é"])
names = st.one_of(
    st.lists(st.one_of(word, separator, st.text(max_size=3)), max_size=8).map("".join),
    st.tuples(st.text(max_size=5), st.from_regex(re.compile(BEFORE["hooks"], re.I)), st.text(max_size=5)).map("".join),
)


class TestNames:
    """A name decides, in any spelling."""

    @pytest.mark.costly
    @given(names)
    @example("header.X-Gate")
    @example("gcs.session-kwargs")
    def test_what_was_a_secret_for_one_module_is_one_for_all(self, name: str) -> None:
        if any(re.search(pattern, name, re.IGNORECASE) for pattern in BEFORE.values()):
            assert is_secret(name)

    @pytest.mark.parametrize("name", [
        *("s3.access-key-id", "S3.SECRET_ACCESS_KEY", "glue.session-token", "client.secret-access-key"),
        *("fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "spark.hadoop.fs.s3a.session.token"),
        *("spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net", "fs.azure.sas.fixed.token.x", "SAS_KEY"),
        *("adls.account-key", "adls.sas-token", "adls.connection-string", "adls.auth.shared-key.account.key"),
        *("fs.s3a.server-side-encryption.key", "fs.gs.auth.service.account.private.key", "gcs.session-kwargs"),
        *("rest.auth.basic.password", "javax.net.ssl.keyStorePassword", "PGPASSWORD", "jdbc.passphrase", "db.pwd"),
        *("header.X-Gate", "header.Cookie", "spark.sql.catalog.c.header.X-Api", "X-API-Key", "x_api_key", "sig"),
        *("authentication.oauth2.client-secret", "X-Amz-Signature", "accessKeyId", "oauthToken", STORAGE_VARIABLE),
        *("ugi", "hive.ugi", "hdfs.config.ssl.keystore.pass", "DB_PASS", "trustStorePass", "passcode", "service-key"),
        *("FERNET_KEY", "fernet.key", "S3_KEY", "AZURE_STORAGE_KEY", "RABBITMQ_DEFAULT_PASS", "MYSQL_PWD"),
        *("spark.kafka.sasl.jaas.config", "Ocp-Apim-Subscription-Key", "gcs.decryption-key", "s3.sse-customer-key"),
        *("gcs.private.key", "rest.api.key", "s3.sse.key", "bearer", "SENTRY_DSN", "master-key", "X-Goog-Signature"),
    ])  # fmt: skip
    def test_these_are_secrets(self, name: str) -> None:
        assert (is_secret(name), hide(name, "s0me-value")) == (True, "***")
        assert secrets_of({name: "s0me-value"}) == ["s0me-value"]

    @pytest.mark.parametrize("name", [
        *("max-keys", "primary-keys", "partition-key", "s3.sse-kms-key-id", "encryption.key-id", "keystore.path"),
        *("hive.kerberos.keytab", "hdfs.kerberos.keytab", "hdfs.kerberos.principal", "ssl.client.cert"),
        *("header.Accept", "header.X-Iceberg-Access-Delegation", "header.user-agent", "header.Content-Type"),
        *("compass", "passenger", "design", "was-here", "spark.executor.memory", "uri", "type", "warehouse"),
        *("bypass", "plugin", "luging", "SPARK_DIST_CLASSPATH", "hdfs.config.dfs.nameservices", "message-key"),
        *("PRIMARY_KEY", "PARTITION_KEY", "KEY_COLUMNS", "MONKEY", "SORT_KEYS", "LESSKEY", "KEYMAP"),
    ])  # fmt: skip
    def test_these_are_none(self, name: str) -> None:
        assert (is_secret(name), hide(name, "s0me-value")) == (False, "s0me-value")
        assert secrets_of({name: "s0me-value"}) == []


class TestValues:
    """A setting that only sounds like a secret is shown: hiding it would tear holes into every log."""

    @pytest.mark.parametrize(("name", "value"), [
        ("token-refresh-enabled", "true"),
        ("s3.session-token-expires-at-ms", "1700000000000"),
        ("adls.sas-token-expires-at-ms.lake", "1700000000000"),
        ("gcs.oauth2.token", "anon"),
        ("oauth2-server-uri", "https://idp/oauth/tokens"),
        ("authentication.oauth2.token-endpoint", "https://idp/oauth/tokens"),
        ("rest.auth.type", "basic"),
        ("authentication.type", "BEARER"),
        ("hive.metastore.client.auth.mode", "KERBEROS"),
        ("spark.hadoop.hadoop.security.authentication", "kerberos"),
        ("adls.blob-storage-authority", "blob.core.windows.net"),
        ("spark.kubernetes.authenticate.driver.serviceAccountName", "airflow"),
        ("author", "jane"),
        ("credential", ""),
        ("token-refresh-interval", "12345678"),
        ("spark.yarn.credentials.renewal.max", "12345678"),
        ("password.min.length", "12345678"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.amazonaws.auth.InstanceProfileCredentialsProvider"),
        ("spark.kubernetes.authenticate.submission.oauthTokenFile", "/var/run/secrets/token"),
        ("spark.kubernetes.driver.secrets.of-the-lake", "/etc/secrets"),
        ("spark.kubernetes.executor.secretKeyRef.DB_PASSWORD", "of-the-lake:password"),
        ("spark.authenticate.secret.file", "/run/secret"),
        ("java.security.auth.login.config", "jaas.conf"),
        (
            "spark.kafka.sasl.jaas.config",
            'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/a b" principal="a/b@C";',
        ),
        ("spark.hadoop.fs.azure.account.auth.type.lake.dfs.core.windows.net", "OAuth"),
        ("spark.hadoop.fs.azure.account.oauth.provider.type.lake.dfs.core.windows.net", "org.apache.hadoop.fs.Msi"),
        ("spark.hadoop.fs.azure.sas.token.provider.type.lake.dfs.core.windows.net", "com.example.sas.Provider"),
        ("spark.hadoop.fs.azure.account.oauth2.msi.tenant", "5f4dcc3b-5aa7-65d6-1d83-27deb882cf99"),
    ])  # fmt: skip
    def test_these_are_shown(self, name: str, value: str) -> None:
        assert is_secret(name)
        assert hide(name, value) == value
        assert secrets_of({name: value}) == []

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(("db.password", "20261231"), ("token", "1234.5678"), ("s3.access-key-id", "12345678")),
            *(("header.X-Gate", "12345678"), ("secret2", "12345678"), ("adls.sas-token.lake.dfs.x", "12345678")),
            *(("token.file", "aGVsbG8/d29ybGQ="), ("credentials.provider", "id:hunter22"), ("secret.key", "/abc/def")),
            *(("PASSWORD_OF_DB", "12345678"), ("hdfs.config.ssl.keystore.pass", "12345678")),
        ],
    )
    def test_a_number_or_what_looks_like_a_path_may_be_a_password(self, name: str, value: str) -> None:
        assert hide(name, value) == "***"
        assert secrets_of({name: value}) == [value]

    def test_what_is_no_text_stays_what_it_is(self) -> None:
        assert [hide("x.memory", value) for value in (4, None, True, 0.5)] == [4, None, True, 0.5]
        assert hide("x", {"a": ["b"], "password": "hunter22"}) == {"a": ["b"], "password": "***"}
        assert hide("password", ("hunter22", "hunter23")) == ("***", "***")


class TestSecretsInsideOfValues:
    """A value under any name may hold a secret: only that is taken out."""

    @pytest.mark.parametrize(("value", "shown"), [
        ("http://me:hunter22@proxy:3128/x", "http://me:***@proxy:3128/x"),
        ("http://me@corp:hunter22@proxy:3128", "http://me@corp:***@proxy:3128"),
        ("http://me:hun/ter22@proxy", "http://me:***@proxy"),
        ("jdbc:postgresql://db/x?user=me&password=hunter22", "jdbc:postgresql://db/x?user=me&password=***"),
        ("jdbc:sqlserver://h:1433;password=hunter22;x=1", "jdbc:sqlserver://h:1433;password=***;x=1"),
        ("host=db user=me password=hunter22", "host=db user=me password=***"),
        ("-Djavax.net.ssl.keyStorePassword=hunter22 -Dx=y", "-Djavax.net.ssl.keyStorePassword=*** -Dx=y"),
        ("https://lake/f?sv=1&sig=hunter22&sp=r", "https://lake/f?sv=1&sig=***&sp=r"),
        ("AccountName=lake;AccountKey=hunter22==;X=1", "AccountName=lake;AccountKey=***;X=1"),
        ("Endpoint=x;SharedAccessSignature=sv=1&sig=hunter22;X=1", "Endpoint=x;SharedAccessSignature=***;X=1"),
        ('{"aws_secret_access_key": "hunter22", "a": true}', '{"aws_secret_access_key": "***", "a": true}'),
        ('[{"a": {"password": "hunter22", "ca": "/x"}}]', '[{"a": {"password": "***", "ca": "/x"}}]'),
        ('{"proxy": "http://me:hunter22@proxy"}', '{"proxy": "http://me:***@proxy"}'),
        ("https://lake/f?X-Amz-Credential=AK%2F2026&X-Amz-Signature=hunter22", "https://lake/f?X-Amz-Credential=***&X-Amz-Signature=***"),
        ("https://h/f?Expires=1&Signature=hunter22&Key-Pair-Id=K", "https://h/f?Expires=1&Signature=***&Key-Pair-Id=K"),
        ("https://h/f?X-Goog-Algorithm=a&X-Goog-Signature=hunter22", "https://h/f?X-Goog-Algorithm=a&X-Goog-Signature=***"),
        ("https://ghp_hunter22hunter22@h/f", "https://***@h/f"),
        ('{"auth": {"pin": 12345678}, "timeout": 87654321}', '{"auth": {"pin": ***}, "timeout": 87654321}'),
        ('{"headers": {"x-token": 5550}}', '{"headers": {"x-token": ***}}'),
        ('Scram required username="u" password="hunter22";', 'Scram required username="u" password="***";'),
        ("x.PlainLoginModule required password='hunter;22 x' a=b;", "x.PlainLoginModule required password='***' a=b;"),
        (r'KafkaClient { x required password="hun\"ter22"; };', 'KafkaClient { x required password="***"; };'),
        ("host=h password = hunter22 user=u", "host=h password = *** user=u"),
        ("host=h password='hunter 22' user=u", "host=h password='***' user=u"),
        ("{'password': 'hunter22', 'user': 'u'}", "{'password': '***', 'user': 'u'}"),
        ("[('password', 1), {'password' : b'hunter22'}]", "[('password', 1), {'password' : b'***'}]"),
        ("{user=u, password=hunter22}", "{user=u, password=***"),
        ("Map(password -> hunter22, user -> u)", "Map(password -> ***, user -> u)"),
        (r'{\"password\": \"hunter22\", \"a\": 1}', r'{\"password\": \"***\", \"a\": 1}'),
        ('{"password": "hunter21", "password": "hunter22"}', '{"password": "***", "password": "***"}'),
        (r'{"x": "a password=\"hun\tter22\""}', r'{"x": "a password=\"***\""}'),
        ("Driver={X};Uid=u;Pwd={hunt;er}}22};A=b", "Driver={X};Uid=u;Pwd={***};A=b"),
        ("Driver={X};Pwd={hunter22", "Driver={X};Pwd=***"),
        ("jdbc:db2://h:1/db:password=hunter22;user=u;", "jdbc:db2://h:1/db:password=***;user=u;"),
        ("jdbc:oracle:thin:scott/hunter22@//h:1521/x", "jdbc:oracle:thin:scott/***@//h:1521/x"),
        ("jdbc:oracle:oci8:a[scott]/hunter22@h", "jdbc:oracle:oci8:a[scott]/***@h"),
        ('jdbc:oracle:thin:scott/"hunt@er22"@h', 'jdbc:oracle:thin:scott/"***"@h'),
        ("X-Api-Key: hunter22", "X-Api-Key: ***"),
        ("-H 'Authorization: Bearer hunter22'", "-H 'Authorization: Bearer ***'"),
        ("user: u\npassword: hunter22\n", "user: u\npassword: ***\n"),
        ("opts='a=b password=hunter22'", "opts='a=b password=***'"),
        ("token-type=\"a=b password=hunter22\"", "token-type=\"***\""),
        ("auth.type='basic password=hunter22'", "auth.type='basic password=***'"),
        ("password=hunter,22", "password=***"),
        ("https://h/#access_token=hunter22", "https://h/#access_token=***"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4\n\nhunter-22==\n-----END RSA PRIVATE KEY----- b", "a *** b"),
        (r"-----BEGIN PRIVATE KEY-----\nhunter22", "***"),
        # A short one hides the whole value.
        ("http://me:a@proxy/aaa", "***"),
    ])  # fmt: skip
    def test_of_addresses_documents_and_pairs(self, value: str, shown: str) -> None:
        assert hide("x.options", value) == shown
        assert not any(secret in shown for secret in secrets_of({"x.options": value}))

    @pytest.mark.parametrize("value", [
        "hdfs://nn:8020/data@2026",
        "thrift://a:9083,thrift://b:9083",
        "abfss://container@lake.dfs.core.windows.net/x",
        "https://host:443/x?a=b@c",
        "file:///tmp/a:b@c",
        '{"a": "b"}',
        "[broken",
        "[" * 100_000,
        # A port, a coordinate and a key of Kubernetes' secrets are behind a colon, too.
        "kafka-token-service:9092,token-b:9092",
        "io.auth:token-lib:1.0,com.x:secret:2",
        "db-password:key",
        "-Dtoken.refresh=true -Dpassword.min.length=8 -XX:+UseG1GC",
        "{'token-refresh-enabled': True, 'password': None}",
        "{token-enabled: true}",
        "auth == x, when token==",
        "password='' user=u",
        "-----BEGIN CERTIFICATE-----\nMIIabc\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIabc\n-----END PUBLIC KEY-----",
        "jdbc:oracle:thin:@//h:1521/x",
        "jdbc:oracle:thin:/@alias",
        "the secrets: [a, b]",
    ])  # fmt: skip
    def test_what_only_looks_like_one_is_left(self, value: str) -> None:
        assert hide("x.options", value) == value

    def test_the_key_file_of_a_service_account_and_a_password_as_it_is_written_and_meant(self) -> None:
        key = {"type": "service_account", "private_key": "-----BEGIN\nMIIabc", "token_uri": "https://idp/token"}
        found = secrets_of({"gcs.oauth2.token": json.dumps(key)})
        assert {json.dumps(key), "-----BEGIN\nMIIabc", r"-----BEGIN\nMIIabc"} <= set(found)
        assert "https://idp/token" not in found
        assert secrets_of({"uri": "postgresql://me:my%2Fpassword@db/x"}) == ["my%2Fpassword", "my/password"]

    def test_the_second_part_of_an_identity_and_of_a_credential_by_itself(self) -> None:
        assert secrets_of({"ugi": "etl:hunter22"}) == ["etl:hunter22", "hunter22"]
        assert secrets_of({"credential": "id:hunter22"}) == ["id:hunter22", "hunter22"]

    def test_short_ones_are_secrets_and_make_no_holes_in_messages(self) -> None:
        properties = {"s3.secret-access-key": "abc", "header.X-Team": "lake", "header.X-Key": "lake-key"}
        properties["token"] = "t0ken"
        assert secrets_of(properties) == ["abc", "lake", "lake-key", "t0ken"]
        assert hidden_texts(properties) == ["lake-key", "t0ken"]


class TestWhereItIsUsed:
    """Forms, command lines, library logs, and Spark."""

    def test_of_a_config_airflow_keeps_none(self) -> None:
        config = SparkConfig(
            conf={"spark.x.api.key": "hunter22", "spark.y": "http://me:hunter22@h", "spark.z.auth.type": "basic"},
            env_vars={"PGPASSWORD": "hunter22", "HOME": "/me"},
        )
        assert config.serialize() == {
            "conf": {"spark.x.api.key": "***", "spark.y": "http://me:***@h", "spark.z.auth.type": "basic"},
            "env_vars": {"PGPASSWORD": "***", "HOME": "/me"},
        }

    def test_a_command_line_shows_none_even_with_blanks(self) -> None:
        command = ["spark-submit", "--conf", "spark.x.cookie=a hunter22 b", "--conf", "spark.a=b"]
        command.append("http://me:hunter22@h?x=1")
        assert shown_command(command) == ("spark-submit --conf spark.x.cookie=*** --conf spark.a=b http://me:***@h?x=1")
        storage = f'spark.executorEnv.{STORAGE_VARIABLE}={{"a": "hunter22"}}'
        assert shown_command(["--conf", storage]) == f"--conf spark.executorEnv.{STORAGE_VARIABLE}=***"

    @pytest.mark.parametrize(("text", "clean"), [
        ("{'x-api-key': 'hunter22', 'auth_type': 'v4'}", "{'x-api-key': '***', 'auth_type': 'v4'}"),
        ('{"Cookie": "a=b; hunter22"}', '{"Cookie": "***"}'),
        (r"{\"client_secret\": \"hunter22\"}", r"{\"client_secret\": \"***\"}"),
        ("GET /x?apiKey=hunter22&y=1", "GET /x?apiKey=***&y=1"),
        ("Authorization: Bearer hunter22", "Authorization: Bearer ***"),
        ("it said: bearer hunter22hunter22", "it said: bearer ***"),
        ("cannot connect to http://me:hunter22@proxy:3128/x", "cannot connect to http://me:***@proxy:3128/x"),
        ("PUT /bucket/key?uploadId=7", "PUT /bucket/key?uploadId=7"),
        ('x required username="u" password="hunter22";', 'x required username="u" password="***";'),
        ("connect(host=h, password = 'hunter 22', user=u)", "connect(host=h, password = '***', user=u)"),
        ("Driver={X};Pwd={hunt;er22};A=b", "Driver={X};Pwd={***};A=b"),
        ("cannot use jdbc:oracle:thin:scott/hunter22@h now", "cannot use jdbc:oracle:thin:scott/***@h now"),
        ("not valid: -----BEGIN PRIVATE KEY-----\nab+c\n-----END PRIVATE KEY-----", "not valid: ***"),
        (r'{"x":"-----BEGIN PRIVATE KEY-----\nhunter22\n-----END PRIVATE KEY-----"}', '{"x":"***"}'),
        ("cannot read the token: expected a text", "cannot read the token: expected a text"),
        ("basic statistics of the bearer authentication", "basic statistics of the bearer authentication"),
    ])  # fmt: skip
    def test_libraries_log_none(self, text: str, clean: str) -> None:
        assert without_secrets(text) == clean

    @pytest.mark.costly
    @pytest.mark.sample(3)
    @pytest.mark.parametrize(
        "text",
        [
            "a" * 300_000,
            "?" + "secret" * 50_000,
            "'" + "auth-" * 60_000,
            "://:" * 75_000,
            "//" + "a:" * 100_000,
            "bearer " * 40_000,
            "bearer " + "a" * 300_000,
            "https://" + "a" * 300_000,
            "https://" + "a:" * 100_000 + "@/",
            "pwd={" * 60_000,
            'pwd="' * 60_000,
            "pwd='x" * 50_000,
            'pwd="' + '\\"' * 100_000,
            'password=\\"' * 30_000,
            "x=" * 150_000,
            "auth-url=https://" * 18_000,
            "auth-type='" * 30_000,
            "token.ms=1 " * 30_000,
            "password" + " " * 300_000,
            "password=" + ",a" * 150_000,
            "a." * 150_000 + "=x",
            "-----BEGIN PRIVATE KEY-----" * 11_000,
            "-----BEGIN PRIVATE KEY-----" + "-a" * 150_000,
            "jdbc:oracle:thin:a/b" * 15_000,
            "jdbc:oracle:thin:a/" + "@b" * 150_000,
            " ".join(f"password=hunter{number}" for number in range(20_000)),
        ],
    )
    def test_long_texts_take_no_long(self, text: str) -> None:
        started = time.process_time()
        without_secrets(text)
        hide("x", text)
        assert time.process_time() - started < 5

    @pytest.mark.parametrize(
        "location", ["s3://me:hunter22@bucket/x", "http://me:hun/ter@h/x", "HDFS://a@b:hunter22@h/x", "x://me:8020@h"]
    )
    def test_a_location_holds_none(self, location: str) -> None:
        with pytest.raises(InvalidInputError, match="contains a user and a password") as raised:
            check_no_password(location)
        assert "hun" not in str(raised.value)

    def test_other_locations_are_taken(self) -> None:
        for location in ("hdfs://nn:8020/a@b", "abfss://c@lake/x:y@z", "s3://bucket/a:b@c", "/a:b@c", "file:///a:b@c"):
            check_no_password(location)

    @pytest.mark.spark
    def test_java_reads_sparks_pattern_as_python_does(self) -> None:
        names = ["x.API-KEY", "max-keys", "was", "a.sas", "mysig", "header.Accept", "y.header.X", "encryption.key-id"]
        names += [*WORDS, *(f"{one}{sign}{two}" for one in WORDS for two in WORDS for sign in ("", ".", "-_"))]
        program = (
            "import json, sys\n"
            "from pyspark.java_gateway import launch_gateway\n"
            "gateway = launch_gateway()\n"
            "pattern = gateway.jvm.java.util.regex.Pattern.compile(sys.argv[1])\n"
            "print(json.dumps([pattern.matcher(name).find() for name in json.loads(sys.argv[2])]))\n"
            "gateway.shutdown()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, SPARK_PATTERN, json.dumps(names)],
            env={**os.environ, **environment()},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == [is_secret(name) for name in names]
