import os

import pytest

from client.small_cluster import SmallCluster
from gimbalmq import Message, Producer
from gimbalmq.client.access import Access
from gimbalmq.client.shared import share
from gimbalmq.runtime.instance import InstanceSettings
from gimbalmq.transport.nameservers import NameServerSource


def at(address):
    return Access(NameServerSource((address,)))


@pytest.fixture
def cluster():
    with SmallCluster("orders") as cluster:
        yield cluster


def test_equal_client_ids_share_one_instance_and_the_last_user_ends_it(cluster):
    one, two = (share("till", at(cluster.address), InstanceSettings()) for _ in "12")
    assert one is two
    one.release()
    assert two.run(lambda: "alive") == "alive"
    two.release()
    three = share("till", at(cluster.address), InstanceSettings())
    assert three is not one
    three.release()


def test_another_client_id_or_cluster_has_an_instance_of_its_own(cluster):
    made = [
        share("till", at(cluster.address), InstanceSettings()),
        share("till-2", at(cluster.address), InstanceSettings()),
        share("till", at("127.0.0.1:1"), InstanceSettings()),
    ]
    assert len({id(one) for one in made}) == 3
    for one in made:
        one.release()


def test_an_error_on_the_engine_thread_is_raised_where_it_was_asked_for(cluster):
    shared = share("till", at(cluster.address), InstanceSettings())
    with pytest.raises(ZeroDivisionError):
        shared.run(lambda: 1 // 0)
    shared.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_makes_clients_of_its_own(cluster):
    with Producer("shop", nameserver=cluster.address, client_id="till") as parent:
        parent.send(Message("orders", b"parent"))
        child = os.fork()
        if child == 0:
            try:
                with Producer("shop", nameserver=cluster.address, client_id="till") as producer:
                    producer.send(Message("orders", b"child"))
            except BaseException:  # noqa: BLE001 - the exit code is the child's only voice
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        parent.send(Message("orders", b"parent again"))
    assert [request.body for request in cluster.sent] == [b"parent", b"child", b"parent again"]
