#!/usr/bin/env bash
# Resolve pyproject.toml into the lock files: every package pinned and hashed, for every platform and Python
# from 3.11 on, and no address of any registry in them. Called by `make lock`.
set -euo pipefail
cd "$(dirname "$0")/.."
uv="${UV:-uv}"

compile() {
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-header --no-annotate "$@" >/dev/null
}

# The extras that bring no framework. Frameworks pin their own world, so each has an environment of its own.
small=()
for extra in numpy otel pandas postgres prometheus prices pydantic; do small+=(--extra "$extra"); done

# The development set decides; the smaller ones are cut out of it, so that no package has two versions.
compile pyproject.toml "${small[@]}" --group build --group dev -o requirements/dev.txt "$@"
compile pyproject.toml -c requirements/dev.txt -o requirements/core.txt
compile --group pyproject.toml:build -c requirements/dev.txt -o requirements/build.txt

# The peers of `make bench-peers` live in environments of their own: nothing of ours decides their versions.
for wanted in requirements/peers/*.in; do
  compile "$wanted" -o "${wanted%.in}.txt" "$@"
done

# The environments of the frameworks have the library's own packages too, and the driver of the second engine.
for wanted in requirements/adapters/*.in; do
  compile pyproject.toml "$wanted" --extra postgres --group build -o "${wanted%.in}.txt" "$@"
done

if grep -nE '://|--(index|extra-index|find-links)' requirements/*.txt requirements/peers/*.txt requirements/adapters/*.txt; then
  echo "an address got into a lock file" >&2
  exit 1
fi
wc -l requirements/*.txt requirements/peers/*.txt requirements/adapters/*.txt
