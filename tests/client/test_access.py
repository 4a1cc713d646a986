import http.server
import pickle
import threading

import pytest

from client.reaching import consume, round_trip, send
from client.small_cluster import Elsewhere
from gimbalmq import (
    Admin,
    DeadLetter,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    RetryLater,
)
from gimbalmq.broker import EmbeddedCluster
from gimbalmq.broker.access import Account
from gimbalmq.client.access import Access, CurrentNameServers, client_access
from gimbalmq.client.dead_letters import DeadLetters
from gimbalmq.client.guard import GroupGuard
from gimbalmq.errors import (
    AccessDeniedError,
    ConfigurationError,
    SendError,
    StateError,
    TransportError,
    UnreachableError,
)
from gimbalmq.transport.nameservers import NameServerSource
from transport.certificates import client_context, server_files
from transport.server import LoopbackServer, closed_port
from waiting import eventually

KEYS = {"access_key": "keeper", "secret_key": "keeper-secret"}
CLIENTS = [
    pytest.param(lambda **options: Producer("g", **options), id="producer"),
    pytest.param(lambda **options: PushConsumer("g", **options), id="push"),
    pytest.param(lambda **options: PullConsumer("g", **options), id="pull"),
    pytest.param(lambda **options: LitePullConsumer("g", **options), id="lite-pull"),
    pytest.param(Admin, id="admin"),
]


@pytest.fixture(scope="module")
def guarded():
    accounts = (
        Account(access_key="keeper", secret_key="keeper-secret", admin=True),
        Account(access_key="shop", secret_key="shop-secret", topics={"orders": "PUB"}),
    )
    with EmbeddedCluster(accounts=accounts) as cluster:
        cluster.create_topic("orders", queues=2)
        yield cluster


@pytest.fixture(scope="module")
def encrypted():
    with EmbeddedCluster(tls=server_files(wants_client=True)) as cluster:
        cluster.create_topic("letters", queues=2)
        yield cluster


# ---- keys ------------------------------------------------------------------------------------


@pytest.mark.rule("W5.8a")
def test_right_keys_open_a_cluster_to_every_kind_of_client(guarded):
    guarded.create_topic("letters", queues=2)
    round_trip(guarded.nameserver, "letters", "readers", **KEYS)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({}, "asks for keys: give access_key and secret_key"),
        ({"access_key": "nobody", "secret_key": "x"}, "no user with access key 'nobody'"),
        (
            {"access_key": "keeper", "secret_key": "wr0ng"},
            "secret key does not belong to access key 'keeper': check secret_key",
        ),
    ],
)
def test_wrong_keys_are_refused_in_words(guarded, keys, words):
    with (
        Producer("p", nameserver=guarded.nameserver, **keys) as producer,
        pytest.raises(AccessDeniedError, match=words) as refused,
    ):
        producer.send(Message("orders", b"x"))
    assert not refused.value.retryable
    assert "wr0ng" not in str(refused.value)
    assert str(refused.value).count("refused SEND") == 1, "the same keys are not tried elsewhere"


def test_wrong_keys_are_refused_to_those_who_do_not_wait_and_to_administrators(guarded):
    wrong = {"access_key": "keeper", "secret_key": "wrong"}
    with Producer("p", nameserver=guarded.nameserver, **wrong) as producer:
        future = producer.send_async(Message("orders", b"x"))
        with pytest.raises(AccessDeniedError, match="check secret_key"):
            future.result(20.0)
    with (
        Admin(guarded.nameserver, **wrong) as admin,
        pytest.raises(AccessDeniedError, match="check secret_key"),
    ):
        admin.create_topic("new")


@pytest.mark.parametrize("kind", [PushConsumer, LitePullConsumer, PullConsumer])
def test_a_consumer_with_wrong_keys_does_not_start(guarded, kind):
    consumer = kind(
        "strangers", nameserver=guarded.nameserver, access_key="keeper", secret_key="wr0ng"
    )
    if kind is PushConsumer:
        consumer.subscribe("orders", listener=print)
    else:
        consumer.subscribe("orders")
    with pytest.raises(AccessDeniedError, match="check secret_key") as refused:
        consumer.start()
    assert "wr0ng" not in str(refused.value)
    with pytest.raises(StateError, match="failed to start"):
        consumer.start()
    consumer.stop()


def test_a_poller_with_wrong_keys_says_so_when_it_subscribes(guarded):
    consumer = LitePullConsumer(
        "strangers", nameserver=guarded.nameserver, access_key="nobody", secret_key="x"
    )
    consumer.start()
    with pytest.raises(AccessDeniedError, match="no user with access key 'nobody'"):
        consumer.subscribe("orders")


