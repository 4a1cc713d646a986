package gimbalmq.peer;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends many equal messages as fast as one thread can, for benchmarks; the result is in seconds. */
final class Pump {
    private final DefaultMQProducer producer;
    private final String topic;
    private final byte[] body;
    private final int count;

    Pump(DefaultMQProducer producer, Args args) {
        this.producer = producer;
        this.topic = args.text("topic");
        this.body = new byte[args.count("size", 1024)];
        java.util.Arrays.fill(body, (byte) 'x');
        this.count = args.count("count", 1);
    }

    double run(String mode, int width) throws Exception {
        long started = System.nanoTime();
        switch (mode) {
            case "sync":
                for (int i = 0; i < count; i++) {
                    producer.send(new Message(topic, body));
                }
                break;
            case "pipelined":
                pipelined(width);
                break;
            case "batch":
                for (int i = 0; i < count; i += width) {
                    List<Message> batch = new ArrayList<>(width);
                    for (int k = 0; k < width; k++) {
                        batch.add(new Message(topic, body));
                    }
                    producer.send(batch);
                }
                break;
            default:
                throw new IllegalArgumentException("unknown mode '" + mode + "'");
        }
        return (System.nanoTime() - started) / 1e9;
    }

    /** At most {@code width} messages have no answer yet. */
    private void pipelined(int width) throws Exception {
        Semaphore window = new Semaphore(width);
        CountDownLatch pending = new CountDownLatch(count);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                window.release();
                pending.countDown();
            }

            @Override
            public void onException(Throwable error) {
                failure.set(error);
                onSuccess(null);
            }
        };
        for (int i = 0; i < count; i++) {
            window.acquire();
            producer.send(new Message(topic, body), callback);
        }
        pending.await();
        if (failure.get() != null) {
            throw new IllegalStateException("a send failed", failure.get());
        }
    }
}
