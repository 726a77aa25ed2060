"""The REST server of Iceberg Java's own tests, over a catalog in SQLite and files on this machine, on loopback.

Its jars come through Maven once; a launcher of a few lines is compiled with javac, since the server's own main binds
every interface. Needs mvn and a Java 17 with javac.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.services.launch import HOST, Server, answers, cached, free_ports, java_home, maven_jars

ICEBERG = "1.11.0"
JETTY = "12.1.5"

_POM = """
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>iceberg-rest</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {dependencies}
  </dependencies>
</project>
"""

# (group, artifact, version, classifier, without what it depends on). The last: only names of properties are used.
_DEPENDENCIES = (
    ("org.apache.iceberg", "iceberg-open-api", ICEBERG, "test-fixtures", False),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, "tests", False),
    ("org.apache.iceberg", "iceberg-core", ICEBERG, "", False),
    ("org.apache.iceberg", "iceberg-aws", ICEBERG, "", True),
    ("org.apache.iceberg", "iceberg-azure", ICEBERG, "", True),
    ("org.apache.iceberg", "iceberg-gcp", ICEBERG, "", True),
    ("org.eclipse.jetty.ee10", "jetty-ee10-servlet", JETTY, "", False),
    ("org.eclipse.jetty.compression", "jetty-compression-server", JETTY, "", False),
    ("org.eclipse.jetty.compression", "jetty-compression-gzip", JETTY, "", False),
    ("org.apache.hadoop", "hadoop-client-api", "3.4.1", "", False),
    ("org.apache.hadoop", "hadoop-client-runtime", "3.4.1", "", False),
    ("org.xerial", "sqlite-jdbc", "3.47.1.0", "", False),
    ("org.slf4j", "slf4j-simple", "2.0.16", "", False),
)

# The fixture's classes are visible to their package only, hence the reflection.
_LAUNCHER = """
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import jakarta.servlet.Servlet;
import org.eclipse.jetty.compression.gzip.GzipCompression;
import org.eclipse.jetty.compression.server.CompressionHandler;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

public class Loopback {
  static Object make(String name, Object... arguments) throws Exception {
    Constructor<?> constructor = Class.forName("org.apache.iceberg.rest." + name).getDeclaredConstructors()[0];
    constructor.setAccessible(true);
    return constructor.newInstance(arguments);
  }

  public static void main(String[] arguments) throws Exception {
    Object fixture = make("RESTCatalogServer");
    Method opens = fixture.getClass().getDeclaredMethod("initializeBackendCatalog");
    opens.setAccessible(true);
    Object adapter = make("RESTServerCatalogAdapter", opens.invoke(fixture));
    Servlet servlet = (Servlet) make("RESTCatalogServlet", adapter);

    ServletContextHandler handler = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    handler.addServlet(new ServletHolder(servlet), "/*");
    CompressionHandler compression = new CompressionHandler();
    compression.putCompression(new GzipCompression());
    handler.insertHandler(compression);

    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.parseInt(arguments[0]));
    server.addConnector(connector);
    server.setHandler(handler);
    server.start();
    server.join();
  }
}
"""


class IcebergRest:
    """One server with a warehouse in a directory of its own.

    Attributes:
        uri: of the catalog; nobody is asked who he is.
        warehouse: location under which its tables lie.
    """

    def __init__(self) -> None:
        java = Path(java_home(17, 21)) / "bin" / "java"
        jars = maven_jars(f"iceberg-rest-{ICEBERG}", _POM.format(dependencies=_dependencies()))
        classes = _classes(jars)
        self._directory = Path(tempfile.mkdtemp(prefix="airflow-iceberg-rest-"))
        (self._directory / "warehouse").mkdir()
        self.warehouse = f"file://{self._directory / 'warehouse'}"
        (self.port,) = free_ports(1)
        self.uri = f"http://{HOST}:{self.port}"
        self._server = Server(
            [java, "-Xmx512m", *_QUIET, "-cp", f"{classes}:{jars}/*", "Loopback", str(self.port)],
            log=self._directory / "log",
            env={
                "CATALOG_WAREHOUSE": self.warehouse,
                "CATALOG_URI": f"jdbc:sqlite:file:{self._directory / 'catalog.db'}",
                "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
            },
        )

    def start(self) -> IcebergRest:
        self._server.start(lambda: answers(f"{self.uri}/v1/config"))
        return self

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back with its tables."""
        self._server.kill()

    def stop(self) -> None:
        self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def catalog_properties(self) -> dict[str, str]:
        """What `load_catalog` needs."""
        return {"type": "rest", "uri": self.uri, "warehouse": self.warehouse}


_QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


def _dependencies() -> str:
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    return "\n    ".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{f'<classifier>{classifier}</classifier>' if classifier else ''}{alone if is_alone else ''}</dependency>"
        for group, artifact, version, classifier, is_alone in _DEPENDENCIES
    )


def _classes(jars: Path) -> Path:
    def fill(directory: Path) -> None:
        source = directory / "Loopback.java"
        source.write_text(_LAUNCHER)
        subprocess.run(["javac", "-d", directory, "-cp", f"{jars}/*", source], check=True, timeout=120)

    return cached(f"iceberg-rest-{ICEBERG}-launcher", fill)
