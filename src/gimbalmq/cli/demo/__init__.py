"""`gimbalmq demo`: one group, two languages, a member killed, and Spark, shown on one machine.

`story` tells it, with `members`, `traffic` and Spark (`spark_stream`, `streaming`). What happens is
written down on a `board`; `changes` and `checks` judge it, `tables` and `screen` show it.
"""
