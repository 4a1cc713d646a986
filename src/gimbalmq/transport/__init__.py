"""Sockets, and nothing else: addresses, TLS, and connections that wait or do not."""
