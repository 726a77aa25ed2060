"""Which variables of its environment a process hands on to the programs that it starts: Spark, Java, Python workers.

A list of what is kept, since nobody knows what else is in the environment of an Airflow worker. A variable whose name
is on it is kept whatever it holds: a proxy may need a login. One that only begins like one is kept if it is no secret.
Airflow's own are never kept. Standard library only, as everything that finds Spark. Not here: the option by which users
name more (`backends.environment`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from airflow_iceberg.errors import InvalidInputError
from airflow_iceberg.redaction import is_secret_variable, secrets_of


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# AIRFLOW_CONN_…, AIRFLOW__CORE__FERNET_KEY, _AIRFLOW_WWW_USER_PASSWORD, __AIRFLOW_SUPERVISOR_FD.
_OF_AIRFLOW = re.compile(r"(?i)_*AIRFLOW")
_NAMES = frozenset(
    _words(
        # the user and the machine
        "PATH HOME USER LOGNAME USERNAME SHELL PWD OLDPWD HOSTNAME TERM TMPDIR TMP TEMP TZ TZDIR LANG LANGUAGE LOCPATH "
        "LD_LIBRARY_PATH LD_PRELOAD DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH NSS_WRAPPER_PASSWD NSS_WRAPPER_GROUP "
        "XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR "
        # certificates and proxies
        "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GRPC_DEFAULT_SSL_ROOTS_FILE_PATH OPENSSL_CONF "
        "OPENSSL_MODULES HTTPLIB2_CA_CERTS "
        "HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY GRPC_PROXY NO_GRPC_PROXY "
        # Java, also with the password of a trust store
        "JAVA_HOME JRE_HOME JDK_HOME CLASSPATH JAVA_OPTS JAVA_OPTIONS _JAVA_OPTIONS JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS "
        "SPARK_SUBMIT_OPTS SPARK_JAVA_OPTS SPARK_DAEMON_JAVA_OPTS HADOOP_OPTS HADOOP_CLIENT_OPTS HDFS_OPTS YARN_OPTS "
        "LIBHDFS_OPTS PYSPARK_SUBMIT_ARGS "
        # files with tokens and tickets
        "HADOOP_TOKEN_FILE_LOCATION KRB5CCNAME KRB5_CONFIG KRB5_KTNAME KRB5_CLIENT_KTNAME KUBECONFIG "
        # Python
        "VIRTUAL_ENV OPENBLAS_NUM_THREADS MKL_NUM_THREADS NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS"
    )
)
_BEGINNINGS = _words(
    "SPARK_ PYSPARK_ HADOOP_ HDFS_ LIBHDFS YARN_ MAPRED_ HIVE_ KRB5 JAVA_ JDK_ PYTHON PYENV_ CONDA_ LC_ KUBERNETES_ "
    "ARROW_ MALLOC_ MIMALLOC_ OMP_"
)


class _Store:
    """The variables of a kind of store.

    Args:
        properties: the beginnings of the properties that take the place of the variables.
        beginnings: those of the variables.
        credentials: names that lead to credentials, which are kept if the store has none of its own.
        settings: the beginnings of names that never lead to any.
    """

    def __init__(self, properties: str, *, beginnings: str, credentials: str, settings: str) -> None:
        self.properties, self.beginnings = _words(properties), _words(beginnings)
        self.credentials, self.settings = frozenset(_words(credentials)), _words(settings)


_STORES = (
    _Store(
        "s3. client.",
        beginnings="AWS_ ECS_CONTAINER_METADATA_URI",
        credentials="AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN AWS_SECURITY_TOKEN AWS_ACCESS_KEY "
        "AWS_SECRET_KEY AWS_CREDENTIAL_EXPIRATION AWS_SHARED_CREDENTIALS_FILE AWS_CREDENTIAL_PROFILES_FILE "
        "AWS_WEB_IDENTITY_TOKEN_FILE AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_CONTAINER_CREDENTIALS_FULL_URI "
        "AWS_CONTAINER_AUTHORIZATION_TOKEN AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE BOTO_CONFIG",
        settings="AWS_REGION AWS_DEFAULT_REGION AWS_ENDPOINT_URL AWS_CA_BUNDLE AWS_STS_REGIONAL_ENDPOINTS "
        "AWS_MAX_ATTEMPTS AWS_RETRY_MODE AWS_USE_FIPS_ENDPOINT AWS_USE_DUALSTACK_ENDPOINT AWS_EC2_METADATA_ "
        "AWS_METADATA_SERVICE_ AWS_REQUEST_CHECKSUM_CALCULATION AWS_RESPONSE_CHECKSUM_VALIDATION AWS_EXECUTION_ENV",
    ),
    _Store(
        "adls.",
        beginnings="AZURE_",
        credentials="AZURE_CLIENT_SECRET AZURE_CLIENT_CERTIFICATE_PATH AZURE_CLIENT_CERTIFICATE_PASSWORD "
        "AZURE_PASSWORD AZURE_FEDERATED_TOKEN_FILE AZURE_STORAGE_ACCOUNT_KEY AZURE_STORAGE_KEY "
        "AZURE_STORAGE_SAS_TOKEN AZURE_STORAGE_CONNECTION_STRING IDENTITY_ENDPOINT IDENTITY_HEADER "
        "IDENTITY_SERVER_THUMBPRINT IMDS_ENDPOINT MSI_ENDPOINT MSI_SECRET",
        settings="AZURE_AUTHORITY_HOST AZURE_REGIONAL_AUTHORITY_NAME AZURE_LOG_LEVEL",
    ),
    _Store(
        "gcs.",
        beginnings="GOOGLE_ CLOUDSDK_ GCE_METADATA_ GCLOUD_PROJECT STORAGE_EMULATOR_HOST",
        credentials="GOOGLE_APPLICATION_CREDENTIALS",
        settings="GOOGLE_CLOUD_PROJECT GOOGLE_CLOUD_QUOTA_PROJECT GOOGLE_CLOUD_UNIVERSE_DOMAIN GOOGLE_API_USE_ "
        "GCLOUD_PROJECT STORAGE_EMULATOR_HOST",
    ),
    _Store(
        "hf.",
        beginnings="HF_ HUGGINGFACE_",
        credentials="HF_TOKEN HF_TOKEN_PATH HUGGING_FACE_HUB_TOKEN",
        settings="HF_ENDPOINT HF_HUB_",
    ),
)


def kept_variables(
    worker: Mapping[str, str], storage: Mapping[str, str] | None = None, more: Collection[str] = ()
) -> dict[str, str]:
    """Return the variables that a process hands on.

    Args:
        worker: all of its own.
        storage: the properties by which the table's files are reached. Variables that lead to credentials of a store
            are only kept if these have none for it.
        more: further names, as of `checked_names`.
    """
    named = [name for name in more if not name.endswith("*")]
    begun = tuple(name.removesuffix("*") for name in more if name.endswith("*"))
    own = {store: _has_secrets(storage or {}, store.properties) for store in _STORES}
    kept = {}
    for name, value in worker.items():
        if _OF_AIRFLOW.match(name):
            continue
        is_like_one = _is_like_one(name.upper(), own) or (begun and name.startswith(begun))
        if name in named or _is_on_the_list(name.upper(), own) or (is_like_one and not is_secret_variable(name, value)):
            kept[name] = value
    return kept


def checked_names(text: str, *, what: str) -> tuple[str, ...]:
    """Return the names in a text, between commas or blanks; one that ends with * is for all that begin like it.

    Raises:
        InvalidInputError: it is no list of names, or names variables of Airflow.
    """
    names = tuple(re.split(r"[\s,]+", text.strip(" \t\n,"))) if text.strip(" \t\n,") else ()
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.()%-]*\*?", name):
            raise InvalidInputError(
                f"{what} has {name!r}, expected names of variables, between commas, such as NLS_LANG or ORACLE_*"
            )
        if _OF_AIRFLOW.match(name):
            raise InvalidInputError(
                f"{what} has {name!r}, which is Airflow's own: its connections, keys and database are not for jobs"
            )
    return names


def _is_on_the_list(name: str, own: Mapping[_Store, bool]) -> bool:
    return name in _NAMES or any(name in store.credentials for store, has_own in own.items() if not has_own)


def _is_like_one(name: str, own: Mapping[_Store, bool]) -> bool:
    beginnings = _BEGINNINGS
    for store, has_own in own.items():
        beginnings += store.settings if has_own else store.beginnings + store.settings
    return name.startswith(beginnings)


def _has_secrets(properties: Mapping[str, str], beginnings: Collection[str]) -> bool:
    return bool(secrets_of({key: value for key, value in properties.items() if key.startswith(tuple(beginnings))}))
