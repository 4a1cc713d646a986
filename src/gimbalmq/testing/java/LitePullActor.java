package gimbalmq.peer;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** A lite pull consumer: subscribed (balanced by the group) or assigned by hand. */
final class LitePullActor implements Actor {
    private final DefaultLitePullConsumer consumer;

    LitePullActor(Args args) throws Exception {
        consumer = new DefaultLitePullConsumer(args.text("group"), Clients.credentials(args));
        Clients.configure(consumer, args);
        consumer.setAutoCommit(args.flag("auto_commit"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
            args.text("consume_from", "CONSUME_FROM_FIRST_OFFSET")));
        consumer.setPullBatchSize(args.count("pull_batch_size", 10));
        consumer.setAllocateMessageQueueStrategy(Clients.allocation(args));
        if (args.has("topic") && args.has("sql")) {
            consumer.subscribe(args.text("topic"), MessageSelector.bySql(args.text("sql")));
        } else if (args.has("topic")) {
            consumer.subscribe(args.text("topic"), args.text("tags", "*"));
        }
        consumer.start();
    }

    @Override
    public Object handle(String op, Args args) throws Exception {
        switch (op) {
            case "describe":
                return Json.map("client_id", consumer.buildMQClientId());
            case "poll":
                return poll(args.number("timeout_ms", 1000));
            case "owned":
                return Args.from(consumer.assignment());
            case "queues":
                return Args.from(consumer.fetchMessageQueues(args.text("topic")));
            case "assign":
                consumer.assign(args.queues("queues"));
                return null;
            case "seek":
                consumer.seek(args.queue("queue"), args.number("offset"));
                return null;
            case "pause":
                consumer.pause(args.queues("queues"));
                return null;
            case "resume":
                consumer.resume(args.queues("queues"));
                return null;
            case "commit":
                consumer.commitSync();
                return null;
            case "committed":
                return consumer.committed(args.queue("queue"));
            default:
                throw Actor.unknown(op);
        }
    }

    @Override
    public void close() {
        consumer.shutdown();
    }

    private List<Object> poll(long timeoutMs) {
        List<Object> records = new ArrayList<>();
        for (MessageExt message : consumer.poll(timeoutMs)) {
            MessageQueue queue =
                new MessageQueue(message.getTopic(), message.getBrokerName(), message.getQueueId());
            records.add(Records.received(message, queue, false));
        }
        return records;
    }
}
