"""Timer messages: recalling, rescheduling, looking at what is pending."""
