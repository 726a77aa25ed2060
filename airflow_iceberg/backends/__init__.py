"""Where jobs run: in this process, through spark-submit or on Spark Connect; chosen by the connection."""
