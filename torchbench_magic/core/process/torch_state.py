"""Settings of torch that code can change for the whole process, or for the thread that runs it.

Private to torch: `torch._GLOBAL_DEVICE_CONTEXT`. Where it is not there, no default device and one that was set to the
CPU are taken for the same.
"""

from __future__ import annotations

import sys
from typing import Any

from .state_kind import Kind, on_off

__all__ = ["of_torch"]


def of_torch() -> list[Kind]:
    """Every kind; inference mode stands before grad mode, which it changes too."""
    import torch

    switches = {
        "torch.backends.cudnn.benchmark": (torch.backends.cudnn, "benchmark"),
        "torch.backends.cudnn.deterministic": (torch.backends.cudnn, "deterministic"),
        "torch.backends.cudnn.enabled": (torch.backends.cudnn, "enabled"),
        "torch.backends.mkldnn.enabled": (torch.backends.mkldnn, "enabled"),
    }
    products: Any = torch.backends.cuda.matmul
    for name in ("fp16_reduced_precision_reduction", "bf16_reduced_precision_reduction", "fp16_accumulation"):
        if hasattr(products, f"allow_{name}"):
            switches[f"torch.backends.cuda.matmul.allow_{name}"] = (products, f"allow_{name}")
    return [
        Kind("inference mode", torch.is_inference_mode_enabled, _inference_mode.put, on_off("inference mode")),
        Kind("grad mode", torch.is_grad_enabled, torch.set_grad_enabled, on_off("grad mode")),
        Kind("default dtype", torch.get_default_dtype, torch.set_default_dtype, _dtype),
        Kind("default device", _default_device, torch.set_default_device, _device),
        Kind("threads", torch.get_num_threads, torch.set_num_threads, _threads),
        Kind("autocast", _autocast, _put_autocast, _autocast_words),
        Kind(
            "deterministic algorithms",
            torch.get_deterministic_debug_mode,
            torch.set_deterministic_debug_mode,
            lambda value, than: f"deterministic algorithms {('off', 'on (warn only)', 'on')[value]}",
        ),
        Kind("matmul precision", _precision, _put_precision, _precision_words),
        Kind("cuDNN precision", _cudnn_precision, _put_cudnn_precision, _cudnn_words),
        Kind("attention backends", _attention, _put_attention, _attention_words),
        Kind("flush denormal", _flushes_denormals, torch.set_flush_denormal, on_off("flushing of denormal numbers")),
        Kind("anomaly detection", _anomaly, lambda value: torch.set_anomaly_enabled(*value), _anomaly_words),
        *(_switch(name, *where) for name, where in switches.items()),
    ]


def _switch(name: str, home: Any, attribute: str) -> Kind:
    return Kind(name, lambda: getattr(home, attribute), lambda value: setattr(home, attribute, value), on_off(name))


def _flushes_denormals() -> bool:
    """torch has no getter; the processor's switch holds for Python's numbers as well."""
    return sys.float_info.min * _HALF == 0


_HALF = 0.5
_BACKENDS = {"flash": "flash", "mem_efficient": "memory-efficient", "math": "math", "cudnn": "cuDNN"}


def _attention() -> dict[str, bool]:
    """Which ways of `scaled_dot_product_attention` may be taken; they hold for the CPU too."""
    from torch.backends import cuda

    readers = {name: getattr(cuda, f"{name}_sdp_enabled", None) for name in _BACKENDS}
    return {name: bool(read()) for name, read in readers.items() if read is not None}


def _put_attention(value: dict[str, bool]) -> None:
    from torch.backends import cuda

    for name, is_on in value.items():
        getattr(cuda, f"enable_{name}_sdp")(is_on)


def _attention_words(value: dict[str, bool], than: dict[str, bool]) -> str:
    changed = [name for name in value if value[name] != than.get(name)]
    return "attention backends " + ", ".join(f"{_BACKENDS[name]} {'on' if value[name] else 'off'}" for name in changed)


class _InferenceMode:
    """torch has no setter for it, only guards; the end of a guard brings back what was there when it began."""

    def __init__(self) -> None:
        self._guards: list[Any] = []

    def put(self, mode: bool) -> None:
        import torch

        while self._guards and torch.is_inference_mode_enabled() != mode:
            self._guards.pop().__exit__(None, None, None)
        if torch.is_inference_mode_enabled() != mode:
            guard: Any = torch.inference_mode(mode)
            guard.__enter__()
            self._guards.append(guard)  # its end would switch back


_inference_mode = _InferenceMode()


