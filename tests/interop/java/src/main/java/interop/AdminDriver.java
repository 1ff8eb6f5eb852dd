package interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs many commands of mqadmin in one JVM, each as its own call of the tool's entry point; a JVM for each would take seconds.
 *
 * usage: AdminDriver NAMESERVER
 * run?words=WORD&#10;WORD...     prints {"event":"output","text":...}: what the command wrote to standard output and error
 * close
 * The tool is looked up by name: its library is there for one version only, and this class is compiled with every client.
 */
public final class AdminDriver {
    private static final String TOOL = "org.apache.rocketmq.tools.command.MQAdminStartup";

    private AdminDriver() {
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", args[0]);
        Class<?> hook = Class.forName("org.apache.rocketmq.remoting.RPCHook");
        Method entry = Class.forName(TOOL).getMethod("main0", String[].class, hook);
        hurry(Thread.currentThread());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        new JsonLine("ready").put("java", System.getProperty("java.version")).print();
        for (String line = in.readLine(); line != null && !line.equals("close"); line = in.readLine()) {
            String text = run(entry, new Command(line).text("words").split("\n"));
            new JsonLine("output").put("text", text).print();
            new JsonLine("done").put("command", line).print();
        }
        new JsonLine("closed").print();
        // Some commands leave clients running whose threads would keep the process alive.
        System.exit(0);
    }

    /**
     * A client that is closed waits until its event thread looks at its queue, every three seconds. As each command closes one,
     * the thread is woken while the given thread waits for it.
     */
    private static void hurry(Thread waiting) {
        Thread waker = new Thread(() -> {
            while (true) {
                boolean closes = Arrays.stream(waiting.getStackTrace())
                    .anyMatch(frame -> frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown"));
                if (closes) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().contains("NettyEventExecutor")).forEach(Thread::interrupt);
                }
                try {
                    Thread.sleep(50);
                } catch (InterruptedException e) {
                    return;
                }
            }
        }, "waker");
        waker.setDaemon(true);
        waker.start();
    }

    private static String run(Method entry, String[] words) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream kept = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(kept, true, "UTF-8");
        System.setOut(both);
        System.setErr(both);
        try {
            entry.invoke(null, words, Access.hook());
        } catch (InvocationTargetException e) {
            both.println("raised: " + e.getCause());
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return kept.toString("UTF-8");
    }
}
