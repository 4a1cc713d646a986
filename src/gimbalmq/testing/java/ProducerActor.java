package gimbalmq.peer;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends messages in every way that the Java client knows. */
final class ProducerActor implements Actor {
    /** Message property that says what the producer answers when the broker asks: COMMIT, ROLLBACK, UNKNOW. */
    private static final String CHECK_ANSWER = "peer_check_answer";
    private static final int IN_FLIGHT = 256;

    private final DefaultMQProducer producer;

    ProducerActor(String name, Args args) throws Exception {
        if (args.flag("transactional")) {
            TransactionMQProducer transactional =
                new TransactionMQProducer(args.text("group"), Clients.credentials(args));
            transactional.setTransactionListener(new Outcomes(name));
            producer = transactional;
        } else {
            // Without a name of its own, traces go to RocketMQ's topic for them.
            producer = new DefaultMQProducer(
                args.text("group"), Clients.credentials(args), args.flag("trace"), null);
        }
        Clients.configure(producer, args);
        producer.setSendMsgTimeout(args.count("timeout_ms", 3000));
        producer.setRetryTimesWhenSendFailed(args.count("retries", 2));
        producer.setCompressMsgBodyOverHowmuch(args.count("compress_over", 4096));
        producer.setSendLatencyFaultEnable(args.flag("fault_tolerance"));
        producer.start();
    }

    @Override
    public Object handle(String op, Args args) throws Exception {
        switch (op) {
            case "describe":
                return Json.map("client_id", producer.buildMQClientId());
            case "send":
                return send(args);
            case "pump":
                return new Pump(producer, args).run(args.text("mode"), args.count("width", 1));
            case "queues":
                return Args.from(producer.fetchPublishMessageQueues(args.text("topic")));
            default:
                throw Actor.unknown(op);
        }
    }

    @Override
    public void close() {
        producer.shutdown();
    }

    private Object send(Args args) throws Exception {
        List<Args> messages = args.objects("messages");
        switch (args.text("mode", "sync")) {
            case "sync":
                List<Object> results = new ArrayList<>();
                for (Args message : messages) {
                    results.add(Records.sent(sendOne(message)));
                }
                return results;
            case "async":
                return sendAsync(messages, args.number("timeout_ms", 30_000));
            case "oneway":
                for (Args message : messages) {
                    sendOneway(message);
                }
                return List.of();
            case "batch":
                List<Message> batch = new ArrayList<>();
                messages.forEach(message -> batch.add(Records.message(message)));
                return List.of(Records.sent(
                    args.has("queue") ? producer.send(batch, args.queue("queue")) : producer.send(batch)));
            case "transaction":
                return sendInTransaction(messages);
            default:
                throw new IllegalArgumentException("unknown mode '" + args.text("mode") + "'");
        }
    }

    private SendResult sendOne(Args args) throws Exception {
        Message message = Records.message(args);
        if (args.has("queue")) {
            return producer.send(message, args.queue("queue"));
        }
        if (args.has("sharding_key")) {
            return producer.send(message, new SelectMessageQueueByHash(), args.key("sharding_key"));
        }
        return producer.send(message);
    }

    private void sendOneway(Args args) throws Exception {
        Message message = Records.message(args);
        if (args.has("queue")) {
            producer.sendOneway(message, args.queue("queue"));
        } else if (args.has("sharding_key")) {
            producer.sendOneway(message, new SelectMessageQueueByHash(), args.key("sharding_key"));
        } else {
            producer.sendOneway(message);
        }
    }

    private List<Object> sendAsync(List<Args> messages, long timeoutMs) throws Exception {
        Object[] results = new Object[messages.size()];
        CountDownLatch pending = new CountDownLatch(results.length);
        Semaphore window = new Semaphore(IN_FLIGHT);
        for (int i = 0; i < results.length; i++) {
            int position = i;
            window.acquire();
            SendCallback callback = new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done(Records.sent(result));
                }

                @Override
                public void onException(Throwable failure) {
                    done(Json.map("status", "FAILED", "error", failure.toString()));
                }

                private void done(Map<String, Object> outcome) {
                    results[position] = outcome;
                    window.release();
                    pending.countDown();
                }
            };
            Args args = messages.get(i);
            Message message = Records.message(args);
            if (args.has("queue")) {
                producer.send(message, args.queue("queue"), callback);
            } else if (args.has("sharding_key")) {
                producer.send(message, new SelectMessageQueueByHash(), args.key("sharding_key"), callback);
            } else {
                producer.send(message, callback);
            }
        }
        if (!pending.await(timeoutMs, TimeUnit.MILLISECONDS)) {
            throw new TimeoutException(pending.getCount() + " of " + results.length + " sends have no answer");
        }
        return List.of(results);
    }

    private List<Object> sendInTransaction(List<Args> messages) throws Exception {
        List<Object> results = new ArrayList<>();
        for (Args args : messages) {
            Message message = Records.message(args);
            message.putUserProperty(CHECK_ANSWER, args.text("check_answer", "COMMIT"));
            var result = producer.sendMessageInTransaction(message, args.text("outcome", "COMMIT"));
            Map<String, Object> sent = Records.sent(result);
            sent.put("outcome", result.getLocalTransactionState());
            results.add(sent);
        }
        return results;
    }

    /** The outcome comes with the request; the answer to a later check comes with the message. */
    private static final class Outcomes implements TransactionListener {
        private final String actor;

        Outcomes(String actor) {
            this.actor = actor;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
            return state((String) outcome);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            LocalTransactionState answer = state(message.getUserProperty(CHECK_ANSWER));
            Peer.emit(Json.map("event", "checked", "actor", actor, "keys", message.getKeys(), "answer", answer));
            return answer;
        }

        private static LocalTransactionState state(String name) {
            switch (name) {
                case "COMMIT":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "ROLLBACK":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }
    }
}
