"""The clock of a toolkit stands still, its lots repeat, and the process's own clock and lots know nothing of it."""

from __future__ import annotations

import datetime
import json
import os
import random
import subprocess
import sys
import time
import uuid

import pytest

from tests.envs.domains.tau2.reference.playing import CLINIC, DEPOT, call, domain_of, made
from tests.paths import REPOSITORY
from tests.tau2_playing import needs_package
from toolorchestra.envs.base.errors import ConfigError

pytestmark = needs_package
SCRIPT = """
import sys
from tests.envs.domains.tau2.reference.playing import DEPOT, call, database_of, made
env = made(reference=str(DEPOT))
env.reset(seed=0)
print(call(env, "stamps"), call(env, "stamps"))
print(call(env, "rent_item", member_id="M-1", item_id="I-1"), database_of(env))
"""


def test_every_way_of_asking_gives_the_moment_that_the_policy_states() -> None:
    env = made(reference=str(DEPOT))
    env.reset(seed=0)
    said = json.loads(call(env, "stamps"))
    now = "2025-03-04 05:06:07"
    assert {said[key] for key in ("now", "utcnow", "module", "inside", "again", "struct", "imported")} == {now}
    assert (said["today"], said["zone"], said["local"]) == ("2025-03-04", "2025-03-04 07:06:07+02:00", 5)
    seconds = datetime.datetime(2025, 3, 4, 5, 6, 7, tzinfo=datetime.UTC).timestamp()
    assert {said[key] for key in ("stamp", "time", "seconds")} == {seconds}
    assert said["born"] == datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC).timestamp()
    assert (said["age_days"], said["parsed"]) == (427, "2020-02-04 00:00:00")
    assert said["is_datetime"] is True
    assert said["monotonic"] is True
    assert uuid.UUID(said["ids"][0]).version == 4
    assert uuid.UUID(said["ids"][2]).version == 1
    assert said["ids"][3] == str(uuid.uuid5(uuid.NAMESPACE_DNS, "a"))
    assert len(set(said["ids"])) == 4


def test_the_moment_is_the_users_to_name() -> None:
    env = made(reference=str(DEPOT), now="2031-12-31 23:59:59")
    env.reset(seed=0)
    assert json.loads(call(env, "stamps"))["now"] == "2031-12-31 23:59:59"
    env = made(**CLINIC)  # its policy states none
    env.reset(seed=0)
    assert domain_of(env).toolkit.clock == "2024-05-15 15:00:00"
    with pytest.raises(ConfigError, match="YYYY-MM-DD HH:MM:SS expected, got 'soon'"):
        made(reference=str(DEPOT), now="soon")
    with pytest.raises(ConfigError, match="has no zone"):
        made(reference=str(DEPOT), now="2031-12-31 23:59:59+02:00")


def test_two_moments_live_side_by_side() -> None:
    envs = [made(reference=str(DEPOT), now=f"20{year}-01-01 00:00:00") for year in (31, 32)]
    for env in envs:
        env.reset(seed=0)
    assert [json.loads(call(env, "stamps"))["today"] for env in envs] == ["2031-01-01", "2032-01-01"]


def test_the_process_keeps_its_own_clock_and_lots() -> None:
    parts = (datetime.datetime, datetime.date, time.time, random.random, uuid.uuid4, os.urandom)
    random.seed(3)
    state = random.getstate()
    before = time.time()
    env = made(reference=str(DEPOT))
    env.reset(seed=0)
    call(env, "stamps")
    call(env, "rent_item", member_id="M-1", item_id="I-1")
    assert parts == (datetime.datetime, datetime.date, time.time, random.random, uuid.uuid4, os.urandom)
    assert random.getstate() == state
    assert before <= time.time() == pytest.approx(datetime.datetime.now().timestamp(), abs=5)
    assert not [name for name in sys.modules if name.startswith(("tau2.domains.depot", "tau2.domains.clinic"))]


def test_two_processes_in_two_zones_say_the_same() -> None:
    told = []
    for zone, seed in (("UTC", "1"), ("Asia/Tokyo", "2")):
        variables = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True, text=True, check=True, env=variables, cwd=REPOSITORY,
        )  # fmt: skip
        told.append(done.stdout)
    assert told[0] == told[1]
    assert told[0].count("2025-03-04") > 10
