# A cluster by `make`, in the words of those who had one before. Each target is a thin call of `shoal`, which reads
# HOSTFILE, MODEL_DIR, API_PORT and all others from the environment, from `make NAME=value` and from .env;
# ARGS adds flags.

SHOAL := build/shoal
CHAT  := {"messages": [{"role": "user", "content": "What is tensor parallelism?"}], "max_tokens": 64}
# What the settings say of one name: $(call setting,port)
setting = $$($(SHOAL) launch --print-config | sed -n 's/^$(1) = \([^ ]*\) .*/\1/p')
# The demo model when no other is set.
or_demo = $$($(SHOAL) launch --print-config | grep -q '^model = [^ ]' || echo --model models/demo)

.PHONY: setup bootstrap verify cluster-info sync rdma-test rdma-quick rdma-verbose rdma-stress server server-bg \
        server-stop server-restart health models models-local models-check download chat-test queue dashboard metrics \
        status monitor logs version test loc bench kill-all fingerprint clean-all

setup: ## install what a build needs, and build
	tools/setup.sh
	$(MAKE) program

bootstrap: program ## copy the sources to the hosts of HOSTFILE and build there
	$(SHOAL) bootstrap $(ARGS)

verify cluster-info: program ## check all hosts of HOSTFILE: ssh, versions, memory, links
	$(SHOAL) doctor $(ARGS)

sync: program ## give the hosts of HOSTFILE the program and the settings, where they lack or differ
	$(SHOAL) launch --prepare $(ARGS)

tcp_note = @echo "RDMA is not in this program yet: this tests the links between the hosts over TCP."
rdma-test: program ## test the links between the hosts (over TCP until RDMA is there)
	$(tcp_note)
	$(SHOAL) launch --job linktest $(ARGS)
rdma-quick: program ## the same with fewer sizes and rounds
	$(tcp_note)
	$(SHOAL) launch --job linktest --quick $(ARGS)
rdma-verbose: program ## the same, and all that the ranks have to say
	$(tcp_note)
	$(SHOAL) launch --job linktest --log-level debug $(ARGS)
rdma-stress: program ## many operations of random sizes, all checked
	$(tcp_note)
	$(SHOAL) launch --job linktest --stress $(ARGS)

server: program ## serve on all hosts of HOSTFILE (without one: on this machine) until Ctrl-C
	$(SHOAL) launch $(ARGS)
server-bg: program ## the same in the background
	$(SHOAL) launch --detach $(ARGS)
server-stop: program ## stop the cluster
	$(SHOAL) stop $(ARGS)
server-restart: program ## stop the cluster and launch it again, in the background
	$(SHOAL) restart $(ARGS)
kill-all: program ## stop all that was launched from the state folder, and nothing else
	$(SHOAL) stop $(ARGS)
status: program ## ranks, hosts, processes, and how the API does
	$(SHOAL) status $(ARGS)
logs: program ## what the ranks said; ARGS=-f goes on
	$(SHOAL) logs $(ARGS)
monitor: program ## watch the server in the terminal
	$(SHOAL) monitor $(ARGS)

health: program ## the API's health
	$(SHOAL) call /health $(ARGS)
models: program ## models that the API serves
	$(SHOAL) call /v1/models $(ARGS)
queue: program ## requests that wait
	$(SHOAL) call /queue $(ARGS)
metrics: program ## the numbers of the dashboard
	$(SHOAL) call /metrics/snapshot $(ARGS)
chat-test: program ## ask the API a question
	$(SHOAL) call /v1/chat/completions '$(CHAT)' $(ARGS)
dashboard: program ## where the dashboard is
	@echo "http://$(call setting,host):$(call setting,port)/dashboard on the host of rank 0"

models-local: program ## models in models/
	@for config in models/*/config.json; do $(SHOAL) info --model "$${config%/*}"; done
models-check: program ## is the model on all hosts, and does it fit?
	$(SHOAL) doctor $(or_demo) $(ARGS)
download: ## not there yet: how to copy a model today
	@echo "Downloads come later. Today: get the folder with any tool (huggingface-cli, git lfs, rsync), then copy it to the"
	@echo "same path on every host:  rsync -a FOLDER/ HOST:FOLDER/   and serve it with MODEL_DIR=FOLDER."

fingerprint: program ## this host as JSON
	$(SHOAL) fingerprint $(ARGS)
version: program ## the program's version
	@$(SHOAL) --version
bench: program ## tokens a second of a model on this machine
	$(SHOAL) bench $(or_demo) $(ARGS)
test: check ## the same as check
loc: ## lines of source in each layer
	@for layer in src/*/; do printf '%-14s %6d\n' "$$layer" "$$(find "$$layer" -name '*.[ch]' -exec cat {} + | wc -l)"; done
clean-all: clean ## remove build/ and what the tests installed
	rm -rf tests/npm/node_modules
