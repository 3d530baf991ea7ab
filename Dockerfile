# The service in one image; which part of it runs is the argument of the command.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
RUN python -m venv /opt/surefoot
COPY requirements-runtime.lock ./
RUN /opt/surefoot/bin/pip install --no-cache-dir --require-hashes -r requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY app ./app
COPY migrations ./migrations
# The build backend is the one thing outside the lock; it is not part of the image that runs.
RUN /opt/surefoot/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE}
RUN useradd --system --uid 10001 --no-create-home --home-dir /nonexistent surefoot
COPY --from=build /opt/surefoot /opt/surefoot
# Nothing is written at run time, so the root file system can be mounted read-only.
ENV PATH=/opt/surefoot/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    SUREFOOT_HOST=0.0.0.0 \
    SUREFOOT_PORT=8080
USER 10001
WORKDIR /
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{os.environ[\"SUREFOOT_PORT\"]}/healthz', timeout=2)"]
# SIGTERM drains: running steps reach their boundary, then the sessions are handed over.
STOPSIGNAL SIGTERM
CMD ["surefoot", "serve", "--role", "all"]
