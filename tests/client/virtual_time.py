"""A consumer as users make it, with its own settings, on scripted brokers in virtual time."""

from types import SimpleNamespace

from gimbalmq.client.pull_consumer import PullReader
from gimbalmq.flows.route import NameServers
from gimbalmq.runtime.instance import ClientInstance
from gimbalmq.runtime.polling import PollQueue
from runtime.fake_driver import FakeDriver
from runtime.group_stage import GROUP, Brokers, Workers, broker_set

__all__ = ["GROUP", "VirtualMember"]


class VirtualMember:
    """Joins with the host that the consumer makes; its topic is `orders`, with a queue each."""

    def __init__(self, kind, brokers=None, **options):
        self.consumer = kind(GROUP, nameserver="n:1", client_id="me", **options)
        listening = {"listener": print} if hasattr(kind, "on_hung") else {}
        self.consumer.subscribe("orders", **listening)
        self.brokers = Brokers(broker_set("a")) if brokers is None else brokers
        self.brokers.members = [self.consumer.client_id]
        self.driver = FakeDriver(self.brokers)
        settings = self.consumer._membership._settings
        self.instance = ClientInstance(self.consumer.client_id, NameServers(["n:1"]), settings)
        self.instance.attach(self.driver)
        passive = isinstance(self.consumer, PullReader)
        holder = SimpleNamespace(instance=self.instance) if passive else self.instance
        self.host = self.consumer._new_host(holder, self.driver.now().wall_ms)
        self.polls = PollQueue(self.host.finished, 10)
        self.workers = Workers()
        if not passive:
            self.host.attach(self.workers if listening else self.polls)

    def start(self, settle_s=1.0):
        outcome = []
        self.instance.join(self.host, outcome.append)
        assert outcome == [None]
        self.host.begin(lambda: None)
        self.driver.advance(settle_s)
        return self

    def advance(self, seconds):
        self.driver.advance(seconds)

    def owned(self):
        return self.host.machine.assignment()

    def of(self, code):
        return self.driver.of(code)

    def timeouts(self, code):
        """The time limits of the calls of one code."""
        return {limit_s for _, command, limit_s in self.driver.calls if command.code == code}

    def notified(self, code):
        return [one for _, one in self.driver.notified if one.code == code]
