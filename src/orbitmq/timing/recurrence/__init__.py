"""Recurring messages: cron expressions and intervals, the identity of every run, what changes and what is written down.

Read in this order: `rule` (what can be asked for), `cron_times` over `zones` (which instants that means), `schedule` (runs and their
identities), `state` (create, replace, pause, resume, delete), `turns` (what happens now), `records` (the stored form). All of these
neither store nor send. Then `book` (what holds, and which records say so), `agenda` (whose run is next), `reading` (finding
the book in the log) and `runner`, which carries turns out.
"""
