"""Recurring messages: cron expressions and intervals, the identity of every run, what changes and what is written down.

Read in this order: `rule` (what can be asked for), `cron_times` (which instants that means in a zone), `schedule` (runs and their
identities), `state` (create, replace, pause, resume, delete), `turns` (whose run is next, and what happens now), `records` (the stored
form). All of these neither store nor send. Then `book` (what holds, and which records say so), `reading` (the book, from the log) and
`runner`, which carries turns out.
"""
