from gimbalmq.cli.worker.silence import Silence


def test_a_silence_begins_with_the_first_question_that_was_missed_and_ends_with_an_answer():
    silence = Silence()
    silence.note([7], answered=[7], now=0.0)
    assert silence.of(7, now=1000.0) == 0.0, "nobody asked"
    silence.note([7], answered=[], now=1000.0)
    silence.note([7], answered=[], now=1012.0)
    assert silence.of(7, now=1013.0) == 13.0
    silence.note([7], answered=[7], now=1020.0)
    assert silence.of(7, now=1021.0) == 0.0


def test_the_silence_of_a_process_that_is_gone_is_forgotten():
    silence = Silence()
    silence.note([7, 8], answered=[], now=0.0)
    silence.note([8], answered=[], now=5.0)
    silence.note([7, 8], answered=[], now=6.0)
    assert (silence.of(7, now=10.0), silence.of(8, now=10.0)) == (4.0, 10.0)
