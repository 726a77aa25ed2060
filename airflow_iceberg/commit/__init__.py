"""MAKE IT TRUE: actions describe a change against whatever the table is now, the engine lands it exactly once."""
