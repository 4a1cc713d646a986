"""The push consumer's decisions: events in, effects out (see `machine` for the theory)."""
