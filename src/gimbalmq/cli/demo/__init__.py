"""`gimbalmq demo`: one group, two languages, a member killed, and Spark, shown on one machine.

`story` tells it, with the processes of `members`, `traffic` and `counting`. What happens is
written down on a `board`; `changes` and `checks` judge it, `tables` and `screen` show it.
"""
