"""The egress guard: which addresses are closed, in every spelling, and that none is asked twice."""

from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from app.core.faults import FaultKind
from app.runtime.errors import ToolFailure
from app.tools.egress import (
    EgressGuard,
    EgressRefusedError,
    UnresolvedError,
    literal_address,
    networks,
)
from tests.tools.support import answering, fault, json_answer, run, serving, tool, tools_for


class Names:
    """A name server that gives each answer once, the last for ever."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        del host, port
        self.asked += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


_CLOSED = [
    "0.0.0.0",  # noqa: S104 - an address to refuse
    "10.1.2.3",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.req("TOOL-16")
@pytest.mark.parametrize("address", _CLOSED)
def test_addresses_inside_are_closed(address: str) -> None:
    assert not EgressGuard().permits(ip_address(address))


@pytest.mark.req("TOOL-16")
@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "172.32.0.1",
        "100.128.0.1",
        "2606:4700::1111",
        "64:ff9b::808:808",
        "::ffff:8.8.8.8",
    ],
)
def test_public_addresses_are_open(address: str) -> None:
    assert EgressGuard().permits(ip_address(address))


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "2002:7f00:1::"])
def test_an_operator_can_allow_a_network(address: str) -> None:
    guard = EgressGuard(allow=networks("127.0.0.0/8, fd00::/8"))
    assert guard.permits(ip_address(address))
    assert guard.permits(ip_address("fd00::1"))
    assert not guard.permits(ip_address("10.0.0.1"))


@pytest.mark.req("TOOL-16")
@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "[::1]",
        "::1%lo",
    ],
)
async def test_numbers_in_any_spelling_are_addresses(host: str) -> None:
    names = Names(["8.8.8.8"])
    with pytest.raises(EgressRefusedError):
        await EgressGuard(resolver=names).addresses(host, 80)
    assert names.asked == 0


@pytest.mark.parametrize("host", ["1.2.3.4.5", "0x", "999.1.1.1", "1.2.3.0x100"])
def test_what_looks_like_a_number_and_is_none_is_refused(host: str) -> None:
    with pytest.raises(EgressRefusedError, match="neither a name nor an address"):
        literal_address(host)


async def test_one_closed_address_among_several_closes_the_host() -> None:
    guard = EgressGuard(resolver=Names(["8.8.8.8", "10.0.0.1"]))
    with pytest.raises(EgressRefusedError):
        await guard.addresses("a.test", 80)


async def test_a_host_without_address_is_unresolved() -> None:
    with pytest.raises(UnresolvedError):
        await EgressGuard(resolver=Names([])).addresses("a.test", 80)


@pytest.mark.req("TOOL-16")
@pytest.mark.case("C167")
async def test_the_checked_address_is_the_one_connected_to() -> None:
    """The name moves to a canary after the first answer; it is not asked a second time."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    async with (
        serving(answering(json_answer("1"))) as real,
        tools_for(allow="127.0.0.1/32", resolver=names) as tools,
    ):
        spec = tool(f"http://rebind.test:{real.port}/x", effect="once")
        assert (await run(tools, spec)).output == 1
        assert names.asked == 1
        assert real.seen[0].headers["host"] == f"rebind.test:{real.port}"
        with pytest.raises(ToolFailure) as refused:
            await run(tools, spec)
    found = refused.value.fault
    assert (found.kind, refused.value.flagged) == (FaultKind.PERMISSION, "egress")
    assert not found.sent
    assert len(real.seen) == 1


@pytest.mark.req("TOOL-16")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:7f00:1]"])
async def test_the_loopback_is_not_reached_unless_allowed(host: str) -> None:
    async with serving(answering(json_answer("1"))) as canary, tools_for(allow="") as tools:
        found = await fault(tools, tool(f"http://{host}:{canary.port}/"))
    assert found.kind is FaultKind.PERMISSION
    assert not found.sent
    assert "SUREFOOT_EGRESS_ALLOW" in found.message
    assert canary.connections == 0


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    names = Names(["127.0.0.9", "127.0.0.1"])
    async with serving(answering(json_answer("1"))) as real, tools_for(resolver=names) as tools:
        assert (await run(tools, tool(f"http://two.test:{real.port}/"))).output == 1
