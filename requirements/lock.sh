#!/bin/sh
# Writes the hashed locks from pyproject.toml. Usage: requirements/lock.sh [path of uv]
# --universal: one lock for Linux and macOS and for each Python from 3.11 on.
# No index address goes into a lock, so that each user's own setting decides where packages come from.
set -eu
cd "$(dirname "$0")/.."
uv=${1:-uv}

compile() {
    output=requirements/$1.txt
    shift
    echo "$output"
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header --upgrade "$@" --output-file "$output"
}

compile layer --extra lambda pyproject.toml
# Tests run on exactly what the layer ships.
compile dev --constraint requirements/layer.txt --extra cli --extra otel --group build --group stack \
    --group test --group check --group lock pyproject.toml
compile local --group local
# The site imports the package for its Python reference.
compile site --constraint requirements/dev.txt --group site
# The tests of the pages run beside the others' packages.
compile ui-test --constraint requirements/dev.txt --group ui-test
# So do those of other frameworks.
compile frameworks --constraint requirements/dev.txt --extra celery --extra django --group frameworks pyproject.toml
# What a release needs runs beside the others' packages, too.
compile release --constraint requirements/dev.txt --group release
compile sam --group sam
