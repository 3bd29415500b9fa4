"""Snakemake's own test of executors, group jobs included."""

from __future__ import annotations

import snakemake.common.tests
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase

from snakemake_executor_plugin_spool import ExecutorSettings


class TestWithLocalFleet(snakemake.common.tests.TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self) -> str:
        return "spool"

    def get_executor_settings(self) -> ExecutorSettingsBase | None:
        return ExecutorSettings(workers=1, worker_cores=4, worker_mem_mb=16000, poll=0.2)
