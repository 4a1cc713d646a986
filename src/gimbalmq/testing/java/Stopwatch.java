package gimbalmq.peer;

import java.util.concurrent.atomic.AtomicLong;

/** Takes the time from the first listener call to the end of the call that makes the target full. */
final class Stopwatch {
    private final AtomicLong started = new AtomicLong();
    private final AtomicLong finished = new AtomicLong();
    private volatile long target = Long.MAX_VALUE;
    private volatile long ended;

    /** Forgets what was counted; the next call starts the time again. */
    void expect(long messages) {
        started.set(0);
        finished.set(0);
        ended = 0;
        target = messages;
    }

    void begin() {
        if (started.get() == 0) {
            started.compareAndSet(0, System.nanoTime());
        }
    }

    void end(int messages) {
        if (finished.addAndGet(messages) >= target && ended == 0) {
            ended = System.nanoTime();
        }
    }

    /** Seconds, or null while messages are missing. */
    Double lapse() {
        return ended == 0 ? null : (ended - started.get()) / 1e9;
    }
}
