"""Assignment by the broker: which queues a consumer reads, and whether by pull or by pop."""
