"""Figures of the machine, by psutil and NVML where they are installed."""

from __future__ import annotations

import logging
import threading
import time
from importlib.util import find_spec
from typing import Any, Callable

_log = logging.getLogger("freeslot.worker")

_INTERVAL = 5.0
_MAX_GPUS = 16


class Figures:
    """Collects in a thread of its own: a driver that hangs holds no heartbeat up."""

    def __init__(self) -> None:
        self._collectors: dict[str, Callable[[], dict[str, Any]]] = {}
        self._latest: dict[str, dict[str, Any]] = {}
        self._taken: dict[str, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if find_spec("psutil") or find_spec("pynvml"):
            self._thread = threading.Thread(target=self._run, name="freeslot-figures", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(1)

    def latest(self) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
        """Returns the figures by type, and by type the time (monotonic) at which they were taken."""
        with self._lock:
            return dict(self._latest), dict(self._taken)

    def _run(self) -> None:
        self.open()
        while not self._ended.wait(_INTERVAL if self._taken else 0.1):
            self.collect()

    def open(self) -> None:
        """Loads what is installed."""
        try:
            import psutil

            psutil.cpu_percent(None)  # usages are since the last call
            self._collectors.update(cpu=lambda: _cpu(psutil), memory=lambda: _memory(psutil))
        except ImportError:
            pass
        try:
            import pynvml

            pynvml.nvmlInit()
            self._collectors["gpu"] = lambda: _gpu(pynvml)
        except ImportError:
            pass
        except Exception as err:  # NVMLError: no driver
            _log.info("no figures of graphics processors: %s", err)

    def collect(self) -> None:
        for kind, collector in self._collectors.items():
            try:
                figures = collector()
            except Exception as err:
                _log.debug("figures of type %s cannot be collected: %s", kind, err)
                continue
            with self._lock:
                self._latest[kind], self._taken[kind] = figures, time.monotonic()


def _cpu(psutil: Any) -> dict[str, Any]:
    usage = psutil.cpu_percent(None) / 100
    return {"usage": round(usage, 4), "cores": psutil.cpu_count() or 1, "load1": round(psutil.getloadavg()[0], 2)}


def _memory(psutil: Any) -> dict[str, Any]:
    m = psutil.virtual_memory()
    return {
        "usage": round((m.total - m.available) / m.total, 4),
        "total_bytes": m.total,
        "used_bytes": m.total - m.available,
        "available_bytes": m.available,
    }


def _gpu(nvml: Any) -> dict[str, Any]:
    """Returns the figures that nodeagent collects, under the same names."""
    count = nvml.nvmlDeviceGetCount()
    out: dict[str, Any] = {"count": count}
    loads: list[float] = []
    temperatures: list[int] = []
    used = total = 0
    for i in range(min(count, _MAX_GPUS)):
        device = nvml.nvmlDeviceGetHandleByIndex(i)
        name = nvml.nvmlDeviceGetName(device)
        out.setdefault("name", name.decode() if isinstance(name, bytes) else name)
        try:
            load = nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100
            loads.append(load)
            out[f"gpu{i}_utilization"] = load
        except nvml.NVMLError:  # a device that does not have this figure
            pass
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(device)
            used, total = used + memory.used, total + memory.total
            out[f"gpu{i}_memory_usage"] = round(memory.used / memory.total, 4)
            out[f"gpu{i}_memory_used_bytes"], out[f"gpu{i}_memory_total_bytes"] = memory.used, memory.total
        except nvml.NVMLError:
            pass
        try:
            celsius = nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
            temperatures.append(celsius)
            out[f"gpu{i}_temperature_celsius"] = celsius
        except nvml.NVMLError:
            pass
    if loads:
        out["utilization"] = round(sum(loads) / len(loads), 4)
    if total:
        out["memory_usage"] = round(used / total, 4)
        out["memory_used_bytes"], out["memory_total_bytes"] = used, total
    if temperatures:
        out["temperature_celsius"] = max(temperatures)
    return out
