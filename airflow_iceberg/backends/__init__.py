"""Where jobs run: in this process or through spark-submit; chosen by the connection."""
