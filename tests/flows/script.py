"""Runs a flow by hand: a script answers its calls, and everything it asked for is kept."""

from gimbalmq.errors import GimbalError
from gimbalmq.flows.effects import Call, Instant, Notify, Now, Sleep, Together
from gimbalmq.wire.command import Command


class Script:
    """Answers in order, each a command, or an error to throw into the flow.

    Every call takes `call_takes_s` of the flow's time.
    """

    def __init__(self, *answers, call_takes_s=0.0):
        self._answers = list(answers)
        self._call_takes_s = call_takes_s
        self.at_s = 1000.0
        self.calls = []
        self.notified = []
        self.slept = []

    def run(self, flow):
        result = self._run(flow)
        assert not self._answers, "the flow ended before the script did"
        return result

    def _run(self, flow):
        try:
            effect = next(flow)
            while True:
                result = self._perform(effect)
                effect = flow.throw(result) if isinstance(result, Exception) else flow.send(result)
        except StopIteration as stop:
            return stop.value

    def _perform(self, effect):
        match effect:
            case Call():
                self.calls.append(effect)
                self.at_s += self._call_takes_s
                return self._answers.pop(0)
            case Notify():
                self.notified.append(effect)
            case Sleep():
                self.slept.append(effect.seconds)
                self.at_s += effect.seconds
            case Together():
                return [self._ended_with(flow) for flow in effect.flows]
            case Now():
                return Instant(self.at_s, int(self.at_s * 1000))
        return None

    def _ended_with(self, flow):
        try:
            return self._run(flow)
        except GimbalError as error:
            return error

    @property
    def asked(self):
        """Address and request code of every call."""
        return [(call.address, call.command.code) for call in self.calls]


def ok(body=b"", **fields):
    return Command(0, {name: str(value) for name, value in fields.items()}, body, flag=1)


def refusal(code, remark="because"):
    return Command(code, {}, flag=1, remark=remark)
