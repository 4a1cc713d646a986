"""Appends to a store until it is killed, and prints what it may acknowledge.

Run by test_crash: `crash_writer.py DIRECTORY POLICY SEED`. A line is `queue offset number`.
"""

from __future__ import annotations

import random
import sys
import time

from gimbalmq.broker.store import (
    FlushPolicy,
    RetentionPolicy,
    StoredMessage,
    StoreOptions,
    open_store,
)


def main() -> None:
    directory, policy, seed = sys.argv[1:]
    chance = random.Random(int(seed))
    flush = FlushPolicy(policy)
    options = StoreOptions(
        flush=flush,
        group_commit=True,
        flush_interval_ms=20,
        segment_bytes=16_384,
        retention=RetentionPolicy(keep_bytes=400_000),
        retention_interval_ms=5,
    )
    store = open_store(directory, store_host=("127.0.0.1", 10911), options=options)
    sys.stdout.write("ready\n")
    number = int(seed) * 1_000_000
    while True:
        lines = []
        for _ in range(chance.randint(1, 3)):
            batch = []
            for _ in range(chance.choice([1, 1, 1, 5])):
                number += 1
                body = b"%d:" % number + bytes([number % 256]) * chance.randint(0, 3000 // 5)
                properties = b"UNIQ_KEY\x01U%d\x02" % number
                queue_id = chance.randint(0, 3)
                batch.append(StoredMessage("orders", queue_id, body, properties=properties))
            where = store.append(batch, time.time_ns() // 1_000_000)
            for message, one in zip(batch, where, strict=True):
                acknowledged = message.body.partition(b":")[0].decode()
                lines.append(f"{message.queue_id} {one.queue_offset} {acknowledged}\n")
        if store.flush_wanted:
            store.flush()
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        store.tick(time.time_ns() // 1_000_000)


if __name__ == "__main__":
    main()
