import json

import pytest

from gimbalmq.broker.access import Account
from gimbalmq.broker.tls import ServerTls
from gimbalmq.errors import ConfigurationError
from gimbalmq.testing.guarded import access_settings, admin_credentials, tls_flags

KEEPER = Account(access_key="keeper", secret_key="12345678", admin=True)
SHOP = Account(access_key="shop", secret_key="87654321", topics={"orders": "PUB"})


def test_4x_reads_its_accounts_from_a_file(tmp_path):
    assert access_settings("4.9.5", (KEEPER, SHOP), tmp_path) == {"aclEnable": "true"}
    written = json.loads((tmp_path / "plain_acl.yml").read_text())
    assert [one["accessKey"] for one in written["accounts"]] == ["keeper", "shop"]
    assert written["accounts"][1]["topicPerms"] == ["orders=PUB"]


def test_5x_starts_with_one_administrator(tmp_path):
    settings = access_settings("5.5.0", (KEEPER,), tmp_path)
    assert settings["authenticationEnabled"] == settings["authorizationEnabled"] == "true"
    assert json.loads(settings["initAuthenticationUser"])["username"] == "keeper"
    with pytest.raises(ConfigurationError, match="mqadmin createUser"):
        access_settings("5.5.0", (KEEPER, SHOP), tmp_path)


def test_a_cluster_is_looked_after_by_an_administrator():
    assert admin_credentials(()) is None
    assert admin_credentials((SHOP, KEEPER)).access_key == "keeper"
    with pytest.raises(ConfigurationError, match="administrator"):
        admin_credentials((SHOP,))


def test_client_certificates_are_asked_for_with_an_authority_only():
    assert tls_flags(None) == ()
    plain = tls_flags(ServerTls("s.pem", "s.key"))
    mutual = tls_flags(ServerTls("s.pem", "s.key", "ca.pem"))
    assert not any("need.client.auth" in flag for flag in plain)
    assert "-Dtls.server.trustCertPath=ca.pem" in mutual
