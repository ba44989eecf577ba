"""A plugin of pytest: a quiet run prints a line at each fifth of its tests and for each failure, not for a success."""

from __future__ import annotations

import time

import pytest

_LINES = 5


class Progress:
    """Counts the tests of the whole run, in the process that prints."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._began = time.monotonic()
        self._done = self._failed = self._lines = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        if hasattr(report, "wasxfail") or report.failed or not (report.when == "call" or report.skipped):
            return None
        return str(report.outcome), "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed += report.failed
        if report.failed:
            self._reporter.ensure_newline()
            self._reporter.write_line(f"{report.nodeid} failed")
        if report.when != "teardown":
            return
        self._done += 1
        session = self._reporter._session
        if session and self._done * _LINES >= (self._lines + 1) * session.testscollected:
            self._lines += 1
            seconds = int(time.monotonic() - self._began)
            failed = f", {self._failed} failed" if self._failed else ""
            self._reporter.ensure_newline()
            self._reporter.write_line(f"{self._done:,} tests in {seconds // 60}:{seconds % 60:02}{failed}")


def report_quietly(config: pytest.Config) -> None:
    """Install the plugin in the printing process of a run with ``-q``."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and config.get_verbosity() == -1:
        config.pluginmanager.register(Progress(reporter))
