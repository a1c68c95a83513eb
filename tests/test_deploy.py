"""What is shipped to start SkyRL on a cluster, with a program in place of uv, and to serve, read as text."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tyro
from starlette.routing import Route

from tests.paths import REPOSITORY
from toolorchestra.agents.commands.serve import ServeOptions, check, service_of
from toolorchestra.agents.serving.server import Server

SKYRL = REPOSITORY / "deploy" / "skyrl"
SERVE = REPOSITORY / "deploy" / "serve"


def test_it_starts_from_any_folder_and_hands_adapters_over_where_every_node_sees_them(tmp_path: Path) -> None:
    """Ray's hook takes the working folder along, and refuses one that does not hold the project. SkyRL's own place for
    adapters is a folder of one node."""
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\npwd\nprintf '%s\\n' \"$@\"\n")
    uv.chmod(0o755)
    found = subprocess.run(
        ["sh", str(SKYRL / "train.sh"), "2x8", "hle", "/shared/data", "mine"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, cwd=tmp_path, capture_output=True, text=True,
        check=True,
    ).stdout.splitlines()  # fmt: skip
    assert found[0] == str(SKYRL)
    assert f"trainer.policy.model.lora.lora_sync_path={tmp_path}/mine/lora" in found
    assert "data.train_data=['/shared/data/train.parquet']" in found


# -- deploy/serve ------------------------------------------------------------------------------------------------------

yaml = pytest.importorskip("yaml")


def compose() -> Any:
    return yaml.safe_load((SERVE / "compose.yaml").read_text())


def kubernetes() -> dict[str, Any]:
    """The manifest's objects, by kind; of Services the one that clients use."""
    found = list(yaml.safe_load_all((SERVE / "kubernetes.yaml").read_text()))
    return {one["kind"]: one for one in reversed(found)}


def options(words: list[str]) -> ServeOptions:
    given = tyro.cli(ServeOptions, args=words)
    check(given)
    return given


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def instructions(name: str) -> list[str]:
    text = (SERVE / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split(None, 1)[1] for line in text.splitlines() if line.startswith(f"{name} ")]


def test_the_image_is_made_of_what_there_is_and_is_nobody_special() -> None:
    (extras,) = (one.removeprefix("EXTRAS=") for one in instructions("ARG"))
    known = configparser.ConfigParser()
    known.read(REPOSITORY / "setup.cfg")
    assert set(extras.split(",")) <= set(known["options.extras_require"])
    assert int(instructions("USER")[0]) > 0
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["toolorchestra", "serve"]
    ignored = (SERVE / "Dockerfile.dockerignore").read_text().split()
    assert not {"src", "agents", "envs", "synth", "setup.cfg", "pyproject.toml", "README.md"} & {*ignored}
    assert {".git", "runs"} <= {*ignored}


