"""Timer messages: recalling, rescheduling, looking at what is pending; and messages that recur."""
