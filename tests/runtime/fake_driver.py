"""A driver in virtual time: answers calls from a table, runs timers when the test moves time."""

from gimbalmq.errors import GimbalError, TransportError
from gimbalmq.flows.effects import Call, Instant, Notify, Now, Sleep

#: What a server that never answers answers.
SILENCE = object()


class FakeTimer:
    def __init__(self, due, action):
        self.due = due
        self.action = action

    def cancel(self):
        self.action = None


class FakeDriver:
    """`answer(address, command)` gives the answer, or an error, of every call at once."""

    def __init__(self, answer):
        self.answer = answer
        self.at_s = 1000.0
        self.calls = []
        self.notified = []
        self.timers = []

    def now(self):
        return Instant(self.at_s, int(self.at_s * 1000))

    def monotonic(self):
        return self.at_s

    def post(self, action):
        action()

    def call(self, address, command, timeout_s, done):
        self.calls.append((address, command, timeout_s))
        answer = self._answer(address, command)
        if answer is not SILENCE:
            done(answer)

    def notify(self, address, command):
        self.notified.append((address, command))

    def disconnect(self, address):
        raise AssertionError(address)

    def call_later(self, delay_s, action):
        timer = FakeTimer(self.at_s + delay_s, action)
        self.timers.append(timer)
        return timer

    def spawn(self, flow, done):
        try:
            effect = next(flow)
            while True:
                result = None
                match effect:
                    case Call():
                        self.calls.append((effect.address, effect.command, effect.timeout_s))
                        result = self._answer(effect.address, effect.command)
                        if result is SILENCE:
                            return
                    case Notify():
                        self.notify(effect.address, effect.command)
                    case Now():
                        result = self.now()
                    case Sleep():
                        self.at_s += effect.seconds
                failed = isinstance(result, GimbalError)
                effect = flow.throw(result) if failed else flow.send(result)
        except StopIteration as stop:
            done(stop.value)
        except GimbalError as error:
            done(error)

    def _answer(self, address, command):
        answer = self.answer(address, command)
        return TransportError(f"{address} is down", address=address) if answer is None else answer

    def advance(self, seconds):
        """Let time pass, timer by timer."""
        end = self.at_s + seconds
        while due := [one for one in self.timers if one.due <= end]:
            timer = min(due, key=lambda one: one.due)
            self.timers.remove(timer)
            self.at_s = max(self.at_s, timer.due)
            if timer.action is not None:
                timer.action()
        self.at_s = end

    def of(self, code, address=None):
        """The commands of one code, to one address or to all."""
        return [
            command
            for where, command, _ in self.calls
            if command.code == code and address in {None, where}
        ]
