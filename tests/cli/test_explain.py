"""`why`, `replay`, `audit verify`."""

import json

import pytest

from tests.cli.conftest import Surefoot
from tests.cli.fake_service import Answer, FakeService, problem

SENTENCES = ["It was created.", "Nobody owns it, \x1b[31mand nobody needs to."]


async def test_why_is_told_in_sentences(service: FakeService, surefoot: Surefoot) -> None:
    shown = {"sentences": SENTENCES, "todo": []}
    service.answers["GET /v1/sessions/ses_1/why"] = [Answer(200, shown), Answer(200, shown)]
    ran = await surefoot("why", "ses_1")
    assert (ran.code, ran.out.splitlines()[0]) == (0, SENTENCES[0])
    assert "and nobody needs to." in ran.out
    assert "\x1b" not in ran.out
    ran = await surefoot("why", "ses_1", "--json")
    assert json.loads(ran.out) == shown
    service.answers["GET /v1/sessions/ses_2/why"] = [problem(404, "There is no such session")]
    ran = await surefoot("why", "ses_2")
    assert (ran.code, "no such session" in ran.err) == (2, True)


@pytest.mark.req("STATE-6")
async def test_a_replay_says_where_it_diverges(service: FakeService, surefoot: Surefoot) -> None:
    same = {"identical": True, "events": 19, "code_version": "1.2"}
    other = {
        **same,
        "identical": False,
        "seq": 7,
        "expected": {"type": "guard.tripped", "data": {"guard": "max_steps"}},
        "actual": None,
    }
    path = "POST /v1/sessions/ses_1/replay"
    service.answers[path] = [Answer(200, same), Answer(200, other), Answer(200, other)]
    ran = await surefoot("replay", "ses_1")
    assert (ran.code, "19 events" in ran.out) == (0, True)
    ran = await surefoot("replay", "ses_1")
    assert ran.code == 4
    assert "diverges at event 7" in ran.out
    assert "expected guard.tripped" in ran.out
    assert "actual   nothing" in ran.out
    ran = await surefoot("replay", "ses_1", "--json")
    assert (ran.code, json.loads(ran.out)) == (4, other)


@pytest.mark.req("STATE-8")
async def test_chains_are_verified_page_by_page(service: FakeService, surefoot: Surefoot) -> None:
    good = {"session": "ses_1", "events": 9, "intact": True}
    unknown = {"session": "ses_2", "events": 9, "intact": None, "unverified": "no key"}
    fault = {"seq": 3, "fault": "hash", "detail": "it does not follow"}
    bad = {"session": "ses_3", "events": 9, "intact": False, "broken": fault}
    path = "GET /v1/audit/verify"
    first = {"data": [good, unknown], "next": "ses_2"}
    service.answers[path] = [Answer(200, first), Answer(200, {"data": [bad], "next": None})]
    ran = await surefoot("audit", "verify")
    assert ran.code == 4
    assert "ses_2: not verified: no key" in ran.out
    assert "ses_3: broken at event 3 (hash): it does not follow" in ran.out
    assert "3 chains, 1 broken" in ran.out
    assert service.of("GET", "/v1/audit/verify")[1].query["after"] == "ses_2"
    service.answers[path] = [Answer(200, {"data": [good], "next": None})]
    ran = await surefoot("audit", "verify", "ses_1", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, good)
    assert service.of("GET", "/v1/audit/verify")[2].query == {"session": "ses_1"}
