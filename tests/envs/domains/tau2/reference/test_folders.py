"""The data of a stranger's folder: what leads out of it is not read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.envs.domains.tau2.reference.playing import DEPOT
from toolorchestra.envs.base.errors import ConfigError
from toolorchestra.envs.domains.tau2.reference.folders import DATABASE, POLICY, places


@pytest.mark.parametrize("name", [POLICY, DATABASE, "tasks.json"])
def test_a_file_that_leads_out_of_the_folder_is_not_read(tmp_path: Path, name: str) -> None:
    shutil.copytree(DEPOT, tmp_path / "given" / "depot")
    file = tmp_path / "given" / "depot" / name
    if file.is_file():
        file.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").touch()
    file.symlink_to(tmp_path / "elsewhere")
    for folder in (tmp_path / "given", tmp_path / "given" / "depot"):
        with pytest.raises(ConfigError, match=rf"{name} is a link that leads out of {folder}, and is not read"):
            places(folder)["depot"].find(name)
    file.unlink()
    (tmp_path / "given" / "shared").touch()
    file.symlink_to("../shared")
    assert places(tmp_path / "given")["depot"].find(name) == file
