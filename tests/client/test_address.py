"""A broker's address, as people write it."""

import pytest

from dovetail.runtime.client.address import Address, parse


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("dovetail://127.0.0.1:7400", "127.0.0.1", 7400),
        ("dovetail://broker", "broker", 7400),
        ("dovetail://broker/", "broker", 7400),
        ("broker:9000", "broker", 9000),
        ("localhost", "localhost", 7400),
        ("[::1]:7401", "::1", 7401),
        ("dovetail://[::1]", "::1", 7400),
    ],
)
def test_an_address_is_read(url: str, host: str, port: int) -> None:
    assert parse(url) == Address(host, port)


def test_an_address_says_whether_the_broker_speaks_tls() -> None:
    assert parse("dovetails://broker") == Address("broker", 7400, tls=True)
    assert not parse("broker").tls


@pytest.mark.parametrize("url", ["broker:9000", "[::1]:7401", "localhost", "dovetails://broker"])
def test_an_address_is_written_as_it_is_read(url: str) -> None:
    assert parse(str(parse(url))) == parse(url)


@pytest.mark.parametrize(
    "url",
    ["", "http://broker:7400", "broker:port", "broker:0", "broker:70000", "dovetail://me@broker", "broker/orders"],
)
def test_what_is_no_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse(url)
