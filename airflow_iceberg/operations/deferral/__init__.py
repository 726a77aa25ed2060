"""Work whose jobs outlive the process of their task, and that a later process goes on with."""
