"""Recurring messages: cron expressions and intervals, the identity of every run, what changes and what is written down.

Read in this order: `rule` (what can be asked for), `cron_times` over `zones` (which instants that means), `schedule` (runs and their
identities), `state` (create, replace, pause, resume, delete), `turns` (what happens now), `records` (the stored form).

Nothing here stores or sends: the timer engine asks for turns and carries them out.
"""
