package gimbalmq.peer;

import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages and send results, from and to JSON. Bodies travel as base64. */
final class Records {
    private Records() {
    }

    static Message message(Args args) {
        Message message = new Message(args.text("topic"), args.bytes("body"));
        if (args.has("tags")) {
            message.setTags(args.text("tags"));
        }
        if (args.has("keys")) {
            message.setKeys(args.texts("keys"));
        }
        args.textMap("properties").forEach(message::putUserProperty);
        if (args.has("delay_level")) {
            message.setDelayTimeLevel((int) args.number("delay_level"));
        }
        if (args.has("deliver_at_ms")) {
            // The property, not the setter: only 5.x has the setter.
            MessageAccessor.putProperty(message, "TIMER_DELIVER_MS", String.valueOf(args.number("deliver_at_ms")));
        }
        return message;
    }

    static Map<String, Object> received(MessageExt message, MessageQueue queue, boolean brief) {
        Map<String, Object> record = Json.map(
            "queue", Args.from(queue),
            "topic", message.getTopic(),
            "queue_offset", message.getQueueOffset(),
            "message_id", message.getMsgId(),
            "keys", message.getKeys(),
            "reconsume_times", message.getReconsumeTimes());
        if (!brief) {
            record.put("body", Base64.getEncoder().encodeToString(message.getBody()));
            record.put("tags", message.getTags());
            record.put("properties", new LinkedHashMap<>(message.getProperties()));
            record.put("born_at_ms", message.getBornTimestamp());
            record.put("stored_at_ms", message.getStoreTimestamp());
        }
        return record;
    }

    static Map<String, Object> sent(SendResult result) {
        return Json.map(
            "status", result.getSendStatus(),
            "message_id", result.getMsgId(),
            "offset_message_id", result.getOffsetMsgId(),
            "queue", Args.from(result.getMessageQueue()),
            "queue_offset", result.getQueueOffset(),
            "transaction_id", result.getTransactionId());
    }
}
