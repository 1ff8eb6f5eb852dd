package interop;

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * What RocketMQ's own client needs for a message, beside which ours is put.
 *
 * <pre>
 * ClientBench send NAME_SERVER TOPIC COUNT IN_FLIGHT SIZE RUNS
 * ClientBench consume NAME_SERVER TOPIC COUNT RUNS
 * </pre>
 *
 * Prints one line of JSON per run: rate (messages/s), cpu_us (CPU time of the whole JVM per message), p50_ms and p99_ms
 * of sends, rss_mb. Runs share one JVM, so that later ones are warm. A failed send ends the program with status 1.
 */
public final class ClientBench {
    private ClientBench() {
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("send")) {
            send(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]), Integer.parseInt(args[5]),
                Integer.parseInt(args[6]));
        } else {
            consume(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        }
        System.exit(0);
    }

    private static void send(String names, String topic, int count, int inFlight, int size, int runs) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("client-bench");
        producer.setNamesrvAddr(names);
        producer.start();
        byte[] body = new byte[size];
        Arrays.fill(body, (byte) 'x');
        for (int run = 0; run < runs; run++) {
            long[] took = new long[count];
            AtomicInteger next = new AtomicInteger();
            AtomicInteger failed = new AtomicInteger();
            Thread[] threads = new Thread[inFlight];
            long cpu = cpuNanos();
            long began = System.nanoTime();
            for (int i = 0; i < inFlight; i++) {
                threads[i] = new Thread(() -> {
                    for (int number = next.getAndIncrement(); number < count; number = next.getAndIncrement()) {
                        long before = System.nanoTime();
                        try {
                            if (producer.send(new Message(topic, body)).getSendStatus() != SendStatus.SEND_OK) {
                                failed.incrementAndGet();
                            }
                        } catch (Exception e) {
                            failed.incrementAndGet();
                        }
                        took[number] = System.nanoTime() - before;
                    }
                });
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            long elapsed = System.nanoTime() - began;
            cpu = cpuNanos() - cpu;
            if (failed.get() > 0) {
                System.err.println(failed.get() + " sends failed");
                System.exit(1);
            }
            Arrays.sort(took);
            System.out.printf(java.util.Locale.ROOT,
                "{\"rate\": %.0f, \"cpu_us\": %.2f, \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"rss_mb\": %.0f}%n",
                count / (elapsed / 1e9), cpu / 1e3 / count, took[count / 2] / 1e6, took[(int) (count * 0.99)] / 1e6, rssMb());
            System.out.flush();
        }
        producer.shutdown();
    }

    /** Every run is a new group that reads the first COUNT messages of the topic from its beginning. */
    private static void consume(String names, String topic, int count, int runs) throws Exception {
        for (int run = 0; run < runs; run++) {
            int skipped = count / 10;
            CountDownLatch done = new CountDownLatch(1);
            AtomicInteger seen = new AtomicInteger();
            AtomicLong began = new AtomicLong();
            AtomicLong cpuBefore = new AtomicLong();
            AtomicLong ended = new AtomicLong();
            AtomicLong cpuAfter = new AtomicLong();
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("client-bench-" + System.nanoTime());
            consumer.setNamesrvAddr(names);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                int number = seen.addAndGet(messages.size());
                if (number >= skipped && began.compareAndSet(0, System.nanoTime())) {
                    cpuBefore.set(cpuNanos());
                }
                if (number >= count && ended.compareAndSet(0, System.nanoTime())) {
                    cpuAfter.set(cpuNanos());
                    done.countDown();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            done.await();
            int measured = count - skipped;
            System.out.printf(java.util.Locale.ROOT, "{\"rate\": %.0f, \"cpu_us\": %.2f, \"rss_mb\": %.0f}%n",
                measured / ((ended.get() - began.get()) / 1e9), (cpuAfter.get() - cpuBefore.get()) / 1e3 / measured, rssMb());
            System.out.flush();
            consumer.shutdown();
        }
    }

    private static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static double rssMb() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) / 1024.0;
            }
        }
        return 0;
    }
}
