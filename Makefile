# make book   build the site            make test   run every test         make lab     open the chapters in JupyterLab
# make serve  build and serve the site  make bench  run the benchmarks     make strip   clean the notebooks for a commit
# make clean  remove what was built (the environment in .venv stays)
#
# MON_PROFILE=smoke|cpu|gpu sets the size of the notebooks in `make book`; without it: gpu where CUDA is there, else cpu.

# Matrices of a few dozen rows: a second thread costs more than it gives, and very much more where the cores are shared.
# numba, which quantecon imports, would set the number of threads of the whole process back to that of the cores.
OMP_NUM_THREADS ?= 1
NUMBA_NUM_THREADS ?= $(OMP_NUM_THREADS)
book test: export OMP_NUM_THREADS := $(OMP_NUM_THREADS)
book test: export NUMBA_NUM_THREADS := $(NUMBA_NUM_THREADS)

# Test files at a time. A file stays in one process: what it builds or opens once, it uses often.
WORKERS ?= 2

PYTHON ?= python3
PORT ?= 8000
PY := .venv/bin/python
READY := .venv/.ready

.PHONY: book test lab serve bench strip clean

book: $(READY)
	$(PY) tools/build_book.py

test: $(READY)
	$(PY) -m ruff check .
	MON_PROFILE=smoke $(PY) -m pytest -n $(WORKERS) --dist loadfile --nbmake tests book

lab: $(READY)
	$(PY) -m jupyter lab book

serve: book
	$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

bench: $(READY)
	$(PY) -m benchmarks

strip: $(READY)
	$(PY) tools/strip.py book/*.ipynb

clean:
	rm -rf _build .pytest_cache .ruff_cache build *.egg-info
	find . -name __pycache__ -not -path "./.venv/*" -prune -exec rm -rf {} +

# The environment is made again only when the requirements or the package's own settings change.
$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("This book needs Python 3.11 or newer, and %s is %s: name another one, for instance make PYTHON=python3.12 book" % (sys.executable, sys.version.split()[0]))'
	@test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --disable-pip-version-check -r requirements.txt
	$(PY) -m pip install --disable-pip-version-check --no-deps -e .
	@touch $(READY)
