"""Figures of graphics processors, by a stand-in for NVML: test machines have no such device."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from freeslot._figures import Figures


class NVMLError(Exception):
    pass


def nvml(**replaced: Any) -> ModuleType:
    def utilization(device: int) -> Any:
        if device == 1:
            raise NVMLError("not supported")
        return SimpleNamespace(gpu=40)

    module = ModuleType("pynvml")
    functions: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda i: i,
        "nvmlDeviceGetName": lambda device: b"NVIDIA A100",
        "nvmlDeviceGetUtilizationRates": utilization,
        "nvmlDeviceGetMemoryInfo": lambda device: SimpleNamespace(used=10 * (device + 1), total=100),
        "nvmlDeviceGetTemperature": lambda device, sensor: 50 + device,
        **replaced,
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def test_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    figures = Figures()
    figures.open()
    figures.collect()
    latest, taken = figures.latest()
    assert latest["gpu"] == {
        "count": 2,
        "name": "NVIDIA A100",
        "utilization": 0.4,
        "gpu0_utilization": 0.4,
        "memory_usage": 0.15,
        "memory_used_bytes": 30,
        "memory_total_bytes": 200,
        "gpu0_memory_usage": 0.1,
        "gpu0_memory_used_bytes": 10,
        "gpu0_memory_total_bytes": 100,
        "gpu1_memory_usage": 0.2,
        "gpu1_memory_used_bytes": 20,
        "gpu1_memory_total_bytes": 100,
        "temperature_celsius": 51,
        "gpu0_temperature_celsius": 50,
        "gpu1_temperature_celsius": 51,
    }
    assert taken.keys() == latest.keys()


def test_no_driver_and_failing_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise NVMLError("no driver")

    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlInit=fails))
    figures = Figures()
    figures.open()
    figures.collect()
    assert "gpu" not in figures.latest()[0]
    monkeypatch.setitem(sys.modules, "pynvml", nvml(nvmlDeviceGetCount=fails))
    figures.open()
    figures.collect()
    assert "gpu" not in figures.latest()[0]
