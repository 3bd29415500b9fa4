"""Evidence: what makes every number of a campaign resolve, by hash, to the records that it was computed from."""
