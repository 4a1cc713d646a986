"""A process with members of many groups, so that one kill takes a member from each.

Reads a JSON line for each request and answers with one: `join` a group, or which queues the member
of a topic has `owned`.
"""

import json
import sys

from gimbalmq import PushConsumer
from interop.rooms import python_strategy, stem


def join(nameserver, topic, name, place, **options):
    """A member of the group that is called as its topic."""
    consumer = PushConsumer(
        topic,
        nameserver=nameserver,
        allocation=python_strategy(name, topic),
        client_id=stem(name, topic, place),
        **options,
    )
    consumer.subscribe(topic, listener=lambda _message: None)
    return consumer.start()


def main():
    members = {}
    for line in sys.stdin:
        request = json.loads(line)
        topic = request["topic"]
        if request.pop("ask") == "join":
            members[topic] = join(**request)
            answer = members[topic].client_id
        else:
            answer = [queue.path for queue in members[topic].assignment()]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
