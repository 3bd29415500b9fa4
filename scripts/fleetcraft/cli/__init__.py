"""The `fleetcraft` command; the only place that knows both wings."""
