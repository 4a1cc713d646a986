import pickle
import ssl

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.transport.reach import PLAIN, Reach, TlsFiles, reach_of
from gimbalmq.wire.acl import Credentials
from gimbalmq.wire.command import Command
from transport.certificates import AUTHORITY, FOLDER


def test_without_options_nothing_is_signed_mapped_or_encrypted():
    reach = reach_of()
    command = Command(105, {"topic": "t"})
    assert reach == PLAIN
    assert reach.signed(command) is command
    assert reach.target("a:1") == "a:1"
    assert reach.context() is None


def test_true_means_the_authorities_of_this_system():
    context = reach_of(tls=True).context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context is reach_of(tls=True).context(), "reading the authorities takes its time"


def test_a_context_of_the_users_is_used_as_it_is():
    context = ssl.create_default_context()
    assert reach_of(tls=context).context() is context


def test_settings_can_be_sent_to_another_process_and_are_equal_there():
    files = TlsFiles(
        ca_file=str(AUTHORITY),
        cert_file=str(FOLDER / "client.pem"),
        key_file=str(FOLDER / "client.key"),
        check_hostname=False,
    )
    reach = reach_of(access_key="a", secret_key="s3cret", tls=files, address_map={"b:2": "c:3"})
    again = pickle.loads(pickle.dumps(reach))
    assert again == reach
    assert hash(again) == hash(reach)
    assert isinstance(again.context(), ssl.SSLContext)
    assert not again.context().check_hostname


def test_the_secret_is_not_shown():
    reach = Reach(credentials=Credentials("shop", "s3cret"))
    assert "s3cret" not in f"{reach} {reach!r}"
    assert "shop" in repr(reach)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"ca_file": "nowhere.pem"}, "TLS cannot use nowhere.pem"),
        ({"ca_file": str(FOLDER / "make.sh")}, "give files in PEM form"),
        ({"cert_file": str(AUTHORITY)}, "TLS cannot use"),
    ],
)
def test_files_that_cannot_be_used_are_named(files, words):
    with pytest.raises(ConfigurationError, match=words):
        TlsFiles(**files).context()


def test_a_key_needs_its_certificate():
    with pytest.raises(ConfigurationError, match="needs a certificate"):
        TlsFiles(key_file="client.key")


@pytest.mark.parametrize("wrong", [{"a": "b:1"}, {"a:1": "b"}, ["a:1"]])
def test_an_address_map_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=r"is not an address|address_map is"):
        reach_of(address_map=wrong)


def test_a_function_must_return_an_address():
    with pytest.raises(ConfigurationError, match="address_map gave None for a:1"):
        reach_of(address_map=lambda _: None).target("a:1")
    assert reach_of(address_map=str.upper).target("a:1") == "A:1"


def test_a_function_that_raises_is_an_error_that_says_for_which_address():
    known = {"a:1": "b:2"}
    reach = reach_of(address_map=lambda address: known[address])
    assert reach.target("a:1") == "b:2"
    with pytest.raises(ConfigurationError, match="address_map raised KeyError: 'c:3' for c:3"):
        reach.target("c:3")


@pytest.mark.parametrize(
    ("remark", "words"),
    [
        ("username cannot be null.", "got no keys, although access key 'shop' was sent"),
        ("User:shop is not found.", "no user with access key 'shop'"),
        ("check signature failed.", "check secret_key"),
        ("Check signature failed for accessKey=shop", "check secret_key"),
        ("No acl config for shop", "no user with access key 'shop'"),
        ("Need admin permission for request code=17", "access key 'shop' may not do this"),
        ("org.apache.rocketmq.acl.common.AclException: x", "access key 'shop' may not do this"),
    ],
)
@pytest.mark.parametrize("code", [1, 16])
def test_a_denial_is_put_into_words_and_keeps_the_brokers(remark, words, code):
    answer = Command(code, remark=f"{remark}\n at some.java.Line(1)", flag=1)
    Reach(credentials=Credentials("shop", "s")).explain(answer)
    assert words in answer.remark
    assert answer.remark.endswith(f"(in the broker's words: {remark})")


@pytest.mark.parametrize(
    ("code", "remark"),
    [(16, "the topic[t] sending message is forbidden"), (1, "disk full"), (17, "No acl config")],
)
def test_other_refusals_stay_as_they_are(code, remark):
    answer = Command(code, remark=remark, flag=1)
    Reach(credentials=Credentials("shop", "s")).explain(answer)
    assert answer.remark == remark
