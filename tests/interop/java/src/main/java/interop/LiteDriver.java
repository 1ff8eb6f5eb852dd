package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Drives the official lite pull consumer by commands on standard input; every event is a JSON line on standard output.
 *
 * usage: LiteDriver NAMESERVER
 * lite?group=&amp;topic=[&amp;expression=][&amp;batch=N]   joins the group; every polled message is an event "received"
 * leave?group=                                 ends the consumers of this program; what they polled is committed
 * close
 * After each command: {"event":"done"} or {"event":"failed"}.
 */
public final class LiteDriver {
    private static final int POLL_MILLIS = 200;

    private final String nameServer;
    private final List<DefaultLitePullConsumer> consumers = new ArrayList<>();
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean ending;

    private LiteDriver(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        LiteDriver driver = new LiteDriver(args[0]);
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
        driver.leave();
        new JsonLine("closed").print();
        System.exit(0);
    }

    private void run(Command command) throws Exception {
        switch (command.name) {
            case "lite":
                lite(command);
                break;
            case "leave":
                leave();
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command.name);
        }
    }

    private void lite(Command command) throws Exception {
        String group = command.text("group");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(command.number("batch", 10));
        consumer.setAutoCommitIntervalMillis(1000);
        consumer.subscribe(command.text("topic"), command.text("expression", "*"));
        consumer.start();
        consumers.add(consumer);
        ending = false;
        Thread thread = new Thread(() -> {
            while (!ending) {
                for (MessageExt message : consumer.poll(POLL_MILLIS)) {
                    MessageEvent.of("received", message).put("group", group)
                        .put("receivedAt", System.currentTimeMillis()).print();
                }
            }
            consumer.commitSync();
        }, "polls of " + group);
        thread.start();
        threads.add(thread);
    }

    private void leave() throws InterruptedException {
        ending = true;
        for (Thread thread : threads) {
            thread.join();
        }
        threads.clear();
        for (DefaultLitePullConsumer consumer : consumers) {
            consumer.shutdown();
        }
        consumers.clear();
    }
}