def _default_device() -> Any:
    """The device that `torch.set_default_device` was given, None where it was not: a set one slows every call, even
    where it is the CPU. `torch.get_default_device` does not tell the two apart, so torch's own record is read."""
    import torch

    holder = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if holder is None:  # a torch that keeps it elsewhere
        return torch.get_default_device()
    context = getattr(holder, "device_context", None)
    return None if context is None else context.device


def _device(value: Any, than: Any) -> str:
    return "no default device" if value is None else f"default device {value}"


def _dtype(value: Any, than: Any) -> str:
    return f"default dtype {str(value).removeprefix('torch.')}"


def _threads(value: int, than: int) -> str:
    return f"{value} torch thread{'' if value == 1 else 's'}"


def _autocast() -> dict[str, Any]:
    """Device type -> (on, dtype) of autocast, and whether it caches casts."""
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    types = ["cpu", *([kind.type] if kind is not None else [])]
    of = {name: (torch.is_autocast_enabled(name), torch.get_autocast_dtype(name)) for name in types}
    return {**of, "cache": torch.is_autocast_cache_enabled()}


def _put_autocast(value: dict[str, Any]) -> None:
    import torch

    for name, setting in value.items():
        if name == "cache":
            torch.set_autocast_cache_enabled(setting)
        else:
            torch.set_autocast_enabled(name, setting[0])
            torch.set_autocast_dtype(name, setting[1])


def _autocast_words(value: dict[str, Any], than: dict[str, Any]) -> str:
    changed = [name for name in value if value[name] != than[name]]
    if changed == ["cache"]:
        return f"autocast cache {'on' if value['cache'] else 'off'}"
    name = next(name for name in changed if name != "cache")
    on, dtype = value[name]
    return f"autocast {'on' if on else 'off'} ({name}, {str(dtype).removeprefix('torch.')})"


def _precision() -> tuple[str | None, ...]:
    """torch's one word for all float32 matrix products (None where its newer switches contradict each other, which it
    raises for), and the newer switches: of everything, of mkldnn's and of CUDA's matrix products."""
    import torch

    try:
        word: str | None = torch.get_float32_matmul_precision()
    except RuntimeError:
        word = None
    return word, *(home.fp32_precision for home in _precision_homes())


def _precision_homes() -> tuple[Any, ...]:
    import torch

    backends: Any = torch.backends  # that of mkldnn is a module whose attributes are made at run time
    return backends, backends.mkldnn.matmul, backends.cuda.matmul


def _put_precision(value: tuple[str | None, ...]) -> None:
    import torch

    if value[0] is not None:
        torch.set_float32_matmul_precision(value[0])
    for home, word in zip(_precision_homes(), value[1:], strict=True):
        if home.fp32_precision != word:
            home.fp32_precision = word


def _precision_words(value: tuple[str | None, ...], than: tuple[str | None, ...]) -> str:
    return f"matmul precision {next((word for word in value if word not in (None, 'none')), 'as torch has it')}"


def _cudnn_precision() -> dict[str, Any]:
    """Whether TF32 is allowed by torch's one word (None where its newer switches differ, which it raises for), and the
    newer switches, of convolutions and of recurrent layers."""
    import torch

    try:
        found: dict[str, Any] = {"TF32": bool(torch.backends.cudnn.allow_tf32)}
    except RuntimeError:
        found = {"TF32": None}
    homes: dict[str, Any] = {name: getattr(torch.backends.cudnn, name, None) for name in ("conv", "rnn")}
    return found | {name: home.fp32_precision for name, home in homes.items() if hasattr(home, "fp32_precision")}


def _put_cudnn_precision(value: dict[str, Any]) -> None:
    import torch

    if value["TF32"] is not None:
        torch.backends.cudnn.allow_tf32 = value["TF32"]
    for name in value.keys() - {"TF32"}:
        home = getattr(torch.backends.cudnn, name)
        if home.fp32_precision != value[name]:
            home.fp32_precision = value[name]


def _cudnn_words(value: dict[str, Any], than: dict[str, Any]) -> str:
    changed = [f"{name} {value[name]}" for name in value if name != "TF32" and value[name] != than.get(name)]
    if value["TF32"] is None or value["TF32"] == than["TF32"]:
        return f"cuDNN's float32 precision {', '.join(changed)}"
    return f"cuDNN's TF32 {'on' if value['TF32'] else 'off'}"


def _anomaly() -> tuple[bool, bool]:
    import torch

    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _anomaly_words(value: tuple[bool, bool], than: tuple[bool, bool]) -> str:
    return f"anomaly detection {'on' if value[0] else 'off'}"
