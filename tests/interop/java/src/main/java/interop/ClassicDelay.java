package interop;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The classic delayed message: sent with level 3 (10 s), received by a push consumer.
 * A message left over from an earlier run is printed as well.
 *
 * Uses nothing but the public API with its defaults. The only liberty: the first argument replaces the name server
 * address "localhost:9876", so that the tests can run on free ports. Exit status 0 when the message came.
 */
public final class ClassicDelay {
    public static void main(String[] args) throws Exception {
        String nameServer = args.length > 0 ? args[0] : "localhost:9876";

        DefaultMQProducer producer = new DefaultMQProducer("OneMoreGroup");
        producer.setNamesrvAddr(nameServer);
        producer.start();

        Message message = new Message("OneMoreTopic", "DelayMessage",
            "This is a delay message.".getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(3);
        long sentAt = System.currentTimeMillis();
        SendResult result = producer.send(message);
        new JsonLine("sent").put("status", result.getSendStatus().name()).put("msgId", result.getMsgId())
            .put("sentAt", sentAt).put("answeredAt", System.currentTimeMillis()).print();

        CountDownLatch received = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("OneMoreConsumerGroup");
        consumer.setNamesrvAddr(nameServer);
        consumer.subscribe("OneMoreTopic", "*");
        consumer.registerMessageListener(new MessageListenerConcurrently() {
            @Override
            public ConsumeConcurrentlyStatus consumeMessage(List<MessageExt> list, ConsumeConcurrentlyContext context) {
                long receivedAt = System.currentTimeMillis();
                for (MessageExt one : list) {
                    new JsonLine("received").put("topic", one.getTopic()).put("tags", one.getTags())
                        .put("body", new String(one.getBody(), StandardCharsets.UTF_8)).put("msgId", one.getMsgId())
                        .put("storeAt", one.getStoreTimestamp()).put("receivedAt", receivedAt).print();
                    if (one.getMsgId().equals(result.getMsgId())) {
                        received.countDown();
                    }
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            }
        });
        consumer.start();

        boolean came = received.await(30, TimeUnit.SECONDS);
        consumer.shutdown();
        producer.shutdown();
        System.exit(came ? 0 : 1);
    }

    private ClassicDelay() {
    }
}
