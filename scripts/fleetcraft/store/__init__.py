"""The content-addressed store: artifacts on scratch, each with its record, named by what made them."""
