"""The worker: the agent on one node that claims tasks, runs them, and reports what happened."""
