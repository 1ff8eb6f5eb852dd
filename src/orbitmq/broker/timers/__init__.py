"""Timer messages at the broker: taking them in, recalling and rescheduling them, and showing what is pending.

A send: `intake` (its due time, the topic it waits in). A recall or reschedule: `requests`; one recall by its handle: `recalls`, read from
RocketMQ's request by `recall_requests`; `finding` (which messages are meant), `changing` (what is written), `answering` and `waiting`
(answers in a later turn). Looking: `requests`, `views`, `figures`, `traffic`. The far tier: `far_tier`, `far_loads`. `service` puts the
room together.
"""
