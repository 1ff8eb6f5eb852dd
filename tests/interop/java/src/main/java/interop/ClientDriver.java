package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Drives the official client by commands on standard input; every event is a JSON line on standard output.
 *
 * usage: ClientDriver NAMESERVER
 * produce?topic=&amp;mode=plain|oneway|async|batch&amp;count=&amp;prefix=[&amp;tag=][&amp;key=][&amp;level=][&amp;size=][&amp;user=NAME:VALUE]
 *   [&amp;DeliverTimeMs=|DelayTimeSec=|DelayTimeMs=] (timer messages, as the client's setters name them; from 5.0 on)
 * recall?topic=&amp;handle= (from 5.3.2 on)
 * consume?group=&amp;topic=[&amp;expression=|&amp;sql=][&amp;fail=N][&amp;retryLevel=L][&amp;maxReconsume=M][&amp;from=first|last][&amp;orderly=1]
 *   [&amp;offsets=FOLDER] (broadcasting, with its offsets under this folder; one folder in the life of the program)
 *   [&amp;asks=1] (the broker assigns the queues, to be pulled or popped; from 5.0 on)
 * close
 * The body of message i is "PREFIX-i", filled up to size with a repeated pattern. fail = number of attempts per message that ask
 * for a retry (-1: all). After each command: {"event":"done"} or {"event":"failed"}.
 */
public final class ClientDriver {
    private static final String[] TIMES = {"DeliverTimeMs", "DelayTimeSec", "DelayTimeMs"};

    private final String nameServer;
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private DefaultMQProducer producer;

    private ClientDriver(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        ClientDriver driver = new ClientDriver(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        new JsonLine("ready").put("java", System.getProperty("java.version")).print();
        for (String line = in.readLine(); line != null && !line.equals("close"); line = in.readLine()) {
            Command command = new Command(line);
            try {
                driver.run(command);
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
            case "produce":
                produce(command);
                break;
            case "consume":
                consume(command);
                break;
            case "recall":
                recall(command);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.name);
        }
    }

    private void produce(Command command) throws Exception {
        if (producer == null) {
            producer = new DefaultMQProducer(command.text("group", "InteropProducer"), Access.hook());
            producer.setNamesrvAddr(nameServer);
            producer.start();
        }
        int count = command.number("count", 1);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            messages.add(message(command, i));
        }
        switch (command.text("mode", "plain")) {
            case "plain":
                for (Message message : messages) {
                    sent(message, producer.send(message));
                }
                break;
            case "oneway":
                for (Message message : messages) {
                    producer.sendOneway(message);
                    new JsonLine("sent").put("topic", message.getTopic()).put("status", "ONEWAY")
                        .put("msgId", message.getProperty("UNIQ_KEY")).print();
                }
                break;
            case "async":
                sendAsync(messages);
                break;
            case "batch":
                SendResult result = producer.send(messages);
                new JsonLine("sent").put("topic", command.text("topic")).put("status", result.getSendStatus().name())
                    .put("msgId", result.getMsgId()).put("offsetMsgId", result.getOffsetMsgId())
                    .put("queueId", result.getMessageQueue().getQueueId()).put("queueOffset", result.getQueueOffset()).print();
                break;
            default:
                throw new IllegalArgumentException("unknown mode");
        }
    }

    private void sendAsync(List<Message> messages) throws Exception {
        CountDownLatch answers = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent(message, result);
                    answers.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    new JsonLine("send_failed").put("topic", message.getTopic()).put("error", e.toString()).print();
                    answers.countDown();
                }
            });
        }
        answers.await();
    }

    private static Message message(Command command, int i) {
        byte[] start = (command.text("prefix", "body") + "-" + i).getBytes(StandardCharsets.UTF_8);
        byte[] body = new byte[Math.max(start.length, command.number("size", 0))];
        for (int at = 0; at < body.length; at++) {
            body[at] = at < start.length ? start[at] : (byte) ('a' + at % 23);
        }
        Message message = new Message(command.text("topic"), body);
        String tag = command.text("tag", null);
        if (tag != null) {
            message.setTags(tag);
        }
        String key = command.text("key", null);
        if (key != null) {
            message.setKeys(key + "-" + i);
        }
        int level = command.number("level", 0);
        if (level > 0) {
            message.setDelayTimeLevel(level);
        }
        for (String time : TIMES) {
            String value = command.text(time, null);
            if (value != null) {
                setTime(message, "set" + time, Long.parseLong(value));
            }
        }
        String user = command.text("user", null);
        if (user != null) {
            for (String one : user.split("\\|")) {
                message.putUserProperty(one.substring(0, one.indexOf(':')), one.substring(one.indexOf(':') + 1));
            }
        }
        return message;
    }

    /** By name: clients before 5.0 have no such setters, and the driver is built for them as well. */
    private static void setTime(Message message, String setter, long value) {
        try {
            Message.class.getMethod(setter, long.class).invoke(message, value);
        } catch (ReflectiveOperationException e) {
            throw new IllegalArgumentException("this client has no " + setter, e);
        }
    }

    private void recall(Command command) throws Exception {
        JsonLine line;
        try {
            Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, command.text("topic"), command.text("handle"));
            line = new JsonLine("recalled").put("msgId", String.valueOf(id));
        } catch (java.lang.reflect.InvocationTargetException e) {
            line = new JsonLine("recall_failed").put("error", e.getCause().toString());
        }
        line.print();
    }

    private static String handle(SendResult result) {
        try {
            return (String) SendResult.class.getMethod("getRecallHandle").invoke(result);
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    private static void sent(Message message, SendResult result) {
        new JsonLine("sent").put("handle", handle(result)).put("topic", message.getTopic()).put("status", result.getSendStatus().name())
            .put("msgId", result.getMsgId()).put("offsetMsgId", result.getOffsetMsgId())
            .put("queueId", result.getMessageQueue().getQueueId()).put("queueOffset", result.getQueueOffset())
            .put("sentAt", System.currentTimeMillis()).print();
    }

    private void consume(Command command) throws Exception {
        String group = command.text("group");
        int fail = command.number("fail", 0);
        int retryLevel = command.number("retryLevel", 0);
        Map<String, Integer> attempts = new HashMap<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, Access.hook(), new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere("last".equals(command.text("from", "first"))
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        if (command.number("maxReconsume", -1) >= 0) {
            consumer.setMaxReconsumeTimes(command.number("maxReconsume", -1));
        }
        String sql = command.text("sql", "");
        if (sql.isEmpty()) {
            consumer.subscribe(command.text("topic"), command.text("expression", "*"));
        } else {
            consumer.subscribe(command.text("topic"), MessageSelector.bySql(sql));
        }
        if (command.number("asks", 0) == 1) {
            DefaultMQPushConsumer.class.getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        String offsets = command.text("offsets", "");
        if (!offsets.isEmpty()) {
            System.setProperty("rocketmq.client.localOffsetStoreDir", offsets);
            broadcasting(consumer);
        }
        if (command.number("orderly", 0) == 1) {
            consumer.registerMessageListener((MessageListenerOrderly) (list, context) -> {
                boolean again = failing(group, list, attempts, fail);
                context.setSuspendCurrentQueueTimeMillis(200);
                return again ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
                boolean again = failing(group, list, attempts, fail);
                context.setDelayLevelWhenNextConsume(retryLevel);
                return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumers.add(consumer);
    }

    /** MessageModel moved to another package between the versions. */
    private static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : consumer.getClass().getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                for (Object model : method.getParameterTypes()[0].getEnumConstants()) {
                    if (model.toString().equals("BROADCASTING")) {
                        method.invoke(consumer, model);
                    }
                }
            }
        }
    }

    /** Prints the messages; true when one of them has not failed often enough yet. */
    private static boolean failing(String group, List<MessageExt> list, Map<String, Integer> attempts, int fail) {
        long receivedAt = System.currentTimeMillis();
        boolean again = false;
        for (MessageExt one : list) {
            int attempt;
            synchronized (attempts) {
                attempt = attempts.merge(one.getMsgId(), 1, Integer::sum);
            }
            boolean fails = fail < 0 || attempt <= fail;
            MessageEvent.of("received", one).put("group", group).put("attempt", attempt).put("ok", !fails)
                .put("receivedAt", receivedAt).print();
            again |= fails;
        }
        return again;
    }

    private void close() {
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
        if (producer != null) {
            producer.shutdown();
        }
    }
}
