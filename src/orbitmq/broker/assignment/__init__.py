"""Assignment by the broker: which queues a consumer reads, whether by pull or by pop, and where they are."""
