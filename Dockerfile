# docker build --target cpu -t dqnitro .          docker build --target gpu -t dqnitro:gpu .
# The steps are those of docs/install.md. --build-arg PIP_EXTRA_INDEX_URL=... adds an index, such as torch's own of builds
# for CPUs, which makes the image some gigabytes smaller.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS base
# Triton and torch.compile call a compiler.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1
WORKDIR /opt/dqnitro
COPY . .
ARG PIP_EXTRA_INDEX_URL
RUN python3 -m venv .venv

# Everything but a GPU.
FROM base AS cpu
RUN .venv/bin/python -m pip install -c constraints.txt .
RUN useradd --create-home dqnitro
USER dqnitro
WORKDIR /home/dqnitro
ENTRYPOINT ["/opt/dqnitro/.venv/bin/dqnitro"]

# An NVIDIA GPU: docker run --gpus all. The driver is the host's, the CUDA libraries come with the wheels.
FROM base AS gpu
RUN .venv/bin/python -m pip install -c constraints.txt '.[cuda]'
RUN useradd --create-home dqnitro
USER dqnitro
WORKDIR /home/dqnitro
ENTRYPOINT ["/opt/dqnitro/.venv/bin/dqnitro"]
