"""Replication: copies of a broker's log, and what a broker promises because of them. No sockets, no clock, no files.

`classic` is the link between one master and one slave as RocketMQ's brokers speak it. `copies` is the master's view of all slaves: who
counts; `acknowledgements` is what follows for a send; `log_ages` tells how long ago the log ended where. `tickets` say who a slave is,
`slave_callers` who may connect without. `epoch_marks` find where two logs part.

The replicated group, which no server drives yet: `view` is who leads, with whom; `replica` one member, as steps and effects
(`replica_steps`), with
`following` and `counting` for its two roles and `engine_questions` for who decides; `member` and `attendance` are its time.
"""
