"""Immutable values that every layer shares: queues, messages, routes, groups."""
