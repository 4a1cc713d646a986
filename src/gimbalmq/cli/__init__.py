"""The command line. `main` is the entry point, `root` the command tree, the rest its branches."""
