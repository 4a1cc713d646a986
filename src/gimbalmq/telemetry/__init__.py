"""Measuring: instruments that count, the metrics that exist, their text form, an HTTP endpoint."""
