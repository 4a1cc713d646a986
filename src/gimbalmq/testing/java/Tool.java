package gimbalmq.peer;

import java.util.Arrays;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of mqadmin one after the other in this process.
 *
 * <p>Each is given as the number of its arguments, then these. A mark goes before the output of
 * each, so that the reader can tell them apart.
 */
public final class Tool {
    private static final String MARK = "\u001fcommand\u001f\n";

    public static void main(String[] arguments) {
        int at = 0;
        while (at < arguments.length) {
            int until = at + 1 + Integer.parseInt(arguments[at]);
            System.out.print(MARK);
            MQAdminStartup.main(Arrays.copyOfRange(arguments, at + 1, until));
            System.out.flush();
            at = until;
        }
        // Clients that a command forgot to shut down must not keep the process.
        System.exit(0);
    }
}
