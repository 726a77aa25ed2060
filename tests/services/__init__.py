"""Real servers for the tests, one module each, started on the loopback interface and stopped with the session."""
