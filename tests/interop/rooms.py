"""Strategies that both languages have, made alike in each process that holds members.

The brokers' names carry rooms in both of the ways that Java's strategies read them: the text
before `@` (MACHINE_ROOM) and the text before the first `-` (what the Java members' resolver does).
"""

from gimbalmq import balance
from gimbalmq.model.queue import MessageQueue

BROKERS = ("room1@x-a", "room2@x-b")
QUEUES_PER_BROKER = 3
STRATEGIES = (
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "MACHINE_ROOM",
    "MACHINE_ROOM_NEARBY-AVG",
    "CONFIG",
)
_ROOMS = ["room1", "room2"]
#: Of CONFIG: how many queues each place has, so that four members have all of them.
_PLACES = (2, 2, 1, 1)


def queues_of(topic):
    return sorted(
        MessageQueue(topic, broker, number)
        for broker in BROKERS
        for number in range(QUEUES_PER_BROKER)
    )


def stem(name, topic, place):
    """What a member's id begins with: the room that it is in, and its place in the group."""
    # Where lists are written by hand, rooms are of no matter.
    number = 2 if place == 2 and name != "CONFIG" else 1
    return f"room{number}@x-{topic}-{place}"


def written(topic):
    """The queues of each place, as CONFIG has them written down."""
    queues = iter(queues_of(topic))
    return [[next(queues) for _ in range(count)] for count in _PLACES]


def python_strategy(name, topic):
    match name:
        case "MACHINE_ROOM":
            return balance.strategy(name, rooms=_ROOMS)
        case "MACHINE_ROOM_NEARBY-AVG":
            return balance.strategy(
                name, room_of_queue=lambda queue: _room(queue.broker), room_of_member=_room
            )
        case "CONFIG":
            lists = {stem(name, topic, place): one for place, one in enumerate(written(topic))}
            return balance.strategy(name, queues=lists)
    return balance.strategy(name)


def java_options(name, topic, place):
    """What a Java member needs to make the same strategy; of CONFIG it knows its own list only."""
    match name:
        case "MACHINE_ROOM":
            return {"rooms": _ROOMS}
        case "CONFIG":
            return {"fixed_queues": written(topic)[place]}
    return {}


def _room(text):
    return text.split("-", 1)[0]
