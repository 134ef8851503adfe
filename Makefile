# Each target makes the virtual environment that it needs; nothing outside it is touched.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
# On a machine where another build of torch is wanted: make demo TORCH='torch==2.13.0 --index-url …'
TORCH  ?= torch==2.13.0
DEVICE ?= cpu
PYTEST ?= -n 2 -m "not slow"

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Idle OpenMP threads sleep instead of spinning: the tests run in several processes.
export OMP_WAIT_POLICY := PASSIVE

NATIVE := $(shell find csrc plugins plugin_sdk conformance/native cmake CMakeLists.txt -type f \
	\( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' -o -name '*.toml' -o -name 'CMakeLists.txt' -o -name '*.cmake' \) 2>/dev/null)

.PHONY: demo test test-slow native-test lint format bench wheel clean help

help: ## Print what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed ## Fine-tune, compress and talk to a real model on DEVICE (default: cpu)
	$(BIN)/chipset demo --device $(DEVICE)

test: $(VENV)/.installed ## Run the fast tests (PYTEST= changes pytest's arguments)
	$(BIN)/python -m pytest $(PYTEST)

test-slow: $(VENV)/.installed ## Run the tests that are marked slow
	$(BIN)/python -m pytest -n 2 -m slow

native-test: $(VENV)/.installed ## Build and run the C++ tests
	PYTHON=$(BIN)/python .ci/native build/native-tests

lint: $(VENV)/.installed ## Check formats, types and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files -z '*.c' '*.h' '*.cpp' '*.hpp' | xargs -0 $(BIN)/clang-format --dry-run --Werror
	$(BIN)/python csrc/interface/generate.py --check

format: $(VENV)/.installed ## Rewrite sources in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files -z '*.c' '*.h' '*.cpp' '*.hpp' | xargs -0 $(BIN)/clang-format -i

bench: $(VENV)/.installed ## Measure DEVICE against PyTorch's own CPU, both sides in one run
	$(BIN)/chipset bench dispatch --device $(DEVICE)
	$(BIN)/chipset bench step --device $(DEVICE)
	$(BIN)/chipset bench step --device $(DEVICE) --dtype f32
	$(BIN)/chipset bench decode --device $(DEVICE)

wheel: $(VENV)/.torch ## Build a wheel into dist/
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .

clean: ## Remove the virtual environment and everything that a build made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf core/chipset/lib core/chipset/include core/chipset/cmake *.egg-info
	find core layers plugins plugin_sdk conformance \( -name '*.so' -o -name '*.so.new' \) \
	  -not -path '*/frozen/*' -delete
	find core layers plugins plugin_sdk conformance examples tests \
	  -name __pycache__ -prune -exec rm -rf {} +

# torch and the build tools, as pyproject.toml lists them, so that the build needs no isolation.
$(VENV)/.torch: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(TORCH)
	$(PIP) install --quiet $$($(BIN)/python -c \
	  "import tomllib; print(*(r.replace(' ', '') for r in tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires']))")
	touch $@

$(VENV)/.installed: $(VENV)/.torch setup.py $(NATIVE)
	$(PIP) install --quiet --no-build-isolation --editable '.[test,lint]'
	touch $@
