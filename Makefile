# The few commands people type. `make demo` and `make test` are all the set-up there is.
.PHONY: demo test lint bench soak fuzz peers

CARGO ?= cargo
export CROSSWAY_PEERS ?= $(CURDIR)/target/peers

# Runs the main job with a real Envoy and explains it; KEEP=1 leaves it running.
demo:
	scripts/peers.sh --only envoy --only grpcurl
	$(CARGO) build --release --locked
	python3 scripts/demo.py $(if $(KEEP),--keep)

# Everything that CI runs as tests, with the real peers present.
test: peers
	CROSSWAY_REQUIRE_PEERS=1 $(CARGO) test --locked

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

# Beside Consul 1.8.7, as a table and as target/bench.json. QUICK=1 takes a few minutes, the full matrix as long as it needs.
bench: peers
	QUICK=$(QUICK) $(CARGO) bench --locked --bench side_by_side

# The same tests as `make test` with long parameters, those marked as ignored included.
soak: peers
	CROSSWAY_REQUIRE_PEERS=1 CROSSWAY_SOAK=1 $(CARGO) test --locked --release -- --include-ignored

# SECONDS for each target; needs cargo-fuzz and a nightly compiler.
SECONDS ?= 60
fuzz:
	cd fuzz && set -e; for target in fuzz_targets/*.rs; do \
	  $(CARGO) +nightly fuzz run $$(basename $$target .rs) -- -max_total_time=$(SECONDS); done

peers:
	scripts/peers.sh
