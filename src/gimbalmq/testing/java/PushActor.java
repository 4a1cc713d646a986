package gimbalmq.peer;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A push consumer, concurrent or ordered, that reports every message it is given. */
final class PushActor implements Actor {
    private final String name;
    private final DefaultMQPushConsumer consumer;
    private final AtomicLong count = new AtomicLong();
    private final AtomicLong bytes = new AtomicLong();
    private final Stopwatch stopwatch = new Stopwatch();
    private final Map<MessageQueue, Long> firstMs = new ConcurrentHashMap<>();
    private final String report;
    private final boolean notesFirsts;
    private final int retryLevel;
    private volatile int failTimes;
    private volatile long sleepMs;

    PushActor(String name, Args args) throws Exception {
        this.name = name;
        report = args.text("report", "full");
        notesFirsts = args.flag("firsts");
        failTimes = args.count("fail_times", 0);
        retryLevel = args.count("retry_level", 0);
        sleepMs = args.number("sleep_ms", 0);
        stopwatch.expect(args.number("expect", Long.MAX_VALUE));
        // Without a name of its own, traces go to RocketMQ's topic for them.
        consumer = new DefaultMQPushConsumer(
            args.text("group"), Clients.credentials(args), Clients.allocation(args), args.flag("trace"), null);
        Clients.configure(consumer, args);
        if (args.flag("broadcasting")) {
            // The enum lives in another package in each version; its own class finds the constant.
            consumer.setMessageModel(
                Enum.valueOf(consumer.getMessageModel().getDeclaringClass(), "BROADCASTING"));
        }
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            args.text("consume_from", "CONSUME_FROM_FIRST_OFFSET")));
        if (args.has("consume_timestamp")) {
            consumer.setConsumeTimestamp(args.text("consume_timestamp"));
        }
        consumer.setConsumeMessageBatchMaxSize(args.count("batch_size", 1));
        consumer.setPullBatchSize(args.count("pull_batch_size", 32));
        consumer.setConsumeThreadMax(args.count("workers", 4));
        consumer.setConsumeThreadMin(args.count("workers", 4));
        consumer.setMaxReconsumeTimes(args.count("max_reconsume_times", -1));
        consumer.setSuspendCurrentQueueTimeMillis(args.number("suspend_ms", 1000));
        consumer.setAwaitTerminationMillisWhenShutdown(args.number("drain_ms", 0));
        subscribe(args);
        if (args.flag("ordered")) {
            consumer.registerMessageListener((MessageListenerOrderly) this::ordered);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) this::concurrent);
        }
        consumer.start();
    }

    @Override
    public Object handle(String op, Args args) throws Exception {
        switch (op) {
            case "describe":
                return Json.map("client_id", consumer.buildMQClientId());
            case "owned":
                return Args.from(
                    consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet());
            case "count":
                return count.get();
            case "expect":
                stopwatch.expect(args.number("messages"));
                return null;
            case "lapse":
                return Json.map("seconds", stopwatch.lapse());
            case "mark":
                firstMs.clear();
                return null;
            case "firsts":
                List<Object> firsts = new ArrayList<>();
                firstMs.forEach((queue, ms) -> firsts.add(Json.map("queue", Args.from(queue), "at_ms", ms)));
                return firsts;
            case "behave":
                failTimes = args.count("fail_times", failTimes);
                sleepMs = args.number("sleep_ms", sleepMs);
                return null;
            case "subscribe":
                subscribe(args);
                return null;
            case "unsubscribe":
                consumer.unsubscribe(args.text("topic"));
                return null;
            case "suspend":
                consumer.suspend();
                return null;
            case "resume":
                consumer.resume();
                return null;
            case "persist":
                consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
                return null;
            default:
                throw Actor.unknown(op);
        }
    }

    @Override
    public void close() {
        consumer.shutdown();
    }

    private void subscribe(Args args) throws Exception {
        if (args.has("sql")) {
            consumer.subscribe(args.text("topic"), MessageSelector.bySql(args.text("sql")));
        } else {
            consumer.subscribe(args.text("topic"), args.text("tags", "*"));
        }
    }

    private ConsumeConcurrentlyStatus concurrent(List<MessageExt> messages, ConsumeConcurrentlyContext context) {
        context.setDelayLevelWhenNextConsume(retryLevel);
        return consumed(messages, context.getMessageQueue())
            ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
            : ConsumeConcurrentlyStatus.RECONSUME_LATER;
    }

    private ConsumeOrderlyStatus ordered(List<MessageExt> messages, ConsumeOrderlyContext context) {
        return consumed(messages, context.getMessageQueue())
            ? ConsumeOrderlyStatus.SUCCESS
            : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
    }

    private boolean consumed(List<MessageExt> messages, MessageQueue queue) {
        stopwatch.begin();
        if (notesFirsts && !firstMs.containsKey(queue)) {
            firstMs.putIfAbsent(queue, System.currentTimeMillis());
        }
        try {
            return reported(messages, queue);
        } finally {
            stopwatch.end(messages.size());
        }
    }

    private boolean reported(List<MessageExt> messages, MessageQueue queue) {
        // Nothing is done for nobody: benchmarks come through here.
        boolean accepted = failTimes == 0
            || messages.stream().noneMatch(message -> message.getReconsumeTimes() < failTimes);
        count.addAndGet(messages.size());
        // A listener that looks at nothing would be no measure of a consumer.
        long size = 0;
        for (MessageExt message : messages) {
            size += message.getBody().length;
        }
        bytes.addAndGet(size);
        List<Object> records = new ArrayList<>();
        if (!"count".equals(report)) {
            messages.forEach(message -> records.add(Records.received(message, queue, !"full".equals(report))));
            emit("received", accepted, records);
        }
        if (sleepMs > 0) {
            Peer.pause(sleepMs);
        }
        if ("timed".equals(report)) {
            emit("ended", accepted, records);
        }
        return accepted;
    }

    private void emit(String event, boolean accepted, List<Object> records) {
        Peer.emit(Json.map(
            "event", event,
            "actor", name,
            "at_ms", System.currentTimeMillis(),
            "accepted", accepted,
            "messages", records));
    }
}
