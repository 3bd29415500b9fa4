"""Test-time search: the seeds that candidates are drawn from, and the choice among them."""
