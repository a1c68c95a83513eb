"""The package's code is loaded as a copy of our own: in any number of threads, and beside whatever the user imports."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

from tests.tau2_playing import env_of, needs_package, world_of

pytestmark = needs_package

IN_THREADS = """
import os; os.environ['LOGURU_LEVEL'] = 'ERROR'
import sys, threading, gymnasium as gym, toolorchestra
import tau2.domains.telecom.tools, tau2.utils.utils
held = {name: sys.modules[name] for name in ("dotenv", "deepdiff", "tau2")}
failed, gate = [], threading.Barrier(8)

def make(number):
    gate.wait()
    try:
        gym.make("ToolOrchestra/Tau2-v0", domain="mock", split="base").reset(seed=number)
    except Exception as err:
        failed.append(repr(err))

threads = [threading.Thread(target=make, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
other = []
while any(thread.is_alive() for thread in threads):
    other += [name for name in held if sys.modules.get(name) is not held[name]]
    threads[0].join(0.001)
print(failed, other)
"""


def test_environments_are_made_in_threads_and_no_module_of_others_is_replaced(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", IN_THREADS], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("[] []\n", "", 0)


def test_no_env_file_is_read_and_the_real_package_can_be_imported_after_ours(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TAU2_ENV_FILE=read\n", encoding="utf-8")
    code = (
        "import os, sys; from toolorchestra.envs.domains.tau2 import package; "
        "ours = package.module('utils.utils'); assert 'tau2' not in sys.modules and 'deepdiff' not in sys.modules; "
        "assert 'values_changed' in ours.show_dict_diff({'a': 1}, {'a': 2}); "
        "assert 'TAU2_ENV_FILE' not in os.environ; "
        "import tau2.utils.utils as theirs; assert theirs is not ours; "
        "import deepdiff; assert theirs.DeepDiff is deepdiff.DeepDiff"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)


def test_records_of_the_copy_are_read_in_another_process(tmp_path: Path) -> None:
    state = world_of(env_of("retail", "scripted", "0")).state
    record = state.kits[0].db.users["yusuf_rossi_9620"]
    (tmp_path / "record").write_bytes(pickle.dumps(record))
    code = "import pickle, sys; print(pickle.load(open('record', 'rb')).user_id)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stdout == "yusuf_rossi_9620\n"
