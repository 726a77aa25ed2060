"""A real HDFS: NameNode and DataNode of Hadoop 3.4.2 from Maven, spoken to by RPC and by WebHDFS."""

import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from tests.services.launch import HOST, Server, free_ports, hadoop_settings, java_home, maven_jars, pom

VERSION = "3.4.2"
_POM = pom(*(f"org.apache.hadoop:hadoop-{part}:{VERSION}" for part in ("common", "hdfs-client", "hdfs")))
_OPENS = [f"java.base/{package}" for package in ("java.lang", "java.util", "java.nio", "java.net", "sun.nio.ch")]
_LOG = """log4j.rootLogger=WARN,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.target=System.err
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


class Hdfs:
    """A NameNode with one DataNode.

    Args:
        permissions: whether the NameNode checks who may do what; then the superuser is who runs the tests.

    Attributes:
        authority: host and port of its RPC, as in `hdfs://<authority>/path`.
        web_authority: the same for WebHDFS.
    """

    def __init__(self, *, permissions: bool = False) -> None:
        self._jars = maven_jars(f"hdfs-{VERSION}", _POM)
        self._java = Path(java_home(11, 17, 21)) / "bin" / "java"
        self._directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-hdfs-"))
        rpc, http, data, data_http, data_ipc = free_ports(5)
        self.authority, self.web_authority = f"{HOST}:{rpc}", f"{HOST}:{http}"
        self._configure(rpc, http, data, data_http, data_ipc, permissions)
        command = self._command("namenode.NameNode", "-format", "-nonInteractive")
        with (self._directory / "format.log").open("wb") as log:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=120)
        self._servers: list[Server] = []
        self.start()

    def start(self) -> None:
        """Start both; ready when the DataNode has reported to the NameNode."""
        log = self._directory
        name = Server(self._command("namenode.NameNode"), log=log / "namenode.log").start(lambda: self._live() >= 0)
        data = Server(self._command("datanode.DataNode"), log=log / "datanode.log").start(lambda: self._live() == 1)
        self._servers = [data, name]

    def stop(self) -> None:
        """End both; `start` brings them back with their files."""
        for server in self._servers:
            server.kill()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _live(self) -> int:
        try:
            url = f"http://{self.web_authority}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
            with urllib.request.urlopen(url, timeout=2) as reply:
                text = reply.read().decode()
        except OSError:
            return -1
        return 1 if '"NumLiveDataNodes" : 1' in text else 0

    def _command(self, program: str, *arguments: str) -> list[str]:
        home = self._directory
        opens = [word for package in _OPENS for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
        options += [f"-Dhadoop.home.dir={home}", f"-Dhadoop.log.dir={home}", f"-Djava.io.tmpdir={home}/tmp", *opens]
        path = f"{home}/conf:{self._jars}/*"
        return [str(self._java), *options, "-cp", path, f"org.apache.hadoop.hdfs.server.{program}", *arguments]

    def _configure(self, rpc: int, http: int, data: int, data_http: int, data_ipc: int, permissions: bool) -> None:
        conf = self._directory / "conf"
        for folder in ("tmp", "conf/webapps/hdfs", "conf/webapps/datanode", "conf/webapps/static"):
            (self._directory / folder).mkdir(parents=True)  # the jars have no web pages, Jetty insists on the folders
        secret = conf / "secret"
        secret.write_text("of no use outside of this test\n")
        core = {
            "fs.defaultFS": f"hdfs://{self.authority}",
            "hadoop.tmp.dir": f"{self._directory}/data",
            "hadoop.http.authentication.signature.secret.file": str(secret),
        }
        hdfs = {
            "dfs.namenode.rpc-address": f"{HOST}:{rpc}",
            "dfs.namenode.rpc-bind-host": HOST,
            "dfs.namenode.http-address": f"{HOST}:{http}",
            "dfs.namenode.http-bind-host": HOST,
            "dfs.datanode.address": f"{HOST}:{data}",
            "dfs.datanode.http.address": f"{HOST}:{data_http}",
            "dfs.datanode.ipc.address": f"{HOST}:{data_ipc}",
            "dfs.datanode.hostname": HOST,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.replication": "1",
            "dfs.permissions.enabled": str(permissions).lower(),
            "dfs.namenode.safemode.extension": "0",
            "dfs.namenode.fs-limits.min-block-size": "1024",
            "dfs.datanode.du.reserved": "0",
            "dfs.heartbeat.interval": "1",
            # What comes by HTTP is closed by the DataNode, which asks before its own report has been heard: 400 ms.
            "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
        }
        (conf / "core-site.xml").write_text(hadoop_settings(core))
        (conf / "hdfs-site.xml").write_text(hadoop_settings(hdfs))
        (conf / "log4j.properties").write_text(_LOG)
