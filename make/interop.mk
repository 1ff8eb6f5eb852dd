# Clients and brokers of other makers: interoperability tests and the comparison. Included by the Makefile.
.PHONY: interop interop-control interop-rust bench bench-timers bench-messaging bench-copies bench-promotion bench-groups deployment-table bench-grpc bench-spark bench-quick kafka-programs

interop: $(STAMP) ## Run the interoperability tests (JDK, Maven, Node.js, Go)
	@$(BIN)/python -m pytest tests/interop $(ARGS)

interop-control: $(STAMP) ## The same tests against RocketMQ's own broker: the control of the tests
	@INTEROP_BROKERS=java $(BIN)/python -m pytest tests/interop $(ARGS)

interop-rust: $(STAMP) ## The Rust client of RocketMQ 5 and its examples at the gRPC port (Rust; five minutes of compiling once)
	@$(BIN)/python -m pytest tests/interop/rust_client.py $(ARGS)

kafka-programs: $(STAMP) ## Programs of Kafka's users, one text each, at Kafka and at orbitmq, compared (Maven; three minutes)
	@$(BIN)/python -m tests.spark.kafka_judge

bench: $(STAMP) ## Compare with the Java broker and write the table of README.md (about 20 minutes, nothing else running)
	@$(BIN)/python benchmarks/run.py --write-readme $(ARGS)

bench-timers: $(STAMP) ## Compare timed messages with the Java broker, NATS and RabbitMQ (about an hour, nothing else running)
	@$(BIN)/python benchmarks/timers.py --long --layered --write-docs $(ARGS)

bench-grpc: $(STAMP) ## Compare clients of RocketMQ 5 at orbitmq and at RocketMQ's proxy (about 10 minutes, nothing else running)
	@$(BIN)/python benchmarks/grpc_clients.py --write-docs $(ARGS)

bench-messaging: $(STAMP) ## Compare transactions, POP and filters with the Java broker (about 20 minutes, nothing else running)
	@$(BIN)/python benchmarks/messaging.py --write-docs $(ARGS)

bench-copies: $(STAMP) ## Masters and slaves beside a single broker and RocketMQ's pairs (about 15 minutes, nothing else running; ARGS="--before DIR")
	@$(BIN)/python benchmarks/copies.py --write-docs $(ARGS)

bench-promotion: $(STAMP) ## A slave with a million pending timers made master by a command (15 minutes, nothing else running; ARGS="--rounds 1")
	@$(BIN)/python benchmarks/promotion.py --write-docs $(ARGS)

bench-groups: $(STAMP) ## A replicated group beside a single broker and RocketMQ's DLedger (half an hour, nothing else running; ARGS="--rows ...")
	@$(BIN)/python benchmarks/groups.py --write-docs $(ARGS)

deployment-table: $(STAMP) ## What a master, two, a slave and groups keep when a process, a machine or the network fails, beside RocketMQ (half an hour)
	@$(BIN)/python benchmarks/deployments.py --write-docs $(ARGS)

bench-spark: $(STAMP) ## Compare Spark with orbitmq and Spark with Kafka (about ten minutes, nothing else running)
	@$(BIN)/python benchmarks/spark/compare.py --write-docs $(ARGS)

bench-quick: $(STAMP) ## A quick look at the comparison
	@$(BIN)/python benchmarks/run.py --quick $(ARGS)
