import gc

from gimbalmq.telemetry.running import began, ended, running


class Client:
    pass


def mine():
    return [client for client in running() if isinstance(client, Client)]


def test_clients_are_found_while_they_run_oldest_first():
    first, second = Client(), Client()
    began(first)
    began(second)
    assert mine() == [first, second]
    ended(first)
    ended(first)
    assert mine() == [second]
    ended(second)


def test_a_forgotten_client_is_held_by_nobody():
    client = Client()
    began(client)
    del client
    gc.collect()
    assert mine() == []
