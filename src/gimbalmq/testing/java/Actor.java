package gimbalmq.peer;

/** Something that a peer process hosts under a name: a producer, a consumer, an administrator. */
interface Actor {
    /** Does what the request asks and returns its answer, any JSON value. */
    Object handle(String op, Args args) throws Exception;

    /** Leaves cleanly: commits, says good-bye to brokers, ends its threads. */
    void close();

    static IllegalArgumentException unknown(String op) {
        return new IllegalArgumentException("unknown operation '" + op + "'");
    }
}
