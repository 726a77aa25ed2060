"""The documents between the process and a job: `JobPlan` and `JobResult`, versioned JSON."""
