"""When tests may call a group's queues shared out."""


def agreed(admin, group, queues):
    """Whether all members share out by the brokers' list of members, and owners hold the queues.

    That every queue has one holder is not enough: a member that does not know of the others yet
    takes queue after queue, and for a moment the holders look like owners.
    """
    return not any(admin.explain(group, queue).differences for queue in queues)
