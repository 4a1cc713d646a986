"""Drivers of flows and machines: on the calling thread, on an engine thread."""
