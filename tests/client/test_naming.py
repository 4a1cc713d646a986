import pytest

from gimbalmq import PushConsumer
from gimbalmq.client import naming
from gimbalmq.client.naming import name_process, process_folder, process_stem
from gimbalmq.client.options import offset_folder


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.setattr(naming, "_process", None)


def test_a_process_of_its_own_changes_no_name():
    assert process_stem("till") == "till"
    assert process_stem(None) is None
    assert process_folder("folder") == "folder"


def test_one_of_several_processes_has_its_number_in_every_name():
    name_process(3)
    assert process_stem("till") == "till-3"
    assert process_stem(None) is None
    assert process_folder("folder") == "folder-3"


def test_clients_without_a_name_take_that_of_the_processes():
    name_process(2, "desk")
    assert process_stem(None) == "desk-2"
    assert process_stem("till") == "till-2"
    consumer = PushConsumer("billing", nameserver="127.0.0.1:1")
    assert consumer.client_id.startswith("desk-2@")


def test_processes_keep_their_offsets_apart(tmp_path):
    name_process(1)
    first = {offset_folder(tmp_path, name, "billing") for name in (None, "till")}
    name_process(2)
    second = {offset_folder(tmp_path, name, "billing") for name in (None, "till")}
    assert len(first | second) == 4
