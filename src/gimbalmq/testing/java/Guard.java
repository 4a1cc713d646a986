package gimbalmq.peer;

import java.io.IOException;
import java.util.Arrays;

/**
 * Runs a server's main class and ends it when the standard input ends.
 *
 * <p>The one who started the server holds the other end of that pipe; however it dies, the kernel
 * closes the pipe and the server shuts down, so no server is ever left behind.
 */
public final class Guard {
    private static final long SHUTDOWN_LIMIT_MS = 30_000;

    public static void main(String[] arguments) throws Exception {
        Thread watch = new Thread(Guard::watch, "guard");
        watch.setDaemon(true);
        watch.start();
        Class.forName(arguments[0])
            .getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(arguments, 1, arguments.length));
    }

    private static void watch() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException closed) {
            System.err.println("the pipe of the parent process broke: " + closed);
        }
        Thread limit = new Thread(() -> {
            Peer.pause(SHUTDOWN_LIMIT_MS);
            Runtime.getRuntime().halt(3);
        });
        limit.setDaemon(true);
        limit.start();
        System.exit(0);
    }
}