def test_what_composes_belongs_together() -> None:
    services = compose()["services"]
    server = services["server"]
    given = options(server["command"])
    assert (SERVE / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    assert server["ports"] == [f"{given.port}:{given.port}"]
    assert instructions("EXPOSE") == [str(given.port)]
    assert f":{given.port}/health" in instructions("HEALTHCHECK")[0]
    mounted = {one.split(":")[1] for one in server["volumes"]}
    assert {given.keys, given.backends} <= mounted
    assert any(given.out.startswith(f"{place}/") for place in mounted)
    assert seconds(server["stop_grace_period"]) > given.drain_seconds
    user, _, place = given.database.removeprefix("postgresql://").partition("@")
    host, _, database = place.partition("/")
    there = services["postgres"]["environment"]
    assert (user, database) == (there["POSTGRES_USER"], there["POSTGRES_DB"])
    assert host == "postgres:5432"
    assert server["environment"]["PGPASSWORD"] == there["POSTGRES_PASSWORD"]
    files = {name: yaml.safe_load(one["content"]) for name, one in compose()["configs"].items()}
    (job,) = files["scrape"]["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"server:{given.port}"]}]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{services['prometheus']['secrets'][0]}"
    (source,) = files["figures"]["datasources"]
    assert all(one["datasource"]["uid"] == source["uid"] for one in panels())
    (folder,) = files["dashboards"]["providers"]
    assert services["grafana"]["volumes"] == [f"./dashboard.json:{folder['options']['path']}/toolorchestra.json:ro"]


def test_a_cluster_runs_replicas_of_what_composes() -> None:
    found = kubernetes()
    pods = found["StatefulSet"]["spec"]
    pod, labels = pods["template"]["spec"], pods["template"]["metadata"]["labels"]
    (server,) = pod["containers"]
    variables = {one["name"]: one["valueFrom"] for one in server["env"]}
    values = {"POD": "toolorchestra-0", "DATABASE": found["Secret"]["stringData"]["database"]}
    assert {*re.findall(r"\$\((\w+)\)", str(server["args"]))} == {*values}
    given = options([re.sub(r"\$\((\w+)\)", lambda name: values[name[1]], word) for word in server["args"]])
    assert given.database.startswith("postgresql://")
    assert variables["POD"]["fieldRef"]["fieldPath"] == "metadata.name"
    keys = {one["secretKeyRef"]["key"] for one in variables.values() if "secretKeyRef" in one}
    assert keys == {*found["Secret"]["stringData"]}
    assert pods["selector"]["matchLabels"] == labels == found["Service"]["spec"]["selector"]
    (port,) = server["ports"]
    assert port["containerPort"] == given.port
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    sticky = found["Service"]["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
    assert sticky >= given.session_seconds
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert server[probe]["httpGet"] == {"path": "/health", "port": port["name"]}
    before = int(server["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > before + given.drain_seconds
    assert pod["securityContext"]["runAsUser"] == int(instructions("USER")[0])
    mounts = {one["mountPath"]: one["name"] for one in server["volumeMounts"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    assert {*mounts.values()} == {*volumes}
    assert volumes[mounts["/etc/toolorchestra"]]["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]
    assert {given.keys, given.backends} == {f"/etc/toolorchestra/{name}" for name in found["ConfigMap"]["data"]}
    assert f"{Path(given.out).parent}" in mounts
    composed = options(compose()["services"]["server"]["command"])
    for name in ("policy", "port", "keys", "backends", "drain_seconds"):
        assert getattr(given, name) == getattr(composed, name)
    assert server["image"].split("/")[1] == compose()["services"]["server"]["image"]


def test_every_option_that_they_speak_of_is_one() -> None:
    known = {f"--{option.name.replace('_', '-')}" for option in fields(ServeOptions)}
    texts = "".join((SERVE / name).read_text() for name in ("compose.yaml", "kubernetes.yaml"))
    spoken = {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", texts)} - {"--build"}  # docker's
    assert {"--new-key", "--drain-seconds"} <= spoken <= known


def panels() -> list[Any]:
    return list(json.loads((SERVE / "dashboard.json").read_text())["panels"])


def test_its_settings_are_served_and_its_dashboard_shows_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    files = kubernetes()["ConfigMap"]["data"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = ServeOptions(("cascade",), backends=str(tmp_path / "backends.toml"), keys=str(tmp_path / "keys.toml"))
    service = service_of(given, tmp_path / "out")
    assert service.accounts.keys["watcher"].admin
    assert service.accounts.limit_of("watcher") == 0
    server = Server(service, ("", ""))
    assert {"/health", "/metrics", "/"} <= {route.path for route in server.app().routes if isinstance(route, Route)}
    measured = {
        name.removesuffix("_total") for name in re.findall(r"^# HELP (\w+)", server.metrics.text().decode(), re.M)
    }
    asks = " ".join(target["expr"] for one in panels() for target in one["targets"])
    asked = {re.sub("_(total|bucket)$", "", name) for name in re.findall(r"toolorchestra_\w+", asks)}
    assert len(asked) > 5
    assert asked <= measured
