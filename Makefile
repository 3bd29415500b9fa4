# make demo    set up and run the demo campaign to its report
# make test    set up and pass all tests
# make check   lint, types and unit tests, in under two minutes once set up
# make test-slurm   fleets on a real Slurm that the tests start themselves; skipped where Slurm isn't installed
# make envs    build the tool chains under .envs as envs/*.yaml defines them
# make lock    resolve requirements.lock anew from pyproject.toml
# make format  rewrite Python and Snakemake files in the project's style

PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: demo test test-slurm test-workflow check envs lock format schema clean
.DELETE_ON_ERROR:

demo: .venv/complete envs
	$(BIN)/snakemake
	$(BIN)/snakemake --report results/work/demo/report.html
	@$(BIN)/fleetcraft summary

# Tests of fleets wait for Slurm most of their time, and those of campaigns compute: they run beside each other. Tests of
# pipelines and of workers look at times, and have the machine to themselves.
test: check envs .venv-slurm/complete
	.envs/diffusion/bin/python -m pytest tests/diffusion
	$(BIN)/pytest tests/spool tests/worker tests/cli tests/executor
	FLEETCRAFT_FAULTS=2000 $(BIN)/pytest tests/faults
	$(MAKE) --jobs 2 test-workflow test-slurm

test-workflow: .venv/complete envs
	$(BIN)/pytest --numprocesses 2 --dist loadfile tests/workflow

test-slurm: .venv/complete .venv-slurm/complete envs
	$(BIN)/pytest tests/slurm

check: .venv/complete
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile rules
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakemake --lint
	$(BIN)/pytest tests/unit

envs: .venv/complete
	$(BIN)/fleetcraft env diffusion vbench

.venv/complete: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	touch $@

# For profiles/vista-slurm alone: where its plugin is installed, every process of Snakemake imports it.
.venv-slurm/complete: requirements-slurm.lock pyproject.toml
	$(PYTHON) -m venv .venv-slurm
	.venv-slurm/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --requirement requirements-slurm.lock
	.venv-slurm/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	touch $@

lock:
	uv pip compile pyproject.toml --extra dev --python-version 3.11 --generate-hashes --output-file requirements.lock
	uv pip compile pyproject.toml --extra slurm --constraint requirements.lock --python-version 3.11 --generate-hashes --output-file requirements-slurm.lock

schema: .venv/complete
	$(BIN)/fleetcraft schema > config/schema.json
	$(BIN)/fleetcraft schema fleet > config/fleet.schema.json

format: .venv/complete
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile rules

clean:
	rm -rf .venv .venv-slurm .envs .snakemake results
