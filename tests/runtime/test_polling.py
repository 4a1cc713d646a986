"""What a poll hands out, and what it leaves for the next."""

import threading

from gimbalmq.runtime.polling import PollQueue
from runtime.test_workers import QUEUE, consume_of
from waiting import eventually


def offsets(messages):
    return [message.queue_offset for message in messages]


def test_a_poll_gets_no_more_than_a_pull_would_although_answers_come_together():
    done = []
    polls = PollQueue(done.append, 4)
    polls.submit(consume_of(10))
    assert [offsets(polls.poll(0.0)) for _ in range(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], []]
    polls.settle()
    assert [(one.first, one.until) for one in done] == [(0, 4), (4, 8), (8, 10)]


def test_what_is_left_of_an_answer_goes_with_its_queue():
    polls = PollQueue(lambda _done: None, 4)
    polls.submit(consume_of(10))
    polls.poll(0.0)
    polls.cancel(QUEUE, 1)
    assert polls.poll(0.0) == []


def test_what_one_thread_leaves_of_an_answer_is_another_threads_at_once():
    polls, got, waits = PollQueue(lambda _done: None, 4), [], []
    wait = polls._changed.wait

    def counted(timeout_s):
        waits.append(timeout_s)
        return wait(timeout_s)

    polls._changed.wait = counted
    threads = [
        threading.Thread(target=lambda: got.append(offsets(polls.poll(60.0))), daemon=True)
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: len(waits) == 2)
    polls.submit(consume_of(8))
    for thread in threads:
        thread.join(10.0)
    assert sorted(got) == [[0, 1, 2, 3], [4, 5, 6, 7]]
