"""Pure decisions: who owns which queue, what moves, what is pulled; values in, values out."""
