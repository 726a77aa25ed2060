"""A real YARN: ResourceManager and NodeManager of Hadoop 3.4.2 from Maven, with room for two small applications.

Applications run on this machine, with the Python of the tests and pip's Spark; nothing is copied to a cluster.
"""

import json
import shutil
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from airflow_iceberg.jobs.spark.installation import spark_home
from tests.services.launch import HOST, Server, free_ports, hadoop_settings, java_home, maven_jars, pom
from tests.support.java_classes import JVM_OPTIONS

VERSION = "3.4.2"
_PARTS = ("common", *(f"yarn-server-{part}" for part in ("resourcemanager", "nodemanager", "timelineservice")))
_POM = pom(*(f"org.apache.hadoop:hadoop-{part}:{VERSION}" for part in _PARTS))
_OPENS = [f"java.base/{package}" for package in ("java.lang", "java.util", "java.nio", "java.net", "sun.nio.ch")]
_LOG = """log4j.rootLogger=WARN,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.target=System.err
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
RUNNING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")


class Yarn:
    """A ResourceManager, which remembers its applications over a restart, with one NodeManager.

    Attributes:
        address: host and port of its REST API.
        environment: the variables by which spark-submit finds it.
    """

    def __init__(self) -> None:
        self._jars = maven_jars(f"yarn-{VERSION}", _POM)
        self._java = Path(java_home(17, 21))
        self.directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-yarn-"))
        self._ports = free_ports(8)
        self.address = f"{HOST}:{self._ports[0]}"
        conf = self.directory / "conf"
        self._configure(conf)
        self.environment = {"HADOOP_CONF_DIR": str(conf), "YARN_CONF_DIR": str(conf), "SPARK_CONF_DIR": str(conf)}
        inherited = {"SPARK_LOCAL_IP": HOST, "JAVA_HOME": str(self._java)}
        self.manager = Server(self._command("resourcemanager.ResourceManager"), log=self.directory / "manager.log")
        self._node = Server(
            self._command("nodemanager.NodeManager"), log=self.directory / "node.log", env=inherited, cwd=self.directory
        )
        self.start_manager()
        self._node.start(lambda: self._nodes() == 1)

    def start_manager(self) -> None:
        """Start the ResourceManager; ready when it answers."""
        self.manager.start(lambda: self._nodes() >= 0)

    def remove(self) -> None:
        for application in self.applications(*RUNNING):
            self.kill(application["id"])
        self._node.stop()
        self.manager.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """Return what it tells of its applications, the newest first; all, or those in a state."""
        found = (self._ask("apps").get("apps") or {}).get("app") or []
        return sorted(
            (one for one in found if not states or one["state"] in states), key=lambda one: -one["startedTime"]
        )

    def application(self, application_id: str) -> dict[str, Any]:
        return next(one for one in self.applications() if one["id"] == application_id)

    def kill(self, application_id: str) -> None:
        body = json.dumps({"state": "KILLED"}).encode()
        url = f"http://{self.address}/ws/v1/cluster/apps/{application_id}/state?user.name=tests"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def logs(self) -> str:
        """Return what the containers have written."""
        files = sorted((self.directory / "logs").rglob("std*"))
        return "\n".join(f"== {file}\n{file.read_text(errors='replace')}" for file in files)

    def _nodes(self) -> int:
        try:
            return int(self._ask("metrics")["clusterMetrics"]["activeNodes"])
        except OSError:
            return -1

    def _ask(self, what: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{self.address}/ws/v1/cluster/{what}", timeout=30) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    def _command(self, program: str) -> list[str]:
        home = self.directory
        opens = [word for package in _OPENS for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
        options += [f"-Dhadoop.home.dir={home}", f"-Dhadoop.log.dir={home}", f"-Djava.io.tmpdir={home}/tmp", *opens]
        path = f"{home}/conf:{self._jars}/*"
        return [str(self._java / "bin/java"), *options, "-cp", path, f"org.apache.hadoop.yarn.server.{program}"]

    def _configure(self, conf: Path) -> None:
        home = self.directory
        for folder in ("tmp", "conf", "state", "staging"):
            (home / folder).mkdir()
        web, *others = self._ports
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        manager = dict(zip((f"yarn.resourcemanager.{name}" for name in names), others, strict=False))
        node = dict(
            zip(
                (f"yarn.nodemanager.{name}" for name in ("address", "localizer.address", "webapp.address")),
                others[4:],
                strict=True,
            )
        )
        yarn = {
            "yarn.resourcemanager.hostname": HOST,
            "yarn.resourcemanager.webapp.address": f"{HOST}:{web}",
            **{name: f"{HOST}:{port}" for name, port in {**manager, **node}.items()},
            "yarn.resourcemanager.scheduler.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
            ),
            "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "100",
            "yarn.resourcemanager.recovery.enabled": "true",
            "yarn.resourcemanager.store.class": (
                "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
            ),
            "yarn.resourcemanager.fs.state-store.uri": f"file://{home}/state",
            "yarn.scheduler.minimum-allocation-mb": "64",
            "yarn.nodemanager.hostname": HOST,
            "yarn.nodemanager.resource.memory-mb": "8192",
            "yarn.nodemanager.resource.cpu-vcores": "8",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.enable": "false",
            # Looked at once even so: a disk of which nine tenths are used, or reserved for others, is refused.
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
            "yarn.nodemanager.local-dirs": f"{home}/local",
            "yarn.nodemanager.log-dirs": f"{home}/logs",
            "yarn.nodemanager.env-whitelist": "JAVA_HOME,SPARK_LOCAL_IP",
            "yarn.nodemanager.sleep-delay-before-sigkill.ms": "100",
            "yarn.application.classpath": "",
        }
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": f"{home}/data"}
        spark = {
            "spark.yarn.jars": f"local:{spark_home()}/jars/*",
            "spark.yarn.stagingDir": f"file://{home}/staging",
            "spark.yarn.am.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.ui.enabled": "false",
            "spark.pyspark.python": sys.executable,
            **dict.fromkeys(
                (f"spark.{who}.extraJavaOptions" for who in ("driver", "executor", "yarn.am")), JVM_OPTIONS
            ),
            "spark.yarn.scheduler.heartbeat.interval-ms": "200",
            "spark.yarn.report.interval": "200ms",
        }
        (conf / "yarn-site.xml").write_text(hadoop_settings(yarn))
        (conf / "core-site.xml").write_text(hadoop_settings(core))
        (conf / "log4j.properties").write_text(_LOG)
        (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in spark.items()))
