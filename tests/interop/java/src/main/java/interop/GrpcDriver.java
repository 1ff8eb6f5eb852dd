package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Drives the official gRPC client by commands on standard input; every event is a JSON line on standard output.
 *
 * usage: GrpcDriver HOST:PORT TOPIC,TOPIC,...   (the topics that the producer announces)
 * It signs with ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY of the environment, if they are there, and encrypts if ROCKETMQ_TLS is true.
 * send?topic=&amp;body=A,B,...[&amp;tag=][&amp;key=K K...][&amp;order=][&amp;at=MS][&amp;priority=][&amp;price=][&amp;note=] (the last two are properties)
 *                                 prints {"event":"sent","body":...,"msgId":...,"handle":...} or {"event":"send_failed",...} for each
 * transact?topic=&amp;body=&amp;state=commit|rollback|unknown[&amp;checked=commit|rollback|unknown]   each check prints {"event":"checked",...}
 * recall?topic=&amp;handle=         prints {"event":"recalled",...} or {"event":"recall_failed",...}
 * push?group=&amp;topic=[&amp;tags=|&amp;sql=][&amp;fail=N]   the first N attempts at each message fail (-1: all); prints {"event":"received",...}
 * pop?group=&amp;topic=[&amp;tags=|&amp;sql=][&amp;count=][&amp;invisible=MS][&amp;then=ack|keep|hide:MS]
 *                                 one receive call of a simple consumer; prints {"event":"popped",...} for each message, and acts on each
 * again?then=ack|hide:MS          acts on the messages of the last pop, with their receipts; prints {"event":"refused",...} for each failure
 * close
 * After each command: {"event":"done"} or {"event":"failed"}.
 */
public final class GrpcDriver {
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final Duration HELD = Duration.ofSeconds(2);

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;
    private final Producer producer;
    private final Map<String, SimpleConsumer> simple = new HashMap<>();
    private final List<PushConsumer> pushed = new ArrayList<>();
    private SimpleConsumer last;
    private List<MessageView> popped = new ArrayList<>();

