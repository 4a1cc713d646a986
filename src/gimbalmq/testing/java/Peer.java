package gimbalmq.peer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A Java RocketMQ client driven by JSON lines.
 *
 * <p>In: {"id":1,"op":"open","actor":"c1","kind":"push",...}, then {"id":2,"op":OP,"actor":"c1",...},
 * {"id":3,"op":"close","actor":"c1"}. Out: {"id":1,"ok":VALUE} or {"id":1,"error":TEXT,"type":CLASS}, in
 * the order in which they finish, and {"event":NAME,"actor":"c1",...} at any time. When its input
 * ends the process closes its actors and exits, so it never outlives the one who started it.
 */
public final class Peer {
    private static final long CLOSE_LIMIT_MS = 10_000;
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final Map<String, Actor> actors = new ConcurrentHashMap<>();
    private final ExecutorService requests = Executors.newCachedThreadPool(task -> {
        Thread thread = new Thread(task, "peer-request");
        thread.setDaemon(true);
        return thread;
    });

    public static void main(String[] arguments) throws Exception {
        // RocketMQ prints log set-up to the standard output, which belongs to the protocol here.
        System.setOut(System.err);
        emit(Json.map("event", "ready", "pid", ProcessHandle.current().pid()));
        new Peer().serve();
    }

    static void emit(Map<String, Object> line) {
        byte[] bytes = (Json.line(line) + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            OUT.write(bytes, 0, bytes.length);
            OUT.flush();
        }
    }

    private void serve() throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Args request = Json.object(line);
            requests.execute(() -> answer(request));
        }
        Thread limit = new Thread(() -> {
            pause(CLOSE_LIMIT_MS);
            Runtime.getRuntime().halt(3);
        });
        limit.setDaemon(true);
        limit.start();
        actors.values().parallelStream().forEach(Actor::close);
        Runtime.getRuntime().halt(0);
    }

    private void answer(Args request) {
        long id = request.number("id");
        try {
            emit(Json.map("id", id, "ok", handle(request)));
        } catch (Throwable failure) {
            emit(Json.map("id", id, "error", story(failure), "type", failure.getClass().getName(), "code", code(failure)));
        }
    }

    private Object handle(Args request) throws Exception {
        String name = request.text("actor");
        switch (request.text("op")) {
            case "open":
                return open(name, request);
            case "close":
                Actor closing = actors.remove(name);
                if (closing != null) {
                    closing.close();
                }
                return closing != null;
            default:
                Actor actor = actors.get(name);
                if (actor == null) {
                    throw new IllegalStateException("no actor '" + name + "' is open");
                }
                return actor.handle(request.text("op"), request);
        }
    }

    private Object open(String name, Args request) throws Exception {
        Actor actor;
        switch (request.text("kind")) {
            case "producer":
                actor = new ProducerActor(name, request);
                break;
            case "push":
                actor = new PushActor(name, request);
                break;
            case "litepull":
                actor = new LitePullActor(request);
                break;
            case "admin":
                actor = new AdminActor(request);
                break;
            default:
                throw new IllegalArgumentException("unknown kind '" + request.text("kind") + "'");
        }
        actors.put(name, actor);
        return actor.handle("describe", request);
    }

    /** What happened, and why, and why that: client exceptions often say little themselves. */
    private static String story(Throwable failure) {
        StringBuilder story = new StringBuilder();
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            String words = cause.getMessage() == null ? cause.toString() : cause.getMessage();
            story.append(story.length() == 0 ? "" : ", because: ").append(words.strip());
        }
        return story.toString();
    }

    /** The remoting response code that a client exception carries, or null. */
    private static Object code(Throwable failure) {
        try {
            return failure.getClass().getMethod("getResponseCode").invoke(failure);
        } catch (ReflectiveOperationException none) {
            return null;
        }
    }

    static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }
}
