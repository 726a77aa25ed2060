"""Real Hive Metastores 2.3, from the jars of a pyspark wheel, each on its own Derby; 4.0.1 is in `hive_metastore_4`.

The 2.3.10 of pyspark 4 refuses a swap whose expected parameter doesn't hold; the 2.3.9 of pyspark 3.5 ignores it.
Started as Hive starts it, a 2.3 listens on all interfaces; `python -m tests.services.hive_metastore` starts it from its
parts, through py4j, on the loopback interface. That needs no compiler and no jar beside those of the wheel.
"""

import glob
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.services.launch import HOST, Server, free_ports, java_home, listens


class HiveMetastore:
    """A metastore that runs until `stop`; its tables stay in the folder.

    Attributes:
        uri: thrift://127.0.0.1:port.
        others: the same for each of the ports where it speaks otherwise.
    """

    def __init__(self, server: Server, port: int, *others: int) -> None:
        self.server = server
        self.port = port
        self.uri = f"thrift://{HOST}:{port}"
        self.others = tuple(f"thrift://{HOST}:{other}" for other in others)
        self._ports = (port, *others)

    def start(self) -> None:
        self.server.start(lambda: all(listens(port) for port in self._ports), seconds=120)

    def stop(self) -> None:
        self.server.kill()  # it has no state of its own, and a metastore takes its time to say goodbye


def metastore_2_3(
    folder: Path,
    *,
    jars: str | None = None,
    java: tuple[int, ...] = (17, 21),
    conf: Mapping[str, str] | None = None,
    transports: Sequence[Mapping[str, str]] = (),
) -> HiveMetastore:
    """Start the metastore of a pyspark wheel's jars.

    Args:
        folder: for its database and its warehouse; may be one of an earlier run.
        jars: the folder of the jars; those of the pyspark here, 2.3.10, if None.
        java: versions that it runs on.
        conf: properties of Hive.
        transports: those by which it is to be reached at further ports, one each.
    """
    port, *others = free_ports(1 + len(transports))
    folder.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", "tests.services.hive_metastore"]
    ways = [(port, {}), *zip(others, map(dict, transports), strict=True)]
    command = [*program, str(folder), jars or _own_jars(), json.dumps(dict(conf or {})), json.dumps(ways)]
    root = Path(__file__).resolve().parents[2]
    env = {"JAVA_HOME": java_home(*java), "PYTHONPATH": str(root)}
    metastore = HiveMetastore(Server(command, log=folder / "metastore.log", cwd=root, env=env), port, *others)
    metastore.start()
    return metastore


def metastore_2_3_9(folder: Path) -> HiveMetastore:
    """Start the 2.3.9 of pyspark 3.5 from the environment for Iceberg Java; it ignores expected parameters."""
    from tests.support.iceberg_java_env import java_python

    code = "import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), 'jars'))"
    jars = subprocess.run([str(java_python()), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return metastore_2_3(folder, jars=jars, java=(8, 11, 17))


def _own_jars() -> str:
    import pyspark

    return os.path.join(os.path.dirname(pyspark.__file__), "jars")


# -- the program that is the server ------------------------------------------------------------------------------------


def main(folder: str, jars: str, conf: Mapping[str, str], ways: Sequence[tuple[int, Mapping[str, str]]]) -> None:
    """Be the server: a JVM with the jars, and in it the metastore's handler behind sockets of our own."""
    from py4j.java_gateway import JavaGateway

    java = os.path.join(os.environ["JAVA_HOME"], "bin", "java")
    opens = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("net", "lang", "util")]
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    options = ["-Xmx512m", "-XX:+UseSerialGC", f"-Dderby.stream.error.file={folder}/derby.log"]
    gateway = JavaGateway.launch_gateway(
        jarpath=glob.glob(os.path.join(jars, "py4j-*.jar"))[0],
        classpath=os.path.join(jars, "*"),
        java_path=java,
        javaopts=options if '"1.8' in version else options + opens,
        die_on_exit=True,
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
    )
    jvm = gateway.jvm
    for name, value in _settings(folder).items():
        jvm.System.setProperty(name, value)
    hive_conf = jvm.org.apache.hadoop.hive.conf.HiveConf()
    for name, value in conf.items():
        hive_conf.set(name, value)
    hive = jvm.org.apache.hadoop.hive.metastore
    done = Path(folder, "metastore_db", ".locks_made")
    if not done.exists():
        hive.txn.TxnDbUtil.prepDb(hive_conf)  # the tables of locks and transactions, which no one else makes
        done.touch()
    reaper_seconds = float(conf.get("hive.timedout.txn.reaper.interval", "1s").rstrip("s"))
    threading.Thread(target=_reap, args=(jvm, hive_conf, reaper_seconds), daemon=True).start()
    handler = hive.HiveMetaStore.newRetryingHMSHandler("test", hive_conf, True)
    servers = [threading.Thread(target=_serve, args=(jvm, handler, port, {**conf, **way})) for port, way in ways]
    for server in servers:
        server.start()
    for server in servers:
        server.join()


def _settings(folder: str) -> dict[str, str]:
    return {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore_db;create=true",
        "hive.metastore.schema.verification": "false",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.warehouse.dir": f"{folder}/warehouse",
        "hive.async.log.enabled": "false",
        # the default of Hive 2.3, bonecp, is not among the jars of pyspark 4
        "datanucleus.connectionPoolingType": "hikaricp",
    }


def _reap(jvm: Any, hive_conf: Any, seconds: float) -> None:
    """Free the locks of dead clients now and then, which is a service of its own in Hive."""
    store = jvm.org.apache.hadoop.hive.metastore.txn.TxnUtils.getTxnStore(hive_conf)
    while True:
        time.sleep(seconds)
        store.performTimeOuts()


def _serve(jvm: Any, handler: Any, port: int, way: Mapping[str, str]) -> None:
    """Answer at a port, in the way that Hive's own properties ask for."""
    thrift = jvm.org.apache.thrift
    processor = jvm.org.apache.hadoop.hive.metastore.TSetIpAddressProcessor(handler)
    address = jvm.java.net.InetSocketAddress(HOST, port)
    if way.get("hive.metastore.use.SSL") == "true":
        parameters = thrift.transport.TSSLTransportFactory.TSSLTransportParameters()
        parameters.setKeyStore(*(way[f"hive.metastore.keystore.{part}"] for part in ("path", "password")))
        socket = thrift.transport.TSSLTransportFactory.getServerSocket(port, 0, address.getAddress(), parameters)
    else:
        socket = thrift.transport.TServerSocket(address)
    is_framed = way.get("hive.metastore.thrift.framed.transport.enabled") == "true"
    is_compact = way.get("hive.metastore.thrift.compact.protocol.enabled") == "true"
    # where framing lies in the thrift of pyspark 4
    framed = thrift.transport.layered.TFramedTransport
    transports = framed.Factory() if is_framed else thrift.transport.TTransportFactory()
    protocols = thrift.protocol.TCompactProtocol if is_compact else thrift.protocol.TBinaryProtocol
    arguments = thrift.server.TThreadPoolServer.Args(socket).processor(processor)
    arguments = arguments.transportFactory(transports).protocolFactory(protocols.Factory()).maxWorkerThreads(200)
    thrift.server.TThreadPoolServer(arguments).serve()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4]))
