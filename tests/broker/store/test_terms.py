from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.broker.store.terms import has_key, index_terms, key_hash, key_seed
from gimbalmq.model.java import hash_code
from gimbalmq.wire.properties import decode_properties

NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "XTAGS", "", "A"])
TEXT = st.text(st.sampled_from("ab ü\x01"), max_size=6)


@given(st.lists(st.tuples(NAMES, TEXT), max_size=6), st.booleans())
def test_terms_are_those_of_the_properties_as_java_reads_them(pairs, closed):
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs) + ("\x02" if closed else "")
    properties = decode_properties(text.encode())
    tag, hashes = index_terms(text.encode(), key_seed("orders"))
    assert tag == hash_code(properties.get("TAGS", ""))
    unique = [properties["UNIQ_KEY"].encode()] if "UNIQ_KEY" in properties else []
    words = dict.fromkeys(properties.get("KEYS", "").encode().split())
    assert hashes == [key_hash("orders", key) for key in [*unique, *words]]
    assert all(has_key(text.encode(), key) for key in [*unique, *words])


def test_equal_keys_of_different_topics_have_different_hashes():
    assert key_hash("orders", b"k") != key_hash("refunds", b"k")


def test_a_key_is_a_whole_word():
    assert has_key(b"KEYS\x01k1 k2\x02", b"k2")
    assert not has_key(b"KEYS\x01k1 k2\x02", b"k")
    assert not has_key(b"", b"")
