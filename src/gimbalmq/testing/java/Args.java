package gimbalmq.peer;

import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageQueue;

/** Typed access to the fields of a request; a field that is absent or null has the given default. */
final class Args {
    private final Map<String, Object> fields;

    Args(Map<String, Object> fields) {
        this.fields = fields;
    }

    boolean has(String name) {
        return fields.get(name) != null;
    }

    String text(String name) {
        return (String) needed(name);
    }

    String text(String name, String absent) {
        return has(name) ? (String) fields.get(name) : absent;
    }

    long number(String name) {
        return ((Number) needed(name)).longValue();
    }

    long number(String name, long absent) {
        return has(name) ? ((Number) fields.get(name)).longValue() : absent;
    }

    int count(String name, int absent) {
        return Math.toIntExact(number(name, absent));
    }

    /** A text or a whole number, boxed as a Java program would write it, because its hash matters. */
    Object key(String name) {
        Object value = needed(name);
        if (value instanceof Long && (Long) value == ((Long) value).intValue()) {
            return ((Long) value).intValue();
        }
        return value;
    }

    boolean flag(String name) {
        return Boolean.TRUE.equals(fields.get(name));
    }

    byte[] bytes(String name) {
        return Base64.getDecoder().decode(text(name, ""));
    }

    Args object(String name) {
        return new Args(Json.cast(needed(name)));
    }

    List<Args> objects(String name) {
        List<Args> objects = new ArrayList<>();
        for (Object item : list(name)) {
            objects.add(new Args(Json.cast(item)));
        }
        return objects;
    }

    List<String> texts(String name) {
        List<String> texts = new ArrayList<>();
        for (Object item : list(name)) {
            texts.add((String) item);
        }
        return texts;
    }

    Map<String, String> textMap(String name) {
        Map<String, String> map = new LinkedHashMap<>();
        if (has(name)) {
            Json.cast(fields.get(name)).forEach((key, value) -> map.put(key, (String) value));
        }
        return map;
    }

    MessageQueue queue(String name) {
        return object(name).asQueue();
    }

    List<MessageQueue> queues(String name) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Args item : objects(name)) {
            queues.add(item.asQueue());
        }
        return queues;
    }

    MessageQueue asQueue() {
        return new MessageQueue(text("topic"), text("broker"), (int) number("queue_id"));
    }

    static Map<String, Object> from(MessageQueue queue) {
        if (queue == null) {
            return null;
        }
        return Json.map("topic", queue.getTopic(), "broker", queue.getBrokerName(), "queue_id", queue.getQueueId());
    }

    static List<Object> from(Iterable<MessageQueue> queues) {
        List<Object> list = new ArrayList<>();
        queues.forEach(queue -> list.add(from(queue)));
        return list;
    }

    private List<?> list(String name) {
        return has(name) ? (List<?>) fields.get(name) : List.of();
    }

    private Object needed(String name) {
        Object value = fields.get(name);
        if (value == null) {
            throw new IllegalArgumentException("the request lacks '" + name + "'");
        }
        return value;
    }
}
