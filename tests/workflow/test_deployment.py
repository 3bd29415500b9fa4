"""Under Snakemake's own deployment, stages run in the environments that it made from the definitions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign

# Stands in for conda where none can be installed: it answers what Snakemake asks, and "creates" an environment by
# wrapping the Python that `make` built from the same definition, noting every use.
CONDA = """#!/usr/bin/env bash
set -euo pipefail
case "$1" in
  info) echo '{{"conda_prefix": "{base}", "platform": "linux-64"}}' ;;
  --version) echo "conda 25.1.0" ;;
  clean) ;;
  config) echo '{{"get": {{"channel_priority": "strict"}}}}' ;;
  env)
    shift 2
    while [ $# -gt 0 ]; do
      case "$1" in --file) file=$2; shift ;; --prefix) prefix=$2; shift ;; esac
      shift
    done
    name=$(sed -n 's/^name: fleetcraft-//p' "$file")
    python={root}/.envs/$name/bin/python
    [ "$name" = analysis ] && python={root}/.venv/bin/python
    mkdir -p "$prefix/bin"
    printf '#!/bin/sh\\necho %s >> {base}/used\\nexec %s "$@"\\n' "$name" "$python" > "$prefix/bin/python"
    chmod +x "$prefix/bin/python"
    ;;
  *) echo "unexpected: conda $*" >&2; exit 1 ;;
esac
"""


def test_conda_environments_are_used_where_conda_deployment_is_on(
    campaign: Campaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "conda"
    (base / "bin").mkdir(parents=True)
    (base / "bin/conda").write_text(CONDA.format(base=base, root=ROOT))
    (base / "bin/conda").chmod(0o755)
    (base / "bin/activate").write_text('PATH="$1/bin:$PATH"\n')
    monkeypatch.setenv("PATH", f"{base}/bin:{os.environ['PATH']}")
    campaign.document |= {"encoder": {"crf": 29}, "seeds": [0]}
    campaign.write()
    run = campaign.snakemake("--software-deployment-method", "conda")
    assert run.status == 0, run.output
    used = (base / "used").read_text().split()
    assert {"analysis", "diffusion"} == set(used)
    assert campaign.fleetcraft("verify", "work/small/evidence").status == 0