def test_a_consumer_without_the_right_to_read_does_not_start(guarded):
    consumer = PushConsumer(
        "strangers", nameserver=guarded.nameserver, access_key="shop", secret_key="shop-secret"
    )
    consumer.subscribe("orders", listener=print)
    with pytest.raises(AccessDeniedError, match="access key 'shop' may not do this"):
        consumer.start()


def test_keys_without_the_right_say_which_keys_lack_it(guarded):
    keys = {"access_key": "shop", "secret_key": "shop-secret"}
    assert send(guarded.nameserver, "orders", b"allowed", **keys).queue.topic == "orders"
    with (
        Admin(guarded.nameserver, **keys) as admin,
        pytest.raises(AccessDeniedError, match="access key 'shop' may not do this"),
    ):
        admin.create_topic("new")


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize("one", ["access_key", "secret_key"])
def test_one_key_without_the_other_is_refused_by_every_client(make, one):
    with pytest.raises(ConfigurationError, match="give both"):
        make(nameserver="127.0.0.1:1", **{one: "k3y"})


@pytest.mark.parametrize("make", CLIENTS)
def test_an_unknown_option_is_named_with_the_one_that_may_be_meant(make):
    with pytest.raises(ConfigurationError, match="did you mean access_key"):
        make(nameserver="127.0.0.1:1", acces_key="x")


def test_the_secret_is_in_no_text(guarded):
    access = client_access(guarded.nameserver, KEYS)
    assert "keeper-secret" not in f"{access!r} {access}"
    with (
        Producer("p", nameserver=guarded.nameserver, **KEYS) as producer,
        Admin(guarded.nameserver, **KEYS) as admin,
    ):
        assert "keeper-secret" not in f"{producer!r} {admin!r} {vars(producer)} {vars(admin)}"


def test_who_shares_a_client_id_shares_its_keys(guarded):
    with (
        Producer("a", nameserver=guarded.nameserver, client_id="till", **KEYS),
        pytest.raises(ConfigurationError, match="running with other keys"),
    ):
        Producer("b", nameserver=guarded.nameserver, client_id="till").start()


# ---- TLS -------------------------------------------------------------------------------------


@pytest.mark.rule("W1.7a")
def test_tls_with_client_certificates_carries_every_kind_of_client(encrypted):
    tls = client_context(shows_client=True)
    round_trip(encrypted.nameserver, "letters", "readers", tls=tls)


def test_a_missing_client_certificate_is_named(encrypted):
    with (
        Admin(encrypted.nameserver, tls=client_context()) as admin,
        pytest.raises(TransportError, match="certificate"),
    ):
        admin.topics()


def test_a_certificate_of_an_unknown_authority_is_refused_by_default(encrypted):
    with (
        Admin(encrypted.nameserver, tls=True) as admin,
        pytest.raises(TransportError, match="certificate is not accepted"),
    ):
        admin.topics()


def test_something_that_is_no_tls_setting_is_refused():
    with pytest.raises(ConfigurationError, match=r"give True .* or an ssl\.SSLContext"):
        Producer("p", nameserver="127.0.0.1:1", tls="yes")


# ---- addresses -------------------------------------------------------------------------------


def test_an_unreachable_broker_is_named_with_the_option_that_helps():
    nowhere = f"127.0.0.1:{closed_port()}"
    with (
        Elsewhere(nowhere) as cluster,
        Producer("p", nameserver=cluster.address) as producer,
        pytest.raises(SendError, match="address_map") as failed,
    ):
        producer.send(Message("orders", b"x"))
    assert f"address_map={{'{nowhere}': 'host:port'}}" in str(failed.value)


def test_an_address_map_that_leads_nowhere_is_named():
    nowhere = f"127.0.0.1:{closed_port()}"
    with (
        Elsewhere("192.0.2.7:10911") as cluster,
        Producer(
            "p", nameserver=cluster.address, address_map={"192.0.2.7:10911": nowhere}
        ) as producer,
        pytest.raises(SendError, match="does address_map lead to the right place") as failed,
    ):
        producer.send(Message("orders", b"x"))
    assert f"192.0.2.7:10911 (by address_map: {nowhere})" in str(failed.value)


def test_an_address_map_that_raises_is_named_by_whoever_has_to_connect():
    options = {"nameserver": "192.0.2.7:9876", "address_map": lambda address: {}[address]}
    words = "address_map raised KeyError: '192.0.2.7:9876' for 192.0.2.7:9876"
    consumer = PushConsumer("g", **options)
    consumer.subscribe("orders", listener=print)
    with pytest.raises(ConfigurationError, match=words):
        consumer.start()
    with Producer("p", **options) as producer:
        with pytest.raises(ConfigurationError, match=words):
            producer.send(Message("orders", b"x"))
        with pytest.raises(ConfigurationError, match=words):
            producer.send_async(Message("orders", b"x"))


