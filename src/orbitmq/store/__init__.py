"""The message store in RocketMQ's file formats: commit log, consume queues, index, recovery, retention.

`store` is the whole. Writing: `placing`, `commit_log`, `dispatch`, `consume_queue`, `index`. What is safe when: `flushing`, `durability`.
Saves, so that the next start is short: `mark`, `saving`, `written_saves`, `durable_saves`. A start: `opening`, `recovery`. Room on the
disk: `retention`, `housekeeping`, `reserve`, `shortage`, `writability`. Reading: `reads`, `reading`. Stores that nobody serves:
`inspection`, `check`, `dump`, `stat`. All of it goes through `files`; what blocks runs on a `worker`.
"""
