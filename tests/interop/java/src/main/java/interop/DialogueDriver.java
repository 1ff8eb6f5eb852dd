package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The official client in a conversation: request-reply in both roles, and traced sending and consuming.
 *
 * usage: DialogueDriver NAMESERVER
 * request?topic=&amp;body=[&amp;timeout=MS]     prints {"event":"reply","body":...}
 * answer?group=&amp;topic=[&amp;size=N]       replies to every request with "re:BODY", filled up to N bytes; prints {"event":"replied",...}
 * trace?group=&amp;topic=&amp;count=            sends with trace; prints {"event":"sent",...}
 * traced?group=&amp;topic=                 consumes with trace; prints {"event":"received",...}
 * close
 * After each command: {"event":"done"} or {"event":"failed"}.
 */
public final class DialogueDriver {
    private final String nameServer;
    private final List<DefaultMQPushConsumer> consumers = new ArrayList<>();
    private final List<DefaultMQProducer> producers = new ArrayList<>();
    private DefaultMQProducer producer;

    private DialogueDriver(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        DialogueDriver driver = new DialogueDriver(args[0]);
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
        for (DefaultMQPushConsumer consumer : driver.consumers) {
            consumer.shutdown();
        }
        for (DefaultMQProducer each : driver.producers) {
            each.shutdown();
        }
        new JsonLine("closed").print();
        System.exit(0);
    }

    private void run(Command command) throws Exception {
        switch (command.name) {
            case "request":
                request(command);
                break;
            case "answer":
                answer(command);
                break;
            case "trace":
                trace(command);
                break;
            case "traced":
                traced(command);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.name);
        }
    }

    private DefaultMQProducer producer() throws Exception {
        if (producer == null) {
            producer = started(new DefaultMQProducer("DialogueProducer"));
        }
        return producer;
    }

    private DefaultMQProducer started(DefaultMQProducer made) throws Exception {
        made.setNamesrvAddr(nameServer);
        made.start();
        producers.add(made);
        return made;
    }

    /**
     * With a callback: the blocking form of 5.3.3 ends as timed out as soon as the send is answered. At that moment the callback
     * is called, too, without a reply; and once more when the reply comes.
     */
    private void request(Command command) throws Exception {
        Message message = new Message(command.text("topic"), command.text("body").getBytes(StandardCharsets.UTF_8));
        CompletableFuture<Message> answer = new CompletableFuture<>();
        producer().request(message, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    answer.complete(reply);
                }
            }

            @Override
            public void onException(Throwable e) {
                answer.completeExceptionally(e);
            }
        }, command.number("timeout", 5000));
        Message reply = answer.get(command.number("timeout", 5000) + 2000L, TimeUnit.MILLISECONDS);
        new JsonLine("reply").put("body", new String(reply.getBody(), StandardCharsets.UTF_8))
            .put("correlationId", reply.getProperty("CORRELATION_ID"))
            .put("type", reply.getProperty("MSG_TYPE")).print();
    }

    private void answer(Command command) throws Exception {
        DefaultMQProducer replier = producer();
        int size = command.number("size", 0);
        consume(new DefaultMQPushConsumer(command.text("group")), command.text("topic"), (list, context) -> {
            for (MessageExt request : list) {
                StringBuilder text = new StringBuilder("re:" + new String(request.getBody(), StandardCharsets.UTF_8));
                while (text.length() < size) {
                    text.append('.');
                }
                JsonLine event = new JsonLine("replied").put("msgId", request.getMsgId());
                try {
                    byte[] body = text.toString().getBytes(StandardCharsets.UTF_8);
                    SendResult result = replier.send(MessageUtil.createReplyMessage(request, body), 3000);
                    event.put("status", result.getSendStatus().name());
                } catch (Exception e) {
                    event.put("status", e.toString());
                }
                event.print();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    private void trace(Command command) throws Exception {
        DefaultMQProducer traced = started(new DefaultMQProducer(command.text("group"), null, true, null));
        for (int i = 0; i < command.number("count", 1); i++) {
            Message message = new Message(command.text("topic"), "TagT", "key-" + i, ("traced-" + i).getBytes(StandardCharsets.UTF_8));
            SendResult result = traced.send(message);
            new JsonLine("sent").put("msgId", result.getMsgId()).put("offsetMsgId", result.getOffsetMsgId()).print();
        }
    }

    private void traced(Command command) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(command.text("group"), null,
            new AllocateMessageQueueAveragely(), true, null);
        consume(consumer, command.text("topic"), (list, context) -> {
            for (MessageExt message : list) {
                new JsonLine("received").put("msgId", message.getMsgId()).print();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
    }

    private void consume(DefaultMQPushConsumer consumer, String topic, MessageListenerConcurrently listener) throws Exception {
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        consumers.add(consumer);
    }
}