def test_an_address_map_that_raises_for_a_broker_ends_nobodys_start_and_nobodys_send(caplog):
    with Elsewhere("192.0.2.7:10911") as cluster:
        table = {cluster.address: cluster.address}
        options = {"nameserver": cluster.address, "address_map": lambda address: table[address]}
        words = "address_map raised KeyError: '192.0.2.7:10911' for 192.0.2.7:10911"
        consumer = PushConsumer("g", **options)
        consumer.subscribe("orders", listener=print)
        with consumer:
            assert words in caplog.text
        with Producer("p", **options) as producer:
            with pytest.raises(ConfigurationError, match=words):
                producer.send(Message("orders", b"x"))
            with pytest.raises(ConfigurationError, match=words):
                producer.send_async(Message("orders", b"x")).result(20.0)


@pytest.mark.parametrize("kind", ["dict", "function"])
def test_the_address_map_leads_to_brokers_that_advertise_another_address(kind):
    with Elsewhere("192.0.2.7:10911") as cluster:
        table = {"192.0.2.7:10911": cluster.address}
        address_map = table if kind == "dict" else lambda address: table.get(address, address)
        send(cluster.address, "orders", b"x", address_map=address_map)
        got = consume(cluster.address, "g", "orders", 2, address_map=address_map)
    assert {message.body for message in got} == {b"one", b"two"}


# ---- namespace -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_cluster():
    with EmbeddedCluster() as cluster:
        for topic in ("shop%orders", "shop%letters", "found%letters", "orders"):
            cluster.create_topic(topic, queues=2)
        yield cluster


@pytest.mark.rule("W5.9")
def test_a_namespace_is_added_on_the_way_out_and_taken_off_on_delivery(shared_cluster):
    nameserver = shared_cluster.nameserver
    sent, got = round_trip(nameserver, "letters", "billing", namespace="shop")
    assert sent.queue.topic == "letters"
    assert {(message.topic, message.queue.topic) for message in got} == {("letters", "letters")}
    assert got[0].record_topic == "shop%letters"
    with Admin(nameserver) as everything:
        assert "shop%billing" in everything.groups()
        assert "billing" not in everything.groups()
        assert "letters" not in everything.topics()
        assert "%RETRY%shop%billing" in everything.topics(internal=True)
    with Admin(nameserver, namespace="shop") as admin:
        assert admin.topics() == ("letters", "orders")
        assert admin.route("letters").topic == "letters"
        assert {queue.topic for queue in admin.offsets("billing", "letters")} == {"letters"}
        assert {queue.topic for queue in admin.topic_stats("letters").queues} == {"letters"}
        tail = admin.tail("letters", start_from="first", follow=False)
        assert {message.topic for message in tail} == {"letters"}
        moved = admin.reset("billing", "letters", "earliest")
        assert {(queue.topic, offset) for queue, offset in moved.items()} == {("letters", 0)}


@pytest.mark.rule("W5.9")
def test_a_retried_message_of_a_namespace_knows_its_topic(shared_cluster):
    attempts = []

    def listener(message):
        attempts.append((message.topic, message.reconsume_times))
        if not message.reconsume_times:
            raise RetryLater(delay_level=1)

    nameserver = shared_cluster.nameserver
    consumer = PushConsumer("retrying", nameserver=nameserver, namespace="shop")
    reports = []
    consumer.on_rebalance(reports.append)
    consumer.subscribe("orders", listener=listener)
    with consumer:
        eventually(lambda: len(consumer.assignment()) == 3)
        assert {one.topic for one in consumer.assignment()} == {"orders", "%RETRY%retrying"}
        with Producer("p", nameserver=nameserver, namespace="shop") as producer:
            producer.send(Message("orders", b"again"))
        eventually(lambda: ("orders", 1) in attempts)
    assert {one.topic for report in reports for one in report.acquired} <= {
        "orders",
        "%RETRY%retrying",
    }


@pytest.mark.rule("W5.9")
def test_dead_letters_of_a_namespace_are_listed_and_given_to_its_group_again(shared_cluster):
    options = {"nameserver": shared_cluster.nameserver, "namespace": "attic"}
    got, bury = [], [True]

    def listener(message):
        if bury[0]:
            raise DeadLetter("for the test")
        got.append((message.topic, message.body))

    consumer = PushConsumer("burying", start_from="first", **options)
    consumer.subscribe("buried", listener=listener)
    shared_cluster.create_topic("attic%buried", queues=1)
    with (
        consumer,
        Producer("p", **options) as producer,
        Admin(**options) as admin,
    ):
        producer.send(Message("buried", b"x"))
        letters = DeadLetters(admin, "burying")
        (letter,) = eventually(lambda: list(letters.waiting()))
        bury[0] = False
        letters.redrive(letter)
        assert eventually(lambda: got) == [("buried", b"x")]
        assert list(letters.waiting()) == [], "what was re-driven is not listed again"
        assert len(list(letters.waiting(again=True))) == 1


