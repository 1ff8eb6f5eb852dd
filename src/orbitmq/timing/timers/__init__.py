"""Timer messages of one store: what is pending, and delivering it at the exact millisecond.

`timers` puts all of it together. What is pending: `ledger` over `pending` (a bit for each record), kept on the disk by `pending_journal`
and read again by `recovery`. Some time before it is due a message comes into memory by `feeding`, waits in `soon`, has its record
fetched by `read_ahead`, and is delivered by `delivery`. Messages on their way out stand in `leaving`, until the log says that
they have left. `changes` says what a recall or a reschedule writes. `exchange` is for RocketMQ's timer files.
"""
