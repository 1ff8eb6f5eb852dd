package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * The official producer of transactional messages.
 *
 * usage: TransactionDriver NAMESERVER
 * half?topic=&amp;body=&amp;state=commit|rollback|unknown[&amp;checked=commit|rollback|unknown][&amp;immunity=S]
 *                                      prints {"event":"sent",...}; each check prints {"event":"checked","body":...,"times":...}
 * close
 * After each command: {"event":"done"} or {"event":"failed"}.
 */
public final class TransactionDriver {
    private TransactionDriver() {
    }

    public static void main(String[] args) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("TransactionGroup", Access.hook());
        producer.setNamesrvAddr(args[0]);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object state) {
                return state((String) state);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                new JsonLine("checked").put("body", new String(message.getBody(), StandardCharsets.UTF_8))
                    .put("topic", message.getTopic()).put("msgId", message.getMsgId())
                    .put("times", message.getUserProperty("TRANSACTION_CHECK_TIMES")).print();
                return state(message.getUserProperty("checked"));
            }
        });
        producer.start();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        new JsonLine("ready").put("java", System.getProperty("java.version")).print();
        for (String line = in.readLine(); line != null && !line.equals("close"); line = in.readLine()) {
            try {
                half(producer, new Command(line));
                new JsonLine("done").put("command", line).print();
            } catch (Exception e) {
                new JsonLine("failed").put("command", line).put("error", e.toString()).print();
            }
        }
        producer.shutdown();
        new JsonLine("closed").print();
        System.exit(0);
    }

    private static void half(TransactionMQProducer producer, Command command) throws Exception {
        Message message = new Message(command.text("topic"), "red", command.text("body"),
            command.text("body").getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("checked", command.text("checked", "unknown"));
        if (command.number("immunity", 0) > 0) {
            message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", command.text("immunity"));
        }
        SendResult result = producer.sendMessageInTransaction(message, command.text("state"));
        new JsonLine("sent").put("status", result.getSendStatus().name()).put("msgId", result.getMsgId())
            .put("offsetMsgId", result.getOffsetMsgId()).put("queueOffset", result.getQueueOffset())
            .put("transactionId", result.getTransactionId()).print();
    }

    private static LocalTransactionState state(String name) {
        switch (name) {
            case "commit":
                return LocalTransactionState.COMMIT_MESSAGE;
            case "rollback":
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }
}
