package interop;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;

/** How a received message is printed: the same fields by the push consumer and by the store reader. */
final class MessageEvent {
    private static final int SHOWN_BODY = 200;

    static JsonLine of(String event, MessageExt message) {
        byte[] body = message.getBody();
        String offsetId = message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : message.getMsgId();
        JsonLine line = new JsonLine(event).put("topic", message.getTopic()).put("queueId", message.getQueueId())
            .put("queueOffset", message.getQueueOffset()).put("physicalOffset", message.getCommitLogOffset())
            .put("msgId", message.getMsgId()).put("offsetId", offsetId).put("tags", message.getTags()).put("keys", message.getKeys())
            .put("flag", message.getFlag()).put("sysFlag", message.getSysFlag()).put("bodyCrc", message.getBodyCRC())
            .put("reconsumeTimes", message.getReconsumeTimes()).put("bornAt", message.getBornTimestamp())
            .put("storeAt", message.getStoreTimestamp()).put("bodySize", body.length).put("bodySha1", sha1(body))
            .put("properties", message.getProperties());
        if (body.length <= SHOWN_BODY) {
            line.put("body", new String(body, StandardCharsets.UTF_8));
        }
        return line;
    }

    static String sha1(byte[] body) {
        try {
            StringBuilder hex = new StringBuilder();
            for (byte b : MessageDigest.getInstance("SHA-1").digest(body)) {
                hex.append(String.format("%02x", b));
            }
            return hex.toString();
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    private MessageEvent() {
    }
}
