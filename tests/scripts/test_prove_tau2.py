"""The proof of Tau2-v0 as it is started from a shell."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.paths import REPOSITORY
from tests.tau2_playing import needs_package

PROVE = str(REPOSITORY / "scripts" / "prove_tau2.py")


@needs_package
def test_an_interrupt_ends_it_with_a_line() -> None:
    command = [sys.executable, PROVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as proof:
        assert proof.stdout is not None
        assert proof.stdout.readline().startswith("domain")
        proof.send_signal(signal.SIGINT)
        _, err = proof.communicate(timeout=60)
    assert (proof.returncode, err) == (130, "stopped\n")


def test_without_the_package_it_says_how_to_get_it() -> None:
    hidden = "import importlib.metadata as m, runpy\ndef no(name): raise m.PackageNotFoundError(name)\nm.version = no"
    code = f"{hidden}\nrunpy.run_path({PROVE!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "toolorchestra.envs.domains.tau2.install" in done.stderr
