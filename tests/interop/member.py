"""A push consumer in a process of its own, so that a test can really kill it.

Reads commands from standard input, one per line, and writes JSON lines: `ready`, one `got` per
message when its listener begins and one `done` before it returns, each with the time, and the
answers to `owned` and `stop`.
"""

import json
import sys
import threading
import time

from gimbalmq import PushConsumer


def main(nameserver, group, topic, allocation, listener_s="0", options="{}"):
    lock = threading.Lock()

    def say(**line):
        with lock:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    def tell(event, message):
        say(event=event, key=message.keys[0], at_ms=int(time.time() * 1000))

    def listener(message):
        tell("got", message)
        time.sleep(float(listener_s))
        tell("done", message)

    consumer = PushConsumer(
        group,
        nameserver=nameserver,
        allocation=allocation,
        start_from="first",
        **json.loads(options),
    )
    consumer.subscribe(topic, listener=listener)
    consumer.start()
    say(event="ready", client_id=consumer.client_id)
    for line in sys.stdin:
        if line.strip() == "owned":
            say(event="owned", queues=[queue.path for queue in consumer.assignment()])
        elif line.strip() == "stop":
            break
    consumer.stop()
    say(event="stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])
