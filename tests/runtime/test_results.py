from gimbalmq.errors import StateError
from gimbalmq.runtime.results import Results


def test_results_of_one_turn_are_taken_in_with_one_call():
    posted, taken = [], []
    results = Results(posted.append, taken.append)
    for number in range(3):
        results(number)
    assert (len(posted), taken) == (1, [])
    posted.pop()()
    assert taken == [0, 1, 2]
    results(3)
    posted.pop()()
    assert taken == [0, 1, 2, 3]


def test_a_result_that_comes_while_others_are_taken_in_is_not_lost():
    posted, taken = [], []

    def take(number):
        taken.append(number)
        if number == 0:
            results(1)

    results = Results(posted.append, take)
    results(0)
    while posted:
        posted.pop()()
    assert taken == [0, 1]


def test_nobody_is_left_to_take_what_comes_after_the_end():
    def refuse(_action):
        raise StateError("stopped")

    results = Results(refuse, lambda _done: None)
    results(0)
    results(1)
