"""The REST server of Iceberg Java's own tests, over a catalog in SQLite and files on this machine, on loopback.

Its jars come through Maven once; a launcher of a few lines is compiled with javac, since the server's own main binds
every interface. Needs mvn and a Java 17 with javac.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.services.launch import ALONE, HOST, Server, Service, answers, cached, free_ports, java_home, maven_jars, pom

ICEBERG = "1.11.0"
JETTY = "12.1.5"

# Of the clouds' modules only names of properties are used.
_POM = pom(
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}<classifier>test-fixtures</classifier>",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}<classifier>tests</classifier>",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    *(f"org.apache.iceberg:iceberg-{cloud}:{ICEBERG}{ALONE}" for cloud in ("aws", "azure", "gcp")),
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
    *(f"org.eclipse.jetty.compression:jetty-compression-{part}:{JETTY}" for part in ("server", "gzip")),
    *(f"org.apache.hadoop:hadoop-client-{part}:3.4.1" for part in ("api", "runtime")),
    "org.xerial:sqlite-jdbc:3.47.1.0",
    "org.slf4j:slf4j-simple:2.0.16",
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


class IcebergRest(Service):
    """One server with a warehouse in a directory of its own.

    Attributes:
        uri: of the catalog; nobody is asked who he is.
        warehouse: location under which its tables lie.
    """

    def __init__(self) -> None:
        java = Path(java_home(17, 21)) / "bin" / "java"
        jars = maven_jars(f"iceberg-rest-{ICEBERG}", _POM)
        classes = _classes(jars)
        super().__init__("rest")
        (self.directory / "warehouse").mkdir()
        self.warehouse = f"file://{self.directory / 'warehouse'}"
        (self.port,) = free_ports(1)
        self.uri = f"http://{HOST}:{self.port}"
        self._server = Server(
            [java, "-Xmx512m", *_QUIET, "-cp", f"{classes}:{jars}/*", "Loopback", str(self.port)],
            log=self.directory / "log",
            env={
                "CATALOG_WAREHOUSE": self.warehouse,
                "CATALOG_URI": f"jdbc:sqlite:file:{self.directory / 'catalog.db'}",
                "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
            },
        )

    def start(self) -> IcebergRest:
        self._server.start(lambda: answers(f"{self.uri}/v1/config"))
        return self

    @property
    def catalog_properties(self) -> dict[str, str]:
        return {"type": "rest", "uri": self.uri, "warehouse": self.warehouse}


_QUIET = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]


def _classes(jars: Path) -> Path:
    def fill(directory: Path) -> None:
        source = directory / "Loopback.java"
        source.write_text(_LAUNCHER)
        subprocess.run(["javac", "-d", directory, "-cp", f"{jars}/*", source], check=True, timeout=120)

    return cached(f"iceberg-rest-{ICEBERG}-launcher", fill)