    private GrpcDriver(String endpoint, String[] topics) throws ClientException {
        configuration = configuration(endpoint);
        producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topics)
            .setTransactionChecker(message -> {
                print("checked", message).print();
                return resolution(message.getProperties().get("checked"));
            }).build();
    }

    private static ClientConfiguration configuration(String endpoint) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(endpoint).setRequestTimeout(WAIT);
        String accessKey = System.getenv("ROCKETMQ_ACCESS_KEY");
        if (accessKey != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(accessKey, System.getenv("ROCKETMQ_SECRET_KEY")));
        }
        if (!"true".equals(System.getenv("ROCKETMQ_TLS"))) {
            GrpcSince.call(ClientConfigurationBuilder.class, builder, "enableSsl", false);
        }
        return builder.build();
    }

    public static void main(String[] args) throws Exception {
        GrpcDriver driver = new GrpcDriver(args[0], args[1].split(","));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        new JsonLine("ready").put("java", System.getProperty("java.version")).print();
        for (String line = in.readLine(); line != null && !line.equals("close"); line = in.readLine()) {
            try {
                driver.run(new Command(line));
                new JsonLine("done").put("command", line).print();
            } catch (Exception e) {
                new JsonLine("failed").put("command", line).put("error", e.toString()).print();
            }
        }
        driver.close();
        new JsonLine("closed").print();
        System.exit(0);
    }

    private void run(Command command) throws Exception {
        switch (command.name) {
            case "send":
                for (String body : command.text("body").split(",")) {
                    send(command, body);
                }
                break;
            case "transact":
                transact(command);
                break;
            case "recall":
                recall(command);
                break;
            case "push":
                push(command);
                break;
            case "pop":
                pop(command);
                break;
            case "again":
                settle(command.text("then"));
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.name);
        }
    }

    private void send(Command command, String body) {
        try {
            SendReceipt receipt = producer.send(message(command, body));
            new JsonLine("sent").put("body", body).put("msgId", receipt.getMessageId().toString())
                .put("handle", (String) GrpcSince.callOr("", SendReceipt.class, receipt, "getRecallHandle")).print();
        } catch (ClientException e) {
            new JsonLine("send_failed").put("body", body).put("error", e.toString()).print();
        }
    }

    private Message message(Command command, String body) {
        MessageBuilder builder = provider.newMessageBuilder().setTopic(command.text("topic"))
            .setBody(body.getBytes(StandardCharsets.UTF_8)).setKeys(command.text("key", body).split(" ")).setTag(command.text("tag", "red"));
        if (!command.text("order", "").isEmpty()) {
            builder.setMessageGroup(command.text("order"));
        }
        if (!command.text("at", "").isEmpty()) {
            builder.setDeliveryTimestamp(Long.parseLong(command.text("at")));
        }
        if (command.number("priority", -1) >= 0) {
            GrpcSince.call(MessageBuilder.class, builder, "setPriority", command.number("priority", -1));
        }
        for (String name : new String[] {"checked", "price", "note"}) {
            if (!command.text(name, "").isEmpty()) {
                builder.addProperty(name, command.text(name));
            }
        }
        return builder.build();
    }

    private void transact(Command command) throws Exception {
        Transaction transaction = producer.beginTransaction();
        SendReceipt receipt = producer.send(message(command, command.text("body")), transaction);
        new JsonLine("sent").put("body", command.text("body")).put("msgId", receipt.getMessageId().toString()).print();
        switch (resolution(command.text("state"))) {
            case COMMIT:
                transaction.commit();
                break;
            case ROLLBACK:
                transaction.rollback();
                break;
            default:
        }
    }

    private static TransactionResolution resolution(String name) {
        return TransactionResolution.valueOf(name.toUpperCase(java.util.Locale.ROOT));
    }

    private void recall(Command command) {
        try {
            new JsonLine("recalled").put("msgId", GrpcSince.recalled(producer, command.text("topic"), command.text("handle"))).print();
        } catch (ClientException e) {
            new JsonLine("recall_failed").put("error", e.toString()).print();
        }
    }

    private void push(Command command) throws Exception {
        String group = command.text("group");
        int fail = command.number("fail", 0);
        pushed.add(provider.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(subscription(command)).setConsumptionThreadCount(2)
            .setMessageListener(message -> {
                boolean fails = fail < 0 || message.getDeliveryAttempt() <= fail;
                print("received", message).put("group", group).put("ok", !fails).print();
                return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build());
    }

    private void pop(Command command) throws Exception {
        String name = command.text("group") + "@" + command.text("topic");
        if (!simple.containsKey(name)) {
            simple.put(name, provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(command.text("group")).setSubscriptionExpressions(subscription(command))
                .setAwaitDuration(HELD).build());
        }
        last = simple.get(name);
        popped = last.receive(command.number("count", 16), Duration.ofMillis(command.number("invisible", 20_000)));
        for (MessageView message : popped) {
            print("popped", message).put("group", command.text("group")).print();
        }
        settle(command.text("then", "ack"));
    }

    private void settle(String how) {
        for (MessageView message : popped) {
            try {
                if (how.equals("ack")) {
                    last.ack(message);
                } else if (how.startsWith("hide:")) {
                    last.changeInvisibleDuration(message, Duration.ofMillis(Long.parseLong(how.substring(5))));
                }
            } catch (ClientException e) {
                print("refused", message).put("error", e.toString()).print();
            }
        }
    }

    private static Map<String, FilterExpression> subscription(Command command) {
        String sql = command.text("sql", "");
        return Map.of(command.text("topic"), sql.isEmpty() ? new FilterExpression(command.text("tags", "*"))
            : new FilterExpression(sql, FilterExpressionType.SQL92));
    }

    private static JsonLine print(String event, MessageView message) {
        return new JsonLine(event).put("receivedAt", System.currentTimeMillis()).put("topic", message.getTopic())
            .put("body", StandardCharsets.UTF_8.decode(message.getBody()).toString()).put("msgId", message.getMessageId().toString())
            .put("attempt", message.getDeliveryAttempt()).put("tag", message.getTag().orElse(null))
            .put("keys", String.join(" ", message.getKeys())).put("order", message.getMessageGroup().orElse(null))
            .put("deliverAt", message.getDeliveryTimestamp().orElse(0L)).put("priority", priority(message))
            .put("properties", message.getProperties());
    }

    private static int priority(MessageView message) {
        Object priority = GrpcSince.callOr(Optional.empty(), MessageView.class, message, "getPriority");
        return (Integer) ((Optional<?>) priority).map(Integer.class::cast).orElse(-1);
    }

    /** Leaves the push consumers: each would wait for the poll that is under way. */
    private void close() throws Exception {
        for (SimpleConsumer consumer : simple.values()) {
            consumer.close();
        }
        producer.close();
    }
}
