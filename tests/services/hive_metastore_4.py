"""A real Hive Metastore 4.0.1, fetched through Maven once, on Derby or on a PostgreSQL; loopback only.

Needs mvn and a Java 17 or 21. On Derby, locks that are asked for at the same time can stand in each other's way inside
the metastore for minutes: races for locks need a PostgreSQL.
"""

import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.services.hive_metastore import HiveMetastore
from tests.services.launch import ALONE, HOST, Server, cached, free_ports, hadoop_settings, java_home, pom

VERSION = "4.0.1"
HADOOP = "3.3.6"
_PACKAGE = "org.apache.hadoop.hive.metastore"
_SERVER = "hive-standalone-metastore-server"
# The server; Hadoop's client, and what a full Hadoop installation would add to the bundle.
_POM = pom(
    f"org.apache.hive:{_SERVER}:{VERSION}<classifier>bin</classifier><type>tar.gz</type>{ALONE}",
    f"org.apache.hadoop:hadoop-hdfs:{HADOOP}{ALONE}",
    f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
    f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
    "javax.servlet:javax.servlet-api:3.1.0",
    "com.google.code.gson:gson:2.9.0",
    "org.codehaus.jettison:jettison:1.5.4",
    "commons-cli:commons-cli:1.5.0",
    "commons-io:commons-io:2.11.0",
    "commons-collections:commons-collections:3.2.2",
    "org.apache.httpcomponents:httpclient:4.5.13",
)
_LOGGING = """status = WARN
appenders = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %5p [%t] %c{2}: %m%n
rootLogger.level = INFO
rootLogger.appenderRefs = root
rootLogger.appenderRef.root.ref = console
"""


def metastore_4(
    folder: Path, *, database: tuple[str, str, str] | None = None, conf: Mapping[str, str] | None = None
) -> HiveMetastore:
    """Start a metastore with a new schema.

    Args:
        folder: for its configuration, its warehouse and its Derby.
        database: (JDBC url, user, password) of an empty PostgreSQL database instead of Derby.
        conf: properties of the metastore.
    """
    home = cached(f"hive-metastore-{VERSION}", _fetch)
    (port,) = free_ports(1)
    for name in ("conf", "tmp", "managed", "external"):
        (folder / name).mkdir(parents=True)
    derby = (f"jdbc:derby:;databaseName={folder}/derby;create=true", "APP", "mine")
    _configure(folder, port, database or derby, conf or {}, "org.postgresql.Driver" if database else "")
    kind = "postgres" if database else "derby"
    made = subprocess.run(
        _java(home, folder, f"{_PACKAGE}.tools.schematool.MetastoreSchemaTool", "-initSchema", "-dbType", kind),
        env={"METASTORE_HOME": str(home), "PATH": "/usr/bin:/bin"},
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=300,
    )
    if made.returncode:
        raise RuntimeError(f"the schema of the metastore could not be made:\n{(made.stdout + made.stderr)[-3000:]}")
    command = _java(home, folder, f"{_PACKAGE}.HiveMetaStore", "-p", str(port))
    server = Server(command, log=folder / "metastore.log", cwd=folder, env={"METASTORE_HOME": str(home)})
    metastore = HiveMetastore(server, port)
    metastore.start()
    return metastore


def metastore_4_jars() -> Path:
    """Return the folder of its jars, of which a Spark needs the client to speak with it."""
    return cached(f"hive-metastore-{VERSION}", _fetch) / "lib"


def _java(home: Path, folder: Path, *arguments: str) -> list[str]:
    opens = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "net", "nio")]
    return [
        f"{java_home(17, 21)}/bin/java",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={folder}/tmp",
        f"-Dderby.stream.error.file={folder}/derby.log",
        *opens,
        "-cp",
        f"{folder}/conf:{home}/lib/*",
        *arguments,
    ]


def _configure(folder: Path, port: int, database: tuple[str, str, str], conf: Mapping[str, str], driver: str) -> None:
    url, user, password = database
    settings = {
        "metastore.thrift.port": str(port),
        "metastore.thrift.bind.host": HOST,
        "javax.jdo.option.ConnectionURL": url,
        "javax.jdo.option.ConnectionDriverName": driver or "org.apache.derby.jdbc.EmbeddedDriver",
        "javax.jdo.option.ConnectionUserName": user,
        "javax.jdo.option.ConnectionPassword": password,
        # side by side: an external table may not lie under the managed ones
        "metastore.warehouse.dir": f"file://{folder}/managed",
        "metastore.warehouse.external.dir": f"file://{folder}/external",
        "metastore.expression.proxy": f"{_PACKAGE}.DefaultPartitionExpressionProxy",
        "metastore.async.log.enabled": "false",
        "metastore.metastore.event.db.notification.api.auth": "false",
        # what frees the locks of dead clients
        "metastore.housekeeping.threads.on": "true",
        "metastore.task.threads.always": f"{_PACKAGE}.events.EventCleanerTask",
        "metastore.task.threads.remote": f"{_PACKAGE}.txn.service.AcidHouseKeeperService",
        "metastore.acid.housekeeper.interval": "1s",
        "metastore.acid.housekeeper.start": "1s",
        **conf,
    }
    (folder / "conf" / "metastore-site.xml").write_text(hadoop_settings(settings))
    for name in ("log4j2.properties", "metastore-log4j2.properties"):
        (folder / "conf" / name).write_text(_LOGGING)


def _fetch(home: Path) -> None:
    """Fill a folder with the bundle: its jars, the ones beside them, and its SQL scripts."""
    (home / "pom.xml").write_text(_POM)
    command = ["mvn", "-q", "-B", "-f", "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={home}/fetched"]
    subprocess.run(command, cwd=home, check=True, stdin=subprocess.DEVNULL, timeout=1200)
    (bundle,) = (home / "fetched").glob(f"{_SERVER}-*-bin.tar.gz")
    with tarfile.open(bundle) as archive:
        archive.extractall(home / "unpacked", filter="data")
    (top,) = (home / "unpacked").iterdir()
    for part in ("lib", "scripts"):
        shutil.move(top / part, home / part)
    there = {_artifact(jar) for jar in (home / "lib").glob("*.jar")}
    for jar in (home / "fetched").glob("*.jar"):
        if _artifact(jar) not in there:  # the bundle's own version of a jar wins
            shutil.move(jar, home / "lib" / jar.name)
    for script in (home / "scripts").rglob("hive-schema-*.derby.sql"):
        # Derby compares no CLOBs, so that every swap with an expected parameter would fail
        text = re.sub(r'("TABLE_PARAMS" \(.*?"PARAM_VALUE") CLOB', r"\1 VARCHAR(32672)", script.read_text())
        script.write_text(text)
    shutil.rmtree(home / "fetched")
    shutil.rmtree(home / "unpacked")


def _artifact(jar: Path) -> str:
    return re.sub(r"-[0-9][0-9.]*(-[A-Za-z0-9]+)?\.jar$", "", jar.name)
