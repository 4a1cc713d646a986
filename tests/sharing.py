"""When tests may call a group's queues shared out."""


def agreed(admin, group, queues):
    """Whether all members share out by the brokers' list of members, and owners hold the queues.

    That every queue has one holder is not enough: a member that does not know of the others yet
    takes queue after queue, and for a moment the holders look like owners.
    """
    return not any(admin.explain(group, queue).differences for queue in queues)


def noticed(admin, group, queue):
    """Whether all members share out by the brokers' list of members, each by its own rule."""
    return not any("list of" in one for one in admin.explain(group, queue).differences)


def shared_out(admin, group, topic, members, queues):
    """Whether so many queues of a topic have one holder each, and the members agree on it."""
    held = [queue for one in members for queue in one.assignment() if queue.topic == topic]
    return len(held) == len(set(held)) == queues and agreed(admin, group, held)
