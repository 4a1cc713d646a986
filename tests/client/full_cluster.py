"""A scripted broker that takes what producers send in every way."""

from client.small_cluster import SmallCluster
from gimbalmq import Message
from gimbalmq.wire.batch import decode_batch
from gimbalmq.wire.codes import RequestCode as R
from gimbalmq.wire.command import response_to

__all__ = ["OFFSET_ID", "FullCluster", "message"]

OFFSET_ID = "7F00000100002A9F0000000000000400"


class FullCluster(SmallCluster):
    """Takes batches and half messages too, and keeps the ends of transactions."""

    def __init__(self, *topics, send_code=0, end_code=0, **options):
        self.batches = []
        self.ends = []
        self._refusals = []
        #: Of the broker, as its answers say.
        self.version = None
        self.send_code = send_code
        self.end_code = end_code
        super().__init__(*topics, **options)

    def _respond(self, request):
        answer = self._answer_to(request)
        if answer is not None and self.version is not None:
            answer.version = self.version
        return answer

    def _answer_to(self, request):
        if request.code == R.SEND_BATCH_MESSAGE:
            with self._state:
                self.batches.append(request)
            ids = ",".join(OFFSET_ID for _ in decode_batch(request.body))
            return self._stored(request, ids)
        if request.code == R.END_TRANSACTION:
            with self._state:
                self.ends.append(request)
            return None if request.is_oneway else response_to(request, self.end_code, "no")
        return super()._respond(request)

    def _send(self, request):
        self.sent.append(request)
        return self._stored(request, OFFSET_ID)

    def refuse_once(self, code):
        """Answer the next message with a code, and what comes then as ever."""
        self._refusals.append(code)

    def _stored(self, request, ids):
        if self._refusals:
            return response_to(request, self._refusals.pop(), "not now")
        if self.send_code is None:
            return None  # silence
        fields = {"msgId": ids, "queueId": request.fields["e"], "queueOffset": "7"}
        return response_to(request, self.send_code, fields=fields)


def message(body=b"x", **options):
    """A message to its topic."""
    return Message("orders", body, **options)
