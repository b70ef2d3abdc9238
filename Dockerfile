# Python, a JRE, Spark as pip has it, and Understudy: any process of a cluster. `make image` builds it.
FROM python:3.11-slim AS build

WORKDIR /src
COPY requirements/image.txt requirements/
RUN python -m venv /opt/understudy/venv \
    && /opt/understudy/venv/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/understudy/venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/understudy/venv/bin/pip uninstall --yes --quiet hatchling

FROM python:3.11-slim

# As the manifests have it: any user but root, and a root file system that is only read.
RUN groupadd --gid 10001 understudy \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/understudy --create-home understudy
COPY --from=build /opt/understudy/venv /opt/understudy/venv
ENV PATH=/opt/understudy/venv/bin:$PATH \
    HOME=/var/lib/understudy \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/understudy
# The command checks its configuration, and is then replaced by the guardian: process 1, which reaps
# orphans and forwards signals.
ENTRYPOINT ["understudy"]
