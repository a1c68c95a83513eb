"""The build. All settings are in setup.cfg; this only says in a sentence why a build cannot work."""

from pathlib import Path

from setuptools import setup

for name in ("envs", "agents", "synth"):
    if not (Path(__file__).parent / "src" / "toolorchestra" / name).is_dir():
        raise SystemExit(
            f"src/toolorchestra/{name} should be a link to the folder {name}/, and is missing or a file: this "
            "checkout was made without symbolic links. On Windows, turn on developer mode, then: "
            "git config core.symlinks true && git checkout -- src"
        )
setup()
