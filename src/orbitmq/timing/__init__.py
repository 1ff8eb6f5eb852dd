"""When a message falls due, and bringing it to its topic.

Rooms: `levels` (delay levels), `timers` (timer messages: what is pending, what is near its time, delivery), `index` (pending timer messages
by due time, id and key), `far` (those due in more than three days), `recurrence` (recurring messages), `rocketmq` (RocketMQ's timer files).

All of them share `due_time` (when a message is due), `release` (appending what is due, and what each tells of it), `restoring` (the
message that its sender meant) and `rewriting` (pending messages make way for retention).
"""
