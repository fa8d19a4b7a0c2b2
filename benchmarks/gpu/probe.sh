#!/bin/sh
# What a machine with a device has: run this first, in the repository's root.
date -u
uname -mr
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
python3 --version
python3 - <<'PY'
import importlib.metadata as m
names = "cuda-core cuda-bindings cuda-pathfinder cupy-cuda13x torch jax triton numpy pytest pytest-timeout hypothesis"
names += " blake3 msgspec zstandard platformdirs click rich nvidia-cuda-nvrtc"
for name in names.split():
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print(name, "-")
PY
command -v nvcc gcc cuobjdump
nvcc --version | tail -2
df -h . /tmp | tail -2
nproc
