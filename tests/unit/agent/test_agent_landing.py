# SPDX-License-Identifier: Apache-2.0
"""Where a migration comes in: networks by interface and by address range, sockets, and whose certificate."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from launcher.agent.landing import Landings
from launcher.agent.migration_options import node_options
from launcher.errors import HostUnsupported, InvalidRequest
from launcher.host.certificates import Certificates
from launcher.host.config import Config, Libvirt, Migration
from launcher.migration.peer import PrepareRequest
from launcher.migration.ports import PortPool
from launcher.migration.reservation import Landing

NETWORKS = {"fast": "lo", "range": "127.0.0.0/8", "six": "2001:db8::7", "away": "no-such-link"}


def landings(address: str = "192.0.2.1", *, uri: str = "qemu+tls://{address}/system") -> Landings:
    return Landings(
        Config(
            node="b",
            libvirt=Libvirt(migration_uri=uri),
            migration=Migration(address=address, networks=NETWORKS),
        )
    )


def request(network: str = "", attempt: str = "1") -> PrepareRequest:
    return PrepareRequest(attempt=attempt, source_node="a", vmi="{}", domain_xml="", network=network)


@pytest.mark.parametrize(
    ("network", "address"),
    [("", "192.0.2.1"), ("fast", "127.0.0.1"), ("range", "127.0.0.1"), ("six", "2001:db8::7")],
)
def test_a_network_is_found_by_what_it_is_here(network: str, address: str) -> None:
    assert landings().find(network) == Landing(address=address)
    assert landings().findings(request(network)) == ()


def test_the_stream_disks_and_libvirt_all_go_there() -> None:
    here, ports = landings(), PortPool(5000, 5001, lambda _port: True)
    ports.allocate("x")
    found = here.endpoints(ports, "x", 5000, here.find("six"))
    assert found.destination_uri == "qemu+tls://[2001:db8::7]/system"
    assert (found.migrate_uri, found.disks_uri) == ("tcp://[2001:db8::7]:5000", "tcp://[2001:db8::7]:5001")


def test_a_port_is_free_as_soon_as_nobody_listens() -> None:
    """Not a minute later: guests that go to and fro would use up the range."""
    here = Landings(Config(node="b", migration=Migration(address="127.0.0.1")))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert not here.is_free(port)
        with socket.create_connection(("127.0.0.1", port)):
            listener.accept()[0].close()  # Whoever closes first keeps the port for a minute.
    assert here.is_free(port)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ("slow", "no migration network 'slow'; it has (migration.networks) away, fast, range, six"),
        ("away", "migration.networks.away is 'no-such-link': neither an address nor an interface"),
    ],
)
def test_a_network_that_is_not_here_is_a_finding(network: str, words: str) -> None:
    (finding,) = landings().findings(request(network))
    assert words in finding


def test_a_node_without_an_address_takes_none() -> None:
    (finding,) = landings("").findings(request())
    assert "migration.address is not configured" in finding
    assert landings("").findings(request("fast")) == ()


def test_sockets_have_a_folder_and_are_removed_before_and_after(tmp_path: Path) -> None:
    here = landings(f"unix:{tmp_path}", uri="qemu+unix:///system?socket=/run/b")
    ports = PortPool(1, 2, lambda _port: True)
    landing = here.find("")
    found = here.endpoints(ports, "../x", 1, landing)
    assert found.destination_uri == "qemu+unix:///system?socket=/run/b"
    paths = [Path(uri.removeprefix("unix://")) for uri in (found.migrate_uri, found.disks_uri)]
    assert [path.parent for path in paths] == [tmp_path, tmp_path]
    for path in paths:
        path.touch()
    assert here.reserve(request(attempt="../x")) == landing
    assert list(tmp_path.iterdir()) == []
    assert here.findings(request()) == ()
    copied = PrepareRequest(attempt="1", source_node="a", vmi="{}", domain_xml="", copied_bytes=1, tls=True)
    assert "set disableTLS" in here.findings(copied)[0]
    (long,) = landings(f"unix:{tmp_path}/{'d' * 100}").findings(request())
    assert "is no folder" in long


def test_sockets_need_a_way_to_libvirtd_that_is_no_address(tmp_path: Path) -> None:
    (finding,) = landings(f"unix:{tmp_path}").findings(request())
    assert finding.startswith("libvirt.migration_uri is qemu+tls://{address}/system")
    assert landings(f"unix:{tmp_path}", uri="qemu+unix:///system?socket=/run/b").findings(request()) == ()


def test_a_folder_whose_sockets_have_too_long_a_path_is_a_finding(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    (finding,) = landings(f"unix:{deep}").findings(request())
    assert "is too long" in finding


@pytest.mark.parametrize(
    ("names", "landing", "server"),
    [
        (("192.0.2.1",), Landing(address="192.0.2.1"), ""),
        (("2001:DB8:0::7",), Landing(address="2001:db8::7"), ""),
        (("b", "192.0.2.1"), Landing(address="198.51.100.1"), "b"),
        (("b",), Landing(folder="/run"), "b"),
    ],
)
def test_the_certificate_is_for_the_address_or_for_the_host(
    names: tuple[str, ...], landing: Landing, server: str
) -> None:
    assert landings().server(certificates(*names), landing) == server


def test_a_certificate_for_somebody_else_is_refused_with_both() -> None:
    with pytest.raises(HostUnsupported, match=r"is for c, not for 198\.51\.100\.1 nor b"):
        landings().server(certificates("c"), Landing(address="198.51.100.1"))


def test_the_option_names_a_network_of_the_node() -> None:
    known = Migration(networks={"fast": "lo"}, options={"network": "fast"})
    assert node_options(Config(migration=known)).network == "fast"
    unknown = Migration(networks={"fast": "lo"}, options={"network": "slow"})
    with pytest.raises(InvalidRequest, match=r"migration\.options\.network.*migration\.networks has fast"):
        node_options(Config(migration=unknown))


def certificates(*names: str) -> Certificates:
    return Certificates(server_until=0.0, client_until=0.0, names=names)
