"""Timer messages at the broker: taking them in, recalling and rescheduling them, and showing what is pending."""
