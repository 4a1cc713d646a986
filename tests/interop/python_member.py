"""Starts and steers `member.py`: what a test sees of a Python member in another process."""

import contextlib
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path

from gimbalmq.model.queue import parse_queue

_SCRIPT = Path(__file__).with_name("member.py")


class PythonMember:
    def __init__(self, nameserver, group, topic, allocation="AVG", *, listener_s=0.0, **options):
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(_SCRIPT),
                nameserver,
                group,
                topic,
                allocation,
                str(listener_s),
                json.dumps(options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers = queue.Queue()
        self._times = []
        self._reader = threading.Thread(target=self._read, name="member-reader", daemon=True)
        self._reader.start()
        try:
            self.client_id = self._answer("ready")["client_id"]
        except BaseException:
            self.kill()
            raise

    def _read(self):
        for line in self._process.stdout:
            # A killed process may leave half a line.
            with contextlib.suppress(json.JSONDecodeError):
                said = json.loads(line)
                if said["event"] in {"got", "done"}:
                    self._times.append((said["at_ms"], said["event"] == "done", said["key"]))
                else:
                    self._answers.put(said)

    def _answer(self, event):
        said = self._answers.get(timeout=30.0)
        assert said["event"] == event, said
        return said

    def _tell(self, command):
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def times(self):
        """When (wall time in ms) its listener got each message and, if True, was done with it."""
        return list(self._times)

    def owned(self):
        self._tell("owned")
        return frozenset(map(parse_queue, self._answer("owned")["queues"]))

    def stop(self):
        """Leave cleanly."""
        self._tell("stop")
        self._answer("stopped")
        self._end()

    def kill(self):
        """End as a crash would; harmless when it has ended."""
        self._process.kill()
        self._end()

    def _end(self):
        self._process.wait(30.0)
        self._reader.join(10.0)
        self._process.stdin.close()
        self._process.stdout.close()


class PythonCrowd:
    """A process of `crowd.py`: a member in each of many groups, which all die with it."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "interop.crowd"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_SCRIPT.parents[1],
        )
        self._lock = threading.Lock()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def join(self, nameserver, topic, name, place, **options):
        options |= {"nameserver": nameserver, "name": name, "place": place}
        return CrowdMember(self, topic, self.ask("join", topic, **options))

    def ask(self, what, topic, **fields):
        with self._lock:
            self._process.stdin.write(json.dumps({"ask": what, "topic": topic, **fields}) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def kill(self):
        """End as a crash would; harmless when it has ended."""
        self._process.kill()
        self._process.wait(30.0)
        self._process.stdin.close()
        self._process.stdout.close()


class CrowdMember:
    def __init__(self, crowd, topic, client_id):
        self._crowd, self._topic = crowd, topic
        self.client_id = client_id

    def owned(self):
        return frozenset(map(parse_queue, self._crowd.ask("owned", self._topic)))
