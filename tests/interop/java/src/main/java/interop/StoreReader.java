package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.TreeSet;

import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads everything that a broker serves, with the official client's own decoder; the second half of the judge of store
 * directories (the first half is the broker that opened the directory).
 *
 * usage: StoreReader NAMESERVER, then commands on standard input:
 * read?topic=          every message of every queue from its minimum to its maximum offset ("message" and "queue" events)
 * key?topic=&amp;key=      messages found through the key index ("keyed" events)
 * view?topic=&amp;id=      the message with an offset id ("viewed" event)
 * close
 */
public final class StoreReader {
    private static final int BATCH = 32;
    private static final int INDEX_ANSWERS = 64;

    public static void main(String[] args) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("InteropStoreReader");
        consumer.setNamesrvAddr(args[0]);
        consumer.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        new JsonLine("ready").print();
        for (String line = in.readLine(); line != null && !line.equals("close"); line = in.readLine()) {
            Command command = new Command(line);
            try {
                run(consumer, command);
                new JsonLine("done").put("command", line).print();
            } catch (Exception e) {
                new JsonLine("failed").put("command", line).put("error", e.toString()).print();
            }
        }
        consumer.shutdown();
        new JsonLine("closed").print();
        System.exit(0);
    }

    @SuppressWarnings("deprecation")
    private static void run(DefaultMQPullConsumer consumer, Command command) throws Exception {
        String topic = command.text("topic");
        switch (command.name) {
            case "read":
                Set<MessageQueue> queues = new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic));
                for (MessageQueue queue : queues) {
                    read(consumer, queue);
                }
                break;
            case "key":
                QueryResult found = consumer.queryMessage(topic, command.text("key"), INDEX_ANSWERS, 0, Long.MAX_VALUE);
                for (MessageExt message : found.getMessageList()) {
                    MessageEvent.of("keyed", message).put("key", command.text("key")).print();
                }
                break;
            case "view":
                MessageEvent.of("viewed", consumer.viewMessage(topic, command.text("id"))).put("id", command.text("id")).print();
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.name);
        }
    }

    @SuppressWarnings("deprecation")
    private static void read(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long lowest = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        new JsonLine("queue").put("topic", queue.getTopic()).put("queueId", queue.getQueueId()).put("min", lowest).put("max", end).print();
        for (long at = lowest; at < end; ) {
            PullResult result = consumer.pull(queue, "*", at, BATCH);
            if (result.getPullStatus() == PullStatus.FOUND) {
                for (MessageExt message : result.getMsgFoundList()) {
                    MessageEvent.of("message", message).print();
                }
            }
            if (result.getNextBeginOffset() <= at) {
                throw new IllegalStateException("no progress at " + queue + " offset " + at + ": " + result);
            }
            at = result.getNextBeginOffset();
        }
    }

    private StoreReader() {
    }
}
