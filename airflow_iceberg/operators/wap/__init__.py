"""Write, audit, publish: the task group (`group`), and operators for use without it."""
