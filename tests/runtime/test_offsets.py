"""The file in which a broadcasting member keeps its offsets."""

import json

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.flows.offset import StartFrom, StartPolicy
from gimbalmq.flows.route import NameServers
from gimbalmq.model.queue import MessageQueue
from gimbalmq.runtime.instance import ClientInstance, InstanceSettings
from gimbalmq.runtime.offsets import LocalOffsets
from runtime.fake_driver import FakeDriver

FIRST, SECOND = (MessageQueue("orders", "broker-a", number) for number in range(2))
#: As Java's pretty printer writes it: the keys are objects, which no standard allows.
JAVA = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"orders"
\t\t}:12,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"orders"
\t\t}:3
\t}
}"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "10.0.0.7@DEFAULT" / "billing" / "offsets.json"


@pytest.fixture
def driver():
    return FakeDriver(lambda _address, _command: None)


@pytest.fixture
def load(path, driver):
    """Opens the file as a member does that starts; the one before has stopped then."""
    made = []

    def close():
        driver.advance(0.0)
        if made:
            made.pop().close()

    def load():
        close()
        instance = ClientInstance("me", NameServers(["n:1"]), InstanceSettings())
        instance.driver = driver
        made.append(LocalOffsets(instance, path, StartFrom(StartPolicy.FIRST)))
        return made[-1]

    yield load
    close()


def found(offsets, queue, driver):
    results = []
    offsets.find(queue, "a:1", results.append)
    driver.advance(0.0)
    return results[0]


@pytest.mark.rule("B5.5e")
def test_offsets_survive_a_restart(load, driver):
    offsets = load()
    offsets.commit(FIRST, None, 7)
    offsets.commit(SECOND, None, 9)
    again = load()
    assert (found(again, FIRST, driver), found(again, SECOND, driver)) == (7, 9)


@pytest.mark.rule("B5.5e")
def test_the_file_is_replaced_by_rename_and_never_half_written(load, path):
    load().commit(FIRST, None, 7)
    second = load()
    with path.open("rb") as reader:  # keeps the old file, whatever takes its name
        before = path.read_bytes()
        second.commit(FIRST, None, 8)
        load()
        assert reader.read() == before
    assert path.read_bytes() != before
    assert [one.name for one in path.parent.iterdir()] == ["offsets.json"]


@pytest.mark.rule("B5.5f")
def test_the_file_of_a_java_client_is_read(load, path, driver):
    with pytest.raises(json.JSONDecodeError):
        json.loads(JAVA)
    path.parent.mkdir(parents=True)
    path.write_bytes(JAVA)
    offsets = load()
    assert (found(offsets, FIRST, driver), found(offsets, SECOND, driver)) == (12, 3)


@pytest.mark.rule("B5.5f")
def test_what_java_keeps_beside_it_is_read_where_the_file_is_missing(load, path, driver):
    path.parent.mkdir(parents=True)
    path.with_name("offsets.json.bak").write_bytes(JAVA)
    assert found(load(), FIRST, driver) == 12


@pytest.mark.rule("B5.5f")
def test_what_java_keeps_beside_it_is_read_where_the_file_is_empty(load, path, driver):
    path.parent.mkdir(parents=True)
    path.touch()
    path.with_name("offsets.json.bak").write_bytes(JAVA)
    assert found(load(), FIRST, driver) == 12


@pytest.mark.rule("B5.5f")
def test_what_java_keeps_beside_it_is_read_where_the_file_is_corrupt(load, path, driver, caplog):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{]")
    path.with_name("offsets.json.bak").write_bytes(JAVA)
    offsets = load()
    assert (found(offsets, FIRST, driver), found(offsets, SECOND, driver)) == (12, 3)
    (record,) = [one for one in caplog.records if one.levelname == "WARNING"]
    assert "offsets.json is corrupt" in record.getMessage()
    assert "offsets.json.bak is used instead" in record.getMessage()


def test_two_corrupt_files_are_an_error_that_names_both(load, path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{]")
    path.with_name("offsets.json.bak").write_bytes(b"[")
    with pytest.raises(ConfigurationError, match=r"offsets\.json is corrupt .*offsets\.json\.bak"):
        load()


def test_a_corrupt_file_is_an_error_that_says_what_to_do(load, path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{]")
    with pytest.raises(ConfigurationError, match="move it away to start anew"):
        load()
