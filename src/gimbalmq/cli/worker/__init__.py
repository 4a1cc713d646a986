"""`gimbalmq worker`: one member of a group per process, kept running."""
