"""Sockets, and nothing else: addresses, and blocking connections."""
