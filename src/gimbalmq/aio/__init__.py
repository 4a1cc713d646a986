"""The client for asyncio: the same classes as in `gimbalmq`, with coroutines where it waits.

Everything runs on the loop that is running when an object is started; there is no thread of ours,
except for plain functions given as listeners. The classes take the same options and decide the
same as those of `gimbalmq`, with which they share groups and instances on the brokers' side.

    async with aio.Producer("shop", nameserver="127.0.0.1:9876") as producer:
        results = await asyncio.gather(*(producer.send(one) for one in messages))
"""

from __future__ import annotations

from gimbalmq.aio.admin import Admin
from gimbalmq.aio.lite_pull_consumer import LitePullConsumer
from gimbalmq.aio.producer import Producer
from gimbalmq.aio.pull_consumer import PullConsumer
from gimbalmq.aio.push_consumer import PushConsumer

__all__ = ["Admin", "LitePullConsumer", "Producer", "PullConsumer", "PushConsumer"]
