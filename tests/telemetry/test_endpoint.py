import http.client

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.telemetry.endpoint import Endpoint, json_page, metrics_page


def ask(endpoint, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def broken():
    raise ZeroDivisionError("by zero")


@pytest.fixture
def endpoint():
    pages = {
        "/metrics": lambda: metrics_page("up 1\n"),
        "/ready": lambda: json_page({"ready": False}, ok=False),
        "/broken": broken,
    }
    with Endpoint(pages, 0) as endpoint:
        yield endpoint


def test_metrics_come_in_the_form_that_prometheus_reads(endpoint):
    kind = "text/plain; version=0.0.4; charset=utf-8"
    assert ask(endpoint, "/metrics?name=x") == (200, kind, b"up 1\n")


def test_what_is_not_well_is_service_unavailable(endpoint):
    assert ask(endpoint, "/ready") == (503, "application/json", b'{"ready":false}\n')


def test_head_has_no_body(endpoint):
    assert ask(endpoint, "/metrics", "HEAD")[2] == b""


def test_an_unknown_page_names_those_there_are(endpoint):
    status, _, body = ask(endpoint, "/nope")
    assert status == 404
    assert b"/metrics, /ready" in body


def test_a_page_that_cannot_be_made_says_why_and_harms_no_other(endpoint):
    assert ask(endpoint, "/broken") == (500, "text/plain", b"ZeroDivisionError: by zero\n")
    assert ask(endpoint, "/metrics")[0] == 200


def test_it_listens_on_this_machine_only_unless_told_otherwise(endpoint):
    assert endpoint.address == f"127.0.0.1:{endpoint.port}"


def test_a_taken_port_is_a_clear_error(endpoint):
    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{endpoint.port}"):
        Endpoint({}, endpoint.port)


def test_a_stop_lets_go_of_the_port_and_may_be_repeated(endpoint):
    port = endpoint.port
    endpoint.stop()
    endpoint.stop()
    with Endpoint({}, port) as again:
        assert again.port == port