@pytest.mark.rule("W5.9")
def test_a_guard_watches_the_group_of_its_namespace(shared_cluster):
    options = {"nameserver": shared_cluster.nameserver, "namespace": "shop"}
    consumer = PushConsumer("watched", **options)
    consumer.subscribe("orders", listener=print)
    with consumer, Admin(**options) as admin, Admin(shared_cluster.nameserver) as everything:
        seen = eventually(GroupGuard(admin, "watched").step)
        assert {deed.group for deed in seen} == {"watched"}
        assert {member for deed in seen for member in deed.members} == {consumer.client_id}
        assert not any(deed.members for deed in GroupGuard(everything, "watched").step())


# ---- name servers ----------------------------------------------------------------------------


class _AddressServer:
    """Answers with `text` at Java's path, and counts."""

    def __init__(self, text):
        self.text = text
        self.paths = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.paths.append(self.path)
                self.send_response(200 if outer.text else 404)
                self.end_headers()
                self.wfile.write(outer.text.encode())

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.domain = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def address_server():
    server = _AddressServer("")
    yield server
    server.stop()


@pytest.fixture
def no_environment(monkeypatch):
    for name in ("NAMESRV_ADDR", "ROCKETMQ_NAMESRV_DOMAIN", "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_environment")
def test_an_address_server_is_asked_where_no_name_server_is_given(shared_cluster, address_server):
    address_server.text = f"{shared_cluster.nameserver}\n"
    round_trip(
        None, "letters", "by-domain", namesrv_domain=address_server.domain, namespace="found"
    )
    assert set(address_server.paths) == {"/rocketmq/nsaddr"}


@pytest.mark.usefixtures("no_environment")
def test_an_address_server_that_knows_nothing_is_an_error_that_says_so(address_server):
    with pytest.raises(UnreachableError, match="gives no name servers: it answers 404"):
        Producer("p", namesrv_domain=address_server.domain).start()


@pytest.mark.rule("B2.1e")
@pytest.mark.usefixtures("no_environment")
def test_the_list_of_an_address_server_is_fetched_anew_when_its_time_has_come(address_server):
    address_server.text = "a:1;b:1"
    now = CurrentNameServers(
        client_access(None, {"namesrv_domain": address_server.domain}).source, 0.0
    )
    assert now.get().addresses == ("a:1", "b:1")
    address_server.text = "b:1;c:1"
    assert now.get().addresses == ("b:1", "c:1")
    address_server.text = ""
    assert now.get().addresses == ("b:1", "c:1"), "a failed question changes nothing"
    never = CurrentNameServers(NameServerSource(("a:1",)), 0.0)
    assert never.get() is never.get()


def test_a_name_server_that_is_down_is_passed_over(shared_cluster):
    down = f"127.0.0.1:{closed_port()};{shared_cluster.nameserver}"
    send(down, "orders", b"x")


def test_a_grpc_proxys_address_is_called_by_its_name():
    settings_frame = bytes.fromhex("000012040000000000") + bytes(18)
    with (
        LoopbackServer(raw=settings_frame) as proxy,
        Admin(proxy.address) as admin,
        pytest.raises(TransportError, match="gRPC proxy's port") as failed,
    ):
        admin.topics()
    assert "9876" in str(failed.value)


# ---- values ----------------------------------------------------------------------------------


@pytest.mark.rule("W5.9")
@pytest.mark.parametrize("by_variable", [True, False])
def test_an_instances_endpoint_is_its_namespace(monkeypatch, by_variable):
    endpoint = "http://MQ_INST_1_a.example.com:80"
    if by_variable:
        monkeypatch.setenv("NAMESRV_ADDR", endpoint)
    access = client_access(None if by_variable else endpoint, {})
    assert access.namespace.name == "MQ_INST_1_a"
    assert access.source.addresses == ("MQ_INST_1_a.example.com:80",)


def test_access_can_be_sent_to_another_process():
    access = client_access("a:1", {**KEYS, "tls": True, "address_map": {"b:2": "c:3"}})
    again = pickle.loads(pickle.dumps(access))
    assert isinstance(again, Access)
    assert again == access
    assert again.reach.target("b:2") == "c:3"
